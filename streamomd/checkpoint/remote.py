"""Any fsspec file system as a store.

Objects are put whole with ``pipe_file``: a file opened for writing would be published cut short if
something fails halfway.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import fsspec

from streamomd.errors import StorageError, UsageError
from streamomd.urls import redact, scrub

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_PAUSE = 0.2  # seconds, doubled each time

T = TypeVar("T")
ANSWERS = (FileNotFoundError, FileExistsError)


class RemoteStore:
    """Objects below a URL of any fsspec file system."""

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        self.url = redact(url).rstrip("/")
        self._exclusive = True
        try:
            self._fs, root = fsspec.core.url_to_fs(url, **storage_options)
        except (ImportError, ValueError, TypeError) as error:
            raise UsageError(f"{self.url}: {scrub(str(error))}") from None
        self._root = root.rstrip("/")

    def prepare(self) -> None:
        """Put one object twice: a store that takes the second does not exclude two writers."""
        name = f"probe/{uuid.uuid4().hex}"
        self.create(name, b"streamomd")
        try:
            self.create(name, b"streamomd")
        except FileExistsError:
            return
        finally:
            self.delete(name)
        self._exclusive = False
        log.warning("%s: two runs that write here at once are noticed, not prevented", self.url)

    def read(self, name: str) -> bytes:
        """All bytes. Raises FileNotFoundError."""
        data: bytes = self._ask(name, lambda: self._fs.cat_file(self._path(name)))
        return data

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is not there."""

        def look() -> int:
            self._fs.invalidate_cache()
            return int(self._fs.info(self._path(name))["size"])

        try:
            return self._ask(name, look)
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> None:
        """Put if absent. Raises FileExistsError, also where an earlier try of ours has landed."""
        path = self._path(name)

        def put() -> None:
            if self._exclusive:
                self._fs.pipe_file(path, data, mode="create")
            elif self._fs.exists(path):
                raise FileExistsError(path)
            else:
                self._fs.pipe_file(path, data)

        self._ask(name, put)

    def names(self, folder: str) -> list[str]:
        """Names directly inside a folder."""

        def look() -> list[str]:
            self._fs.invalidate_cache()
            found = self._fs.ls(self._path(folder), detail=False)
            return [str(path).rstrip("/").rpartition("/")[2] for path in found]

        try:
            return self._ask(folder, look)
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            self._ask(name, lambda: self._fs.rm_file(self._path(name)))
        except FileNotFoundError:
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, name: str, action: Callable[[], T]) -> T:
        """Try a few times; what is not an answer becomes a StorageError without secrets."""
        for attempt in range(ATTEMPTS):
            try:
                return action()
            except ANSWERS:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {scrub(str(error))}"
                if attempt + 1 < ATTEMPTS:
                    threading.Event().wait(FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.5))
        raise StorageError(f"{self.url}/{name}: no answer after {ATTEMPTS} tries; {reason}")
