"""Read a small file as a whole, such as one of a table's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamomd.core.errors import DataError
from streamomd.core.urls import shown
from streamomd.shards.filesystem import stat_entry
from streamomd.shards.seekable_file import ChangedWhileReadError
from streamomd.shards.shard_file import open_file

if TYPE_CHECKING:
    import fsspec


def read_whole(fs: fsspec.AbstractFileSystem, path: str, url: str, most: int, what: str) -> bytes:
    """The bytes of a file. Raises DataError, which says what it is, for one of more than ``most``
    bytes and for one that is written while it is read."""
    entry = stat_entry(fs, path, url)
    if entry.size > most:
        problem = f"has {entry.size:,} bytes, more than {most:,}"
        raise DataError(f"{what}, {shown(url)}: {problem}")
    file = open_file(fs, path, url, entry)
    try:
        return bytes(file.read())
    except ChangedWhileReadError as error:
        raise DataError(f"{what}, {shown(url)}: {error}") from None
    finally:
        file.close()
