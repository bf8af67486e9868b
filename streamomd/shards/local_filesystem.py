"""The local disk as a file system: fsspec and asyncio are imported only for writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LocalFilesystem:
    """Local file system for readers: it reads through the operating system, not through fsspec.

    Every other attribute, such as those for writing, is that of fsspec's local file system.
    """

    protocol = "file"

    def invalidate_cache(self) -> None:
        """Nothing is cached."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle asks for some that do not exist
            raise AttributeError(name)
        import fsspec

        return getattr(fsspec.filesystem("file"), name)
