"""Words of messages: counts, lists of names, the nearest known name, lines that fit a terminal."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, ParamSpec, TypeVar

from streamomd.core.urls import printable


def at_least(least: float) -> str:
    """What a target may be, by its smallest legal value.

    >>> at_least(0.0), at_least(2e-308)
    ('0 or more', 'above 0')
    """
    return "above 0" if 0.0 < least < 1e-300 else f"{least:g} or more"


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an s unless the number is 1.

    >>> counted(1, "shard"), counted(45_211, "row")
    ('1 shard', '45,211 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def first_lines(lines: Sequence[str], most: int, what: str = "") -> list[str]:
    """The first lines, and one on how many more there are.

    >>> first_lines(["a", "b", "c"], 2, " skipped")
    ['a', 'b', 'and 1 more skipped']
    """
    more = len(lines) - most
    return [*lines[:most], *([f"and {more:,} more{what}"] if more > 0 else [])]


def worded(skipped: Mapping[str, int]) -> str:
    """Counts by reason as a person reads them.

    >>> worded({"nan": 1200, "null": 3})
    'nan 1,200, null 3'
    """
    return ", ".join(f"{reason} {count:,}" for reason, count in skipped.items())


MOST_LISTED = 12
"""Columns, and elements of a vector, in a line."""


def worded_means(means: Mapping[str, float | list[float]]) -> str:
    """Means by column, of a vector a list of them.

    >>> worded_means({"age": 41.25, "e": [0.5, 1.0]})
    'age = 41.25, e = [0.5, 1]'
    """
    text = ", ".join(f"{name} = {_worded(means[name])}" for name in [*means][:MOST_LISTED])
    more = len(means) - MOST_LISTED
    return printable(f"{text} and {more} more" if more > 0 else text)


def _worded(mean: float | list[float]) -> str:
    if isinstance(mean, float):
        return f"{mean:.6g}"
    text = ", ".join(f"{one:.6g}" for one in mean[:MOST_LISTED])
    return f"[{text}, …]" if len(mean) > MOST_LISTED else f"[{text}]"


MOST_NAMES, LONGEST = 200, 100
"""Names, and their characters, that a missing column is compared with: anyone may send more."""
P = ParamSpec("P")
T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is. Case and - for _ do not count.

    Two letters in the wrong order are the most common slip, so a name of the same letters is first.

    >>> nearest("FTRL-proximal", ["nag", "ftrl_proximal"]), nearest("qqq", ["nag"])
    ('ftrl_proximal', None)
    >>> nearest("nga", ["ng", "nag"])
    'nag'
    """
    plain = {_plain(one): one for one in known}
    given = _plain(name)
    same = [one for one in plain if sorted(one) == sorted(given)]
    found = same or difflib.get_close_matches(given, plain, n=1)
    return plain[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest one, or all if none is near.

    >>> suggestion("nagg", ["nag", "ogd"]), suggestion("qqq", ["nag", "ogd"])
    ("did you mean 'nag'?", 'known: nag, ogd')
    """
    names = list(known)
    found = nearest(name, names)
    return f"did you mean {found!r}?" if found else f"known: {', '.join(names) or 'none'}"


EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure",
    "abfss": "azure", "hf": "hf",
}  # fmt: skip
"""The extra that has the file system of a scheme."""
SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "hdfs", "http", "https", "file", "memory")


def workbook(url: str) -> str:
    """A few words on a file of a spreadsheet program, and what to do; "" for others.

    >>> workbook("rows.xlsx"), workbook("rows.csv")
    ('an Excel workbook: save the sheet as CSV, or write it as Parquet', '')
    """
    kinds = {(".xlsx", ".xlsm", ".xlsb", ".xls"): "Excel", (".ods",): "OpenDocument"}
    for ends, name in kinds.items():
        if url.lower().endswith(ends):
            return f"an {name} workbook: save the sheet as CSV, or write it as Parquet"
    return ""


def extra_hint(scheme: str) -> str:
    """What to install for a scheme whose file system is in another package; "" for others.

    >>> extra_hint("s3"), extra_hint("sftp")
    ("s3:// needs a package that is not installed: pip install 'streamomd[s3]'", '')
    """
    extra = EXTRAS.get(scheme)
    what = f"pip install 'streamomd[{extra}]'"
    return f"{scheme}:// needs a package that is not installed: {what}" if extra else ""


def scheme_hint(scheme: str, more: Iterable[str] = ()) -> str:
    """The end of a message about an unsupported URL: the nearest scheme, or "". more: schemes in
    addition to ``SCHEMES``.

    >>> scheme_hint("s4"), scheme_hint("s3")
    ('; did you mean s3://?', '')
    """
    schemes = (*SCHEMES, *more)
    near = [one for one in schemes if len(one) == len(scheme) and one[0] == scheme[0]]
    found = nearest(scheme, schemes) or next(iter(near), None)
    return f"; did you mean {found}://?" if found and scheme not in schemes else ""


def missing_columns(missing: Sequence[str], there: Sequence[Any], where: str) -> str:
    """The message about columns that rows of a trained model lack; there: names that they have.

    >>> missing_columns(["age"], ["agee", "job"], "the row")
    "the row: column 'age' is missing; did you mean 'agee' for 'age'? The model was trained on it"
    """
    short = (one for one in there if isinstance(one, str) and 0 < len(one) <= LONGEST)
    names = list(itertools.islice(short, MOST_NAMES))
    near = {name: nearest(name, names) for name in missing}
    hints = [f"{found!r} for {name!r}" for name, found in near.items() if found]
    meant = f" did you mean {', '.join(hints)}?" if hints else ""
    several = len(missing) > 1
    return (
        f"{where}: {'columns' if several else 'column'} {', '.join(map(repr, missing))} "
        f"{'are' if several else 'is'} missing;{meant} "
        f"{'T' if meant else 't'}he model was trained on {'them' if several else 'it'}"
    )


def named_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose TypeError for an unknown keyword names the nearest one."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def call(*given: P.args, **keywords: P.kwargs) -> T:
        for name in keywords:
            if name not in known:
                made = function.__name__ == "__init__"
                called = type(given[0]).__name__ if made else function.__qualname__
                raise TypeError(f"{called}() has no argument {name!r}; {suggestion(name, known)}")
        return function(*given, **keywords)

    return call


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def similar_path(path: str) -> str:
    """The end of a message about a missing local path: a sibling with a similar name, or "".

    The sibling is shown as the user would type it: in the same directory as ``path``.
    """
    folder, name = os.path.split(path.rstrip("/"))
    try:
        # Of a link to nothing its own name would be the nearest.
        names = [other for other in os.listdir(folder or ".") if other != name]
    except (OSError, ValueError):  # ValueError: a NUL in the name
        missing = folder and not os.path.lexists(folder)
        return f"; there is no directory {folder!r}" if missing else ""
    found = nearest(name, names)
    return f"; did you mean {os.path.join(folder, found)!r}?" if found else ""


NARROWEST = 40
_PASTED = re.compile(r"\s*(next: )?streamomd [a-z]|\s+[\w.\"]+ = |\s*\$ ")
"""Lines that are copied as a whole: a command, or a key of a job file."""
_QUOTED = re.compile(r"`[^`]*`")
_JOINED = "\0"


def width_of(out: IO[Any] | None) -> int | None:
    """Columns of the terminal that a stream writes to; None if it is none."""
    try:
        if out is None or not out.isatty():
            return None
        columns = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):  # closed, or a terminal without a size
        return None
    return columns if columns >= NARROWEST else None


def it_or_them(count: int) -> str:
    """The word for as many things."""
    return "it" if count == 1 else "them"


def job_word(value: Any) -> str:
    """A value in the notation of a job file.

    >>> job_word(True), job_word("once"), job_word(0.5)
    ('true', 'once', '0.5')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def wrap(text: str, width: int | None) -> str:
    """The text with lines of at most ``width`` columns, where spaces allow it.

    Commands in backquotes are not broken; neither are tables (two spaces between words), commands
    and keys on lines of their own.

    >>> print(wrap("a run resumes with `streamomd resume runs/bank` and 3 epochs", 40))
    a run resumes with
      `streamomd resume runs/bank` and 3
      epochs
    """
    if width is None:
        return text
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    if len(line) <= width or "  " in line.lstrip() or _PASTED.match(line):
        return line
    indent = line[: len(line) - len(line.lstrip())] + "  "
    joined = _QUOTED.sub(lambda found: found[0].replace(" ", _JOINED), line)
    broken = textwrap.wrap(
        joined, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(broken).replace(_JOINED, " ")
