"""A folder on the local disk as a store: own system calls, because only they can promise durability.

An object is written aside, flushed, and linked to its name: the link fails if the name is taken,
so a reader sees whole objects only and two writers exclude each other.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from streamomd.errors import StorageError
from streamomd.urls import printable

ASIDE = ".tmp-"


class LocalStore:
    """Objects as files below ``root``."""

    def __init__(self, root: str) -> None:
        self.url = root.rstrip("/") or "/"

    def prepare(self) -> None:
        """Make the folder."""
        with self._explained(""):
            self._make_folder(self.url)

    def read(self, name: str) -> bytes:
        """All bytes. Raises FileNotFoundError."""
        with self._explained(name):
            handle = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as file:
                return file.read()

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is not there."""
        with self._explained(name):
            try:
                return os.lstat(self._path(name)).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def create(self, name: str, data: bytes) -> None:
        """Put if absent; durable on return. Raises FileExistsError."""
        with self._explained(name):
            path = self._path(name)
            folder = os.path.dirname(path)
            self._make_folder(folder)
            aside = os.path.join(folder, ASIDE + uuid.uuid4().hex)
            try:
                _write_through(aside, data)
                os.link(aside, path)
                _flush_folder(folder)
            finally:
                if os.path.lexists(aside):
                    os.unlink(aside)

    def names(self, folder: str) -> list[str]:
        """Names directly inside a folder."""
        with self._explained(folder):
            try:
                return [name for name in os.listdir(self._path(folder)) if ASIDE not in name]
            except FileNotFoundError:
                return []

    def delete(self, name: str) -> None:
        """Remove a file, and its folder if that was the last one."""
        path = self._path(name)
        with self._explained(name):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
        try:
            os.rmdir(os.path.dirname(path))
        except OSError:
            return  # other files are left in it

    def _path(self, name: str) -> str:
        return os.path.join(self.url, name) if name else self.url

    def _make_folder(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(f"{folder} is a file") from None
        _flush_folder(parent)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            place = printable(self._path(name))
            raise StorageError(f"{place}: {error.strerror or error}") from error


def _write_through(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_folder(folder: str) -> None:
    """A name is durable when its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
