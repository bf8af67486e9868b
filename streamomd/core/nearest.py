"""The nearest known name, for messages about an unknown one."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

MOST, LONGEST = 200, 100
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


SCHEMES = (
    "s3",
    "gs",
    "gcs",
    "az",
    "abfs",
    "abfss",
    "hdfs",
    "http",
    "https",
    "file",
    "memory",
)


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
    names = list(itertools.islice(short, MOST))
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
