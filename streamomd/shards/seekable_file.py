"""The file interface that pyarrow uses: a position, and reads from there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class SeekableFile(ABC):
    """A file of ``size`` bytes that a subclass reads at an offset."""

    # ruff: noqa: D102 (methods of every file)
    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:  # noqa: B027 (nothing is open here)
        """Nothing to close."""

    def read_buffer(self, length: int) -> Any:
        return self.read(length)

    def read(self, length: int = -1) -> Any:
        if length < 0:
            length = self._size - self._at
        if not 0 <= self._at <= self._at + length <= self._size:
            raise OSError(f"{length} bytes at {self._at} are not in a file of {self._size}")
        found = self.take(self._at, length)
        self._at += length
        return found

    @abstractmethod
    def take(self, offset: int, length: int) -> Any:
        """Bytes at an offset, all inside the file."""


class ChangedWhileReadError(OSError):
    """The file changed while it was read."""
