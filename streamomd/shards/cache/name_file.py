"""Names of coordinates in a cache entry, added to the run's table once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features import Names
from streamomd.features.name_table import Watch
from streamomd.features.names import SAMPLED
from streamomd.shards.cache.entry import DamagedError

NO_COORDINATES = np.empty(0, np.int32)
SCHEMA = pa.schema({"coordinate": pa.int32(), "name": pa.large_binary()})


class ShardNames(Names):
    """Names of a shard, as threads decode its groups."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.one_by_one = url, threading.Lock()


class RecordedNames(Names):
    """Names of a row group that its shard's table did not have, for its entry; they are noted in
    the run's table too.

    A run reads all groups of a shard and decodes those not in the cache: so it gets each name, even
    if entries were removed.
    """

    def __init__(self, shard: ShardNames, run: Names | None) -> None:
        super().__init__()
        self._shard, self._run = shard, run
        self._spans: list[tuple[int, int]] = []
        """Of the shard's names, from one to another."""

    @property
    def is_full(self) -> bool:
        """As Names does it."""
        return self._shard.is_full

    def is_due(self, column: str) -> bool:
        """As Names does it."""
        return self._shard.is_due(column)

    def watch(self, size: int) -> Watch:
        """As Names does it."""
        return self._shard.watch(size)

    def note(self, *names: Any) -> None:
        """As Names does it."""
        with self._shard.one_by_one:
            before = self._shard.version
            self._shard.note(*names)
            self._spans.append((before, self._shard.version))
        if self._run is not None:
            self._run.note(*names)

    def pack(self) -> pa.Buffer:
        """The names as the bytes of a record batch, in order of their coordinates: so a reader's
        table is searched from one end to the other."""
        parts = [self._shard.since(low, high) for low, high in self._spans if low < high]
        coordinates = np.concatenate([NO_COORDINATES, *(part[0] for part in parts)])
        names = pa.chunked_array([part[1] for part in parts], pa.large_binary())
        order = np.argsort(coordinates, kind="stable")
        texts = arrow_function()("take", [names.combine_chunks(), pa.array(order)])
        made = [pa.array(coordinates[order]), texts]
        return pa.RecordBatch.from_arrays(made, schema=SCHEMA).serialize()


def add_names(packed: Any, names: Names) -> None:
    """Add to a table what ``RecordedNames.pack`` packed. Raises DamagedError, ArrowException."""
    record = pa.ipc.read_record_batch(pa.py_buffer(packed), SCHEMA)
    record.validate(full=True)
    coordinates, texts = record.column(0).to_numpy(), record.column(1)
    if coordinates.min(initial=0) < 0 or texts.null_count:
        raise DamagedError("its names are no names of coordinates")
    if names.is_full:  # as of rows that are decoded
        some = np.arange(0, len(texts), SAMPLED)
        coordinates = coordinates[some]
        texts = arrow_function()("take", [texts, pa.array(some)])
    names.add_names(coordinates, arrow_cast(texts, pa.large_string()))
