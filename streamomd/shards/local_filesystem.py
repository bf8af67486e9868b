"""The local disk as a file system: fsspec and asyncio are imported only for writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LocalFilesystem:
    """What readers have for fsspec's own local file system: they ask the operating system.

    Whoever asks it for anything else, as those do who write, is answered by fsspec's.
    """

    protocol = "file"

    def invalidate_cache(self) -> None:
        """Nothing is cached."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle asks for some that nobody has
            raise AttributeError(name)
        import fsspec

        return getattr(fsspec.filesystem("file"), name)
