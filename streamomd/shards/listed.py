"""A file that a source lists, before any byte of it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streamomd.shards.file_schema import TableColumns


class Table(NamedTuple):
    """The table that a file is of, for messages. kind: such as "Delta". url: of its root. missing:
    why a file of it may be missing, with ``{version}`` for that of the commit that added it."""

    kind: str
    url: str
    missing: str


class Listed(NamedTuple):
    """A file of a directory, glob or table, as it is listed.

    path: exact name inside the file system. url: absolute, without userinfo. name: the path
    relative to the source that lists it. size: bytes, −1 if not listed. mtime_ns, etag: where the
    file system has them. partitions: column and text of each partition value (None: null), where a
    table's log records them; None: they are in the name. version: of the table's commit that added
    the file, and its position in that commit. table: of which it is. columns: of a table whose
    columns have ids, by which those of its files are found.
    """

    path: str
    url: str
    name: str
    size: int = -1
    mtime_ns: int | None = None
    etag: str | None = None
    partitions: tuple[tuple[str, str | None], ...] | None = None
    version: tuple[int, int] = (0, 0)
    table: Table | None = None
    columns: TableColumns | None = None
