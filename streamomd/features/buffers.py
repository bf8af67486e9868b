"""Large buffers that are reused after nothing references them, and Arrow's strings as buffers.

Fresh memory costs a page fault and zeroed bytes for each page.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def buffers(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of strings or binary values, large or not, and where each begins and ends."""
    _, offsets, data = values.buffers()
    large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    found = np.frombuffer(offsets or b"", np.int64 if large else np.int32)
    begins = found[values.offset :][: len(values) + 1].astype(np.int64, copy=False)
    return np.frombuffer(data or b"", np.uint8), begins


SMALLEST_BYTES = 64 << 10
"""The allocator has warm pages for shorter buffers itself."""
STEP_BYTES = 1 << 20
"""Blocks have multiples of this, so that the next batch of a similar length fits."""
MOST_BYTES = 64 << 20
"""Limit of prefetched and current rows; further buffers are freed after use."""
ONES_BYTES, MOST_ONES = 4 << 20, 1 << 22
"""Step of the shared array of ones, for which numpy asks for huge pages, and its longest length."""


class BufferPool:
    """Lends buffers of Arrow's pool; threads may share one.

    A buffer is free when the last array made of it is gone. CPython says so itself: a memoryview
    with exports cannot be released. So no owner has to return a buffer, and none is filled while
    it is referred to.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._blocks: list[_Block] = []

    def take(self, length: int) -> pa.Buffer:
        """A writable buffer of this many bytes, aligned to 64; its content is undefined."""
        if length < SMALLEST_BYTES:
            return pa.allocate_buffer(length)
        with self._lock:
            # The first free block, not the one used longest ago: its lines may still be in a cache.
            for block in self._blocks:
                if block.size >= length and block.is_free():
                    return block.lend(length)
            self._blocks = [block for block in self._blocks if not block.is_free()]
            block = _Block(-(-length // STEP_BYTES) * STEP_BYTES)
            if self.retained + block.size <= self._most_bytes:
                self._blocks.append(block)
            return block.lend(length)

    @property
    def retained(self) -> int:
        """Bytes of all blocks, free and lent."""
        return sum(block.size for block in self._blocks)


class _Block:
    """Memory that is lent to one borrower at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._whole = memoryview(pa.allocate_buffer(size)).cast("B")
        self._lent = self._whole[:0]

    def is_free(self) -> bool:
        """Whether nothing refers to what was lent."""
        try:
            self._lent.release()
        except BufferError:
            return False
        return True

    def lend(self, length: int) -> pa.Buffer:
        """The first bytes, of a block that is free."""
        self._lent = self._whole[:length]
        return pa.py_buffer(self._lent)


_ROWS = BufferPool()


def empty(length: int, dtype: Any) -> NDArray[Any]:
    """An array (length,) for encoded rows, of memory that all threads reuse; not initialized."""
    kind = np.dtype(dtype)
    return np.frombuffer(_ROWS.take(length * kind.itemsize), kind)


_ONES: dict[np.dtype[Any], NDArray[Any]] = {}


def ones(length: int, dtype: Any) -> NDArray[Any]:
    """An array (length,) of ones that cannot be written, of memory that all batches share: values
    of a megabyte that are read again and again stay in the processor's cache."""
    kind = np.dtype(dtype)
    known = _ONES.get(kind)
    if known is None or length > len(known):
        step = ONES_BYTES // kind.itemsize
        known = np.ones(-(-length // step) * step, kind)
        known.flags.writeable = False
        if length <= MOST_ONES:
            _ONES[kind] = known
    return known[:length]
