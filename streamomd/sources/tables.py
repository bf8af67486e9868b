"""How tables and text among the sources are read, which files they are, and the command that
converts text.

A log may be anyone's. It chooses no file system, endpoint or credentials: those are the table's.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from streamomd.config.allow_list import VARIABLE, allow_lists, refuse_outside
from streamomd.config.values import join_list, nanoseconds
from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import absolute, local_name, printable, protocol, shown, typed
from streamomd.core.wording import listed
from streamomd.shards.filesystem import FileSystem, is_local

if TYPE_CHECKING:
    from streamomd.config.data_table import Data


SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".arrows": "arrows",
}  # fmt: skip
"""Formats of which every file with the suffix is one."""
OTHERS = {".txt": "csv", ".data": "csv", ".svm": "svmlight", ".libsvm": "svmlight", ".vw": "vw"}
"""Formats that ``convert`` assumes without --from."""
PACKED = (".gz", ".bz2", ".xz")


def text_format(name: str) -> str:
    """ "csv", "jsonl" or "arrows" for a name of what is converted, packed or not; "" for others.

    >>> text_format("a/rows.csv.gz"), text_format("a.jsonl"), text_format("a.parquet")
    ('csv', 'jsonl', '')
    """
    return SUFFIXES.get(_suffix(name), "")


def assumed_format(name: str) -> str:
    """The format that ``convert`` reads a file as; "" if its name does not say.

    >>> assumed_format("rows.svm"), assumed_format("rows.csv.xz"), assumed_format("rows")
    ('svmlight', 'csv', '')
    """
    return {**SUFFIXES, **OTHERS}.get(_suffix(name), "")


def ending(name: str) -> str:
    """The end of a name that says its format and packing.

    >>> ending("a/my.rows.csv.gz"), ending("a.parquet")
    ('.csv.gz', '.parquet')
    """
    plain = name
    for packed in PACKED:
        plain = plain.removesuffix(packed)
    return name[plain.rfind(".") :]


def _suffix(name: str) -> str:
    plain = name.lower()
    for packed in PACKED:
        plain = plain.removesuffix(packed)
    dot = plain.rfind(".")
    return plain[dot:] if dot > plain.rfind("/") else ""


@dataclass(frozen=True)
class TableOptions:
    """How tables and text among the sources are read.

    version: of a Delta table, None: the newest. as_of: or the one that was the newest at that time
    (ISO 8601). as_files: whether files of tables are read like any others. csv: of text files, as
    ``convert`` takes them. types: of columns of messages, which have nulls for those they lack.
    given: keys of csv that a command has, in addition to those of a model's job. known: versions of
    the tables that a model learned; it knows the columns of an Iceberg table by names of then.
    texts: columns that are text to a model, so that text whose values all look like numbers is read
    as text, too.
    """

    version: int | None = None
    as_of: str = ""
    as_files: bool = False
    csv: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Data) -> Self:
        """Those of a job."""
        csv = data.csv
        return cls(data.version, data.as_of, data.as_files, csv.options(), csv.types)

    @classmethod
    def for_model(
        cls,
        data: Data,
        known: Mapping[str, int],
        version: int | None,
        as_of: str,
        as_files: bool,
        csv: Mapping[str, Any],
    ) -> Self:
        """For other shards than those of a trained model's job. csv: in place of the job's; types
        of label and weight, which the shards may lack, are not taken from it.
        """
        absent = (data.label, data.weight)
        # A type of a column that is not there would be refused.
        types = {name: kind for name, kind in data.csv.types.items() if name not in absent}
        changed = data.csv.changed({"types": types, **csv})
        types = {**data.csv.types, **changed.types}
        return cls(version, as_of, as_files, changed.options(), types, tuple(csv), known)

    @property
    def chooses_version(self) -> bool:
        """Whether they say how a Delta table is read."""
        return self.version is not None or bool(self.as_of) or self.as_files

    @property
    def keys(self) -> set[str]:
        """The dotted keys of a job that they have values of."""
        chosen = {
            "version": self.version is not None,
            "as_of": self.as_of,
            "as_files": self.as_files,
        }
        names = [name for name, is_given in chosen.items() if is_given]
        return {f"data.{name}" for name in (*names, *(f"csv.{name}" for name in self.given))}

    def __post_init__(self) -> None:
        try:
            if self.as_of:
                nanoseconds(self.as_of)
        except ValueError as error:
            raise UsageError(f"as_of is {self.as_of!r}: {error}") from None
        if self.version is not None and self.version < 0:
            raise UsageError(f"version is {self.version}: expected 0 or more")
        if self.version is not None and self.as_of:
            raise UsageError(
                f"version {self.version} and as_of {self.as_of!r} are both given: each chooses a "
                "table's version, give one"
            )


FILES_OR_TABLES = TableOptions()


MOST_FILES = 3
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "local": "file", "": "file"}


@dataclass(frozen=True, slots=True)
class Location:
    """path: in the table's file system. name: below the table's root. outside: of the table."""

    path: str
    url: str
    name: str
    outside: bool = False


DELTA_LOG = "the log of Delta table"
ICEBERG_METADATA = "the metadata of Iceberg table"


def locate(fs: FileSystem, root: str, url: str, text: str, who: str = DELTA_LOG) -> Location:
    """The file that a path of the log of table ``url`` means. Raises DataError, UsageError.

    who: what has the path; those of Delta are percent-encoded.
    """
    match = _SCHEME.fullmatch(text)
    name = match[2] if match else text
    try:
        # Delta percent-encodes paths; in Iceberg's metadata a % is a letter.
        name = unquote(name, errors="strict") if who == DELTA_LOG else name
    except UnicodeDecodeError:
        raise _refused(url, text, "is not UTF-8", who) from None
    relative = not match and not name.startswith("/")
    segments = name.lstrip("/").split("/")
    if "\0" in name or any(segment in ("", ".", "..") for segment in segments):
        raise _refused(
            url, text, "is not a path of a file: '.', '..' or nothing between two '/'", who
        )
    base = root.rstrip("/") + "/"
    if relative:
        return Location(base + name, f"{url.rstrip('/')}/{name}", name)
    scheme = match[1].lower() if match else protocol(url)
    # One file system serves a table: its credentials are not sent to another store.
    if _ALIASES.get(scheme, scheme) != _ALIASES.get(protocol(url), protocol(url)):
        raise _refused(url, text, "is in another file system than the table", who)
    place = _absolute(fs, url, name)
    # An absolute path of a file of the table: known by its place in it, as relative ones are.
    if place.path.startswith(base):
        name = place.path[len(base) :]
        return Location(place.path, f"{url.rstrip('/')}/{name}", name)
    return place


def _absolute(fs: FileSystem, url: str, name: str) -> Location:
    if is_local(fs):
        path = "/" + name.lstrip("/")
        return Location(path, path, path, outside=True)
    full = f"{protocol(url)}://{name.lstrip('/')}"
    return Location(str(fs._strip_protocol(full)), full, full, outside=True)


def check_locations(url: str, found: Sequence[Location], who: str = DELTA_LOG) -> None:
    """Raise UsageError for files outside the table, or outside an allow-list, before one is opened.

    Files outside the table, as a shallow clone has, need an allow-list that has them.
    """
    lists = allow_lists()
    outside = [one for one in found if one.outside]
    # Else a log from anywhere could have files of this machine read.
    if outside and not lists:
        some = listed([shown(one.url) for one in outside], MOST_FILES)
        raise UsageError(
            f"{who} {shown(url)} names files outside of the table (a shallow clone?): {some}. To "
            f"allow them, set {VARIABLE} to prefixes of the table and of these files, with commas "
            "between"
        )
    if lists:
        refuse_outside([one.url for one in found], lists, f"{who} {shown(url)}")


def _refused(url: str, text: str, why: str, who: str) -> DataError:
    return DataError(
        f"{who} {shown(url)} names the file {printable(shown(text))[:200]!r}, "
        f"which {why}: the table is damaged, or hostile"
    )


MOST_NAMES = 3
"""Files of a command in a message."""
_FLAGS = {
    "types": "--type", "null_values": "--null", "header": "--no-header", "quotes": "--no-quotes",
}  # fmt: skip
"""Flags of ``convert`` whose names are not those of its options."""


def text_files(text: str) -> list[str]:
    """The local text files that a source names: a file, a glob, or a directory of nothing else."""
    if protocol(text) and not text.startswith("file://"):
        return []
    path = local_name(absolute(text))
    if os.path.isfile(path):
        names = [path]
    elif os.path.isdir(path):
        names = _text_in(path)
    else:
        names = sorted(glob.glob(path)) if text_format(path) else []
    return names if names and all(map(text_format, names)) else []


def _text_in(folder: str) -> list[str]:
    """The text files of a folder that has no other files. A million shards are not looked at."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            # The first other file decides: a folder of a million shards is not listed to its end.
            if not text_format(entry.name):
                return []
            names.append(entry.path)
    return sorted(names)


def command(
    texts: Sequence[str], files: Sequence[Sequence[str]], options: Mapping[str, Any]
) -> str:
    """The command that converts the text among the sources, to paste into a shell."""
    words = ["streamomd convert"]
    for text, some in zip(texts, files, strict=True):
        words += _pasted(text, some) if some else []
    words += [f"-o shards/{''.join(_flags(options))}"]
    return f"`{' '.join(words)}`"


def _pasted(text: str, files: Sequence[str]) -> list[str]:
    """Names of files for a shell; patterns where there are many."""
    if len(files) <= MOST_NAMES:
        return [typed(file) for file in files]
    folders = dict.fromkeys((os.path.dirname(one), ending(one)) for one in files)
    return [f"{typed(folder)}/*{end}" for folder, end in folders]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        yield f" {flag}" if isinstance(value, bool) else f" {flag} {shlex.quote(_worded(value))}"


def _worded(value: str | Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        return join_list(f"{column}={kind}" for column, kind in value.items())
    return value if isinstance(value, str) else join_list(value)
