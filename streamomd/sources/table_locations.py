"""Where a file of a table is, by the path in its log; nothing outside the table is opened unasked.

A log may be anyone's. It chooses no file system, endpoint or credentials: those are the table's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streamomd.config.allow_list import VARIABLE, allow_lists, refuse_outside
from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import printable, protocol, shown
from streamomd.shards.filesystem import is_local

if TYPE_CHECKING:
    import fsspec

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


def locate(
    fs: fsspec.AbstractFileSystem, root: str, url: str, text: str, who: str = DELTA_LOG
) -> Location:
    """The file that a path of the log of table ``url`` means. Raises DataError, UsageError.

    who: what has the path; those of Delta are percent-encoded.
    """
    match = _SCHEME.fullmatch(text)
    name = match[2] if match else text
    try:
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
    if _ALIASES.get(scheme, scheme) != _ALIASES.get(protocol(url), protocol(url)):
        raise _refused(url, text, "is in another file system than the table", who)
    found = _absolute(fs, url, name)
    if found.path.startswith(base):
        name = found.path[len(base) :]
        return Location(found.path, f"{url.rstrip('/')}/{name}", name)
    return found


def _absolute(fs: fsspec.AbstractFileSystem, url: str, name: str) -> Location:
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
    if outside and not lists:
        some = ", ".join(shown(one.url) for one in outside[:MOST_FILES])
        more = f" and {len(outside) - MOST_FILES:,} more" * (len(outside) > MOST_FILES)
        raise UsageError(
            f"{who} {shown(url)} names files outside of the table (a shallow "
            f"clone?): {some}{more}. To allow them, set {VARIABLE} to prefixes of the table and of "
            "these files, with commas between"
        )
    if lists:
        refuse_outside([one.url for one in found], lists, f"{who} {shown(url)}")


def _refused(url: str, text: str, why: str, who: str) -> DataError:
    return DataError(
        f"{who} {shown(url)} names the file {printable(shown(text))[:200]!r}, "
        f"which {why}: the table is damaged, or hostile"
    )
