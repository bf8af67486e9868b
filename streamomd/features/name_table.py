"""A bounded table of names by coordinate, which compiled code fills and reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LETTERS = 1 << 16
_BITS = 1 << 21  # 256 KiB, which stays in a processor's own cache


class Watch(NamedTuple):
    """Names that hashing skips as settled: see ``features.kernels.murmur3.unsettled``."""

    keys: NDArray[np.int32]
    counts: NDArray[np.uint8]
    known: NDArray[np.uint32]
    closed: NDArray[np.uint8]
    recent: NDArray[np.uint32]


class NameTable:
    """Names in the order of arrival: at most 65,536 coordinates, 4 names each, then "+".

    One thread adds at a time; other threads may read what ``watch`` returned.
    """

    def __init__(self) -> None:
        from streamomd.features.kernels.murmur3 import (  # numba only if values are hashed
            COORDINATES,
            EACH,
            LOW,
            SLOTS,
        )

        self._each, self._most = EACH, COORDINATES
        self._keys, self._counts = np.zeros(SLOTS, np.int32), np.zeros(SLOTS, np.uint8)
        self._known = np.zeros(EACH * SLOTS, np.uint32)
        self._entries = np.zeros(EACH * SLOTS, np.int32)
        self._where = np.zeros((EACH + 1) * COORDINATES, np.int32)
        self._ends = np.zeros(len(self._where) + 1, np.int64)
        self._letters = np.empty(_LETTERS, np.uint8)
        self._sizes = np.zeros(2, np.int64)
        self._closed = np.empty(0, np.uint8)
        self._recent = np.zeros(1 << (32 - LOW), np.uint32)
        self._recent[0] = 1 << LOW  # 0 would be found there, this is looked for elsewhere
        self._exact = self._ended = False

    def __len__(self) -> int:
        """How many names it has, each "+" counting."""
        return int(self._sizes[0])

    @property
    def coordinates(self) -> int:
        """How many have names."""
        return int(self._sizes[1])

    def add(
        self,
        coordinates: NDArray[np.int32],
        prefix: bytes,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        stops: NDArray[np.int64],
        hashes: NDArray[np.uint32] | None = None,
    ) -> None:
        """Add names, each a prefix and a rest, that are not there yet, all in UTF-8.

        data, starts, stops: bytes, and where in them the rests are. hashes: of the names' values;
        None: unknown.
        """
        from streamomd.features.kernels.murmur3 import noter

        some = len(starts)
        if not some:
            return
        if hashes is None:
            hashes = np.zeros(some, np.uint32)
        letters = some * (len(prefix) + 1) + int((stops - starts).sum())
        room = int(self._ends[len(self)]) + letters
        if room > len(self._letters):
            self._letters = np.concatenate((self._letters, np.empty(room, np.uint8)))
        order = self._where, self._ends, self._letters, self._sizes
        table = self._keys, self._counts, self._known, self._entries
        closed = self._closed if self._exact else self._closed[:0]
        start = np.frombuffer(prefix, np.uint8)
        given = coordinates, hashes, start, data, starts, stops
        noter()(some, *given, *table, *order, closed)

    def since(self, place: int, end: int | None = None) -> tuple[NDArray[np.int32], pa.Array]:
        """The names from one on, up to another, large_binary, and their coordinates."""
        end = len(self) if end is None else end
        made = [None, pa.py_buffer(self._ends[place : end + 1]), pa.py_buffer(self._letters)]
        names = pa.Array.from_buffers(pa.large_binary(), end - place, made)
        return self._where[place:end], names

    def watch(self, size: int) -> Watch:
        """What is settled by now, of ``size`` coordinates."""
        ended = self.coordinates == self._most
        if not len(self._closed) or ended > self._ended:
            self._exact, self._ended = size <= _BITS, ended
            self._closed = self._bits(size)
        return Watch(self._keys, self._counts, self._known, self._closed, self._recent)

    def _bits(self, size: int) -> NDArray[np.uint8]:
        """``Watch.closed``. Where coordinates share a bit they keep each other open."""
        closed = np.full(min(_BITS, 1 << size.bit_length()), self._ended)
        used = self._keys > 0
        places, full = (self._keys[used] - 1) % len(closed), self._counts[used] > self._each
        if self._exact:
            closed[places[full]] = True
        closed[places[~full]] = False
        return np.packbits(closed, bitorder="little")
