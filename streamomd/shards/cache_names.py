"""Names of coordinates beside a cache's rows: written with each entry, taken by a run once.

Tens of thousands of names may stand beside an entry of milliseconds' worth of rows, and most of
them beside the next one too. So each coordinate's have a hash, by which those that the run has are
passed over before any of them becomes an object of Python's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from streamomd.features import Names
from streamomd.features.names import _COORDINATES as MOST_COORDINATES
from streamomd.features.names import _MORE as MORE

SCHEMA = pa.schema({"coordinate": pa.int32(), "hash": pa.uint64(), "names": pa.list_(pa.string())})
SLOTS = 1 << 18


def packed(seen: Mapping[int, tuple[str, ...]]) -> pa.Buffer:
    """Names by coordinate as the bytes of a record batch."""
    hashes = (xxhash.xxh3_64_intdigest("\0".join(names).encode()) for names in seen.values())
    columns = [
        pa.array(np.fromiter(seen, np.int32, len(seen))),
        pa.array(np.fromiter(hashes, np.uint64, len(seen))),
        pa.array([*seen.values()], SCHEMA.field("names").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize()


class Noted(Names):
    """Names of a shard as one thread decodes its groups, noted in the run's table too.

    An entry tells those that the thread's entries before it do not. A run reads all groups of a
    shard, and what is not in the cache is decoded: so it hears of each name from a group that has
    it, whichever entries are gone by then.
    """

    def __init__(self, url: str, run: Names | None) -> None:
        super().__init__()
        self.url, self._run = url, run
        self._before: Mapping[int, tuple[str, ...]] = {}

    def note(self, *told: Any) -> None:
        """As Names does it."""
        before = self.version
        super().note(*told)
        # What is not new here was told there, too.
        if self._run is not None and (self.version != before or len(self) >= MOST_COORDINATES):
            self._run.note(*told)

    def fresh(self) -> Mapping[int, tuple[str, ...]]:
        """Names since the last time, by coordinate."""
        before, self._before = self._before, self.seen()
        return {at: names for at, names in self._before.items() if before.get(at) != names}


class Taken:
    """What a run's table of names has from entries; threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = np.zeros(SLOTS, np.uint64)
        """The hash that was taken last, by the lowest bits of its coordinate."""
        self._open: NDArray[np.int32] | None = None
        """Where a table takes another name, once it takes no other coordinate."""

    def take(self, packed: Any, names: Names) -> None:
        """Have a table know what ``packed`` gave bytes of."""
        record = pa.ipc.read_record_batch(pa.py_buffer(packed), SCHEMA)
        coordinates, hashes = (record.column(at).to_numpy() for at in (0, 1))
        slots = coordinates & np.int32(SLOTS - 1)
        with self._lock:
            fresh = self._last[slots] != hashes
            if self._open is not None:
                fresh &= np.isin(coordinates, self._open)
            at = np.flatnonzero(fresh)
            if not len(at):
                return
            texts = record.column(2).take(pa.array(at)).to_pylist()
            names.update(dict(zip(coordinates[at].tolist(), map(tuple, texts), strict=True)))
            self._last[slots[at]] = hashes[at]
            if len(names) >= MOST_COORDINATES:
                still = [at for at, known in names.seen().items() if known[-1] != MORE]
                self._open = np.array(still, np.int32)
