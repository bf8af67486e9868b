"""Files to read: of a disk through the operating system, of a store in few requests."""

from __future__ import annotations

import os
from io import FileIO
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError
from streamomd.core.platform_calls import read_ahead
from streamomd.core.urls import shown
from streamomd.shards.filesystem import Entry, FileSystem, is_local, stat_entry, store_errors
from streamomd.shards.stored_object import ChangedWhileReadError, ObjectFile, stored_object


def open_file(fs: FileSystem, path: str, url: str, entry: Entry | None = None) -> Any:
    """A seekable binary file. entry: of the version to be read; without it, the one of now."""
    if is_local(fs):
        with store_errors(url):
            return _in_sequence(_open_local(path))
    known = stat_entry(fs, path, url) if entry is None else entry
    return ObjectFile(stored_object(fs, path, url, known))


class _DescriptorFile(FileIO):
    """A local file for pyarrow before 25, whose own file does not give its descriptor."""

    def read_buffer(self, length: int) -> Any:
        """Bytes from the current position, as of pyarrow's files."""
        return self.read(length)


def _open_local(path: str) -> Any:
    file = pa.OSFile(path)
    try:
        file.fileno()
    except AttributeError:
        file.close()
        return _DescriptorFile(path)
    return file


def _in_sequence(file: Any) -> Any:
    """Double the system's readahead, which halves the wait for uncached columns."""
    read_ahead(file)
    return file


def version(file: Any) -> object:
    """A value that changes when an open file is written or replaced; None if there is none."""
    if isinstance(file, ObjectFile):
        return file.etag
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def identity(file: Any) -> object:
    """Returns `version`; of a local file also when it was last changed, which no program can
    restore.

    Other names and permissions change it too, so a change of it does not imply other content.
    """
    if isinstance(file, ObjectFile):
        return version(file)
    return version(file), os.fstat(file.fileno()).st_ctime_ns


def read_whole(fs: FileSystem, path: str, url: str, most: int, what: str) -> bytes:
    """The bytes of a small file, such as one of a table's log. Raises DataError, which says what it
    is, for one of more than ``most`` bytes and for one that is written while it is read."""
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
