"""Keep resident memory level while large buffers come and go.

Decoded rows are buffers of megabytes, allocated by the threads that decode and freed by the one
that learns. Left alone, glibc raises its mmap threshold above them and scatters them over an arena
a thread, and Arrow's pool keeps what it once had: resident memory then grows for minutes.
"""

from __future__ import annotations

import ctypes
import functools
import os

import pyarrow as pa

MMAP_THRESHOLD = -3  # glibc's M_MMAP_THRESHOLD
ARENA_MAX = -8  # glibc's M_ARENA_MAX
LARGE_BYTES = 256 << 10
RELEASE_BYTES = 128 << 20


@functools.cache
def steady() -> None:
    """Have glibc give large buffers back when they are freed; for the whole process, once.

    Nothing happens with another C library, or where MALLOC_* variables say what is wanted.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(ARENA_MAX, 1)


class Release:
    """Counts bytes that went through Arrow's pool, and has it return what it holds unused."""

    def __init__(self) -> None:
        self._passed = 0

    def passed(self, nbytes: int) -> None:
        """Told of every buffer. What is returned costs page faults to have again: 15 % of a
        training after each unit, 7 % after 32 MiB, 5 % after 64 MiB.
        """
        self._passed += nbytes
        if self._passed >= RELEASE_BYTES:
            self._passed = 0
            pa.default_memory_pool().release_unused()
