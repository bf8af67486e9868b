"""Names of coordinates in a cache entry, added to the run's table once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features import Names
from streamomd.features.names import SAMPLED
from streamomd.shards.cache.entry import DamagedError

SCHEMA = pa.schema({"coordinate": pa.int32(), "name": pa.large_binary()})


class RecordedNames(Names):
    """Names of a shard as one thread decodes its groups, recorded in the run's table too.

    An entry has the names that the thread's earlier entries do not have. A run reads all groups of
    a shard and decodes those not in the cache: so it gets each name, even if entries were removed.
    """

    def __init__(self, url: str, run: Names | None) -> None:
        super().__init__()
        self.url, self._run, self._packed = url, run, 0

    def note(self, *names: Any) -> None:
        """As Names does it."""
        super().note(*names)
        if self._run is not None:
            self._run.note(*names)

    def pack(self) -> pa.Buffer:
        """Names since the last time, as the bytes of a record batch."""
        fresh = pa.RecordBatch.from_arrays([*self.since(self._packed)], schema=SCHEMA)
        self._packed += len(fresh)
        return fresh.serialize()


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
