"""Whether rows are in order of a column of dates or times, from a sample of their row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import StreamomdError
from streamomd.features.arrow_types import DATES, family
from streamomd.shards.filesystem import is_local
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet

MOST_GROUPS, MOST_FAR = 16, 3
"""Row groups that are looked at, evenly spread, the first and the last among them: on a disk, and
in a store, where each takes a request."""
MOST_ROWS = 10_000
"""Rows that are looked at in each, the first ones."""
MOST_COLUMNS = 8
LEAST_ROWS = 100
Times = NDArray[np.int64]


def column_in_order(shards: ShardSet) -> str:
    """The first column of dates or timestamps that never falls from row to row and is not constant,
    in the row groups that are looked at; "" if there is none, or of few rows."""
    if shards.rows < LEAST_ROWS:
        return ""
    schema = next(iter(shards)).stored_schema
    columns = [one.name for one in schema if family(one.type) in DATES][:MOST_COLUMNS]
    ends = dict.fromkeys(columns, (0, 0, 0))  # rows, first and last time
    try:
        for batch in _sample(shards, columns) if columns else ():
            for name in [*ends]:
                times = _microseconds(batch.column(batch.schema.get_field_index(name)))
                rows, first, last = ends[name]
                if not len(times):
                    continue
                if (rows and times[0] < last) or (times[1:] < times[:-1]).any():
                    del ends[name]
                    continue
                ends[name] = rows + len(times), first if rows else int(times[0]), int(times[-1])
    except StreamomdError:
        return ""  # the run reads these rows next, and raises it
    return next((name for name, (_, first, last) in ends.items() if first < last), "")


def _sample(shards: ShardSet, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The first rows of some row groups, in their order."""
    groups = []
    for place, shard in enumerate(shards):
        ends = np.cumsum(shard.groups).tolist()
        both = zip(ends, shard.groups, strict=True)
        groups += [(place, end - rows, rows) for end, rows in both if rows]
    most = MOST_GROUPS if is_local(shards.fs) else MOST_FAR
    chosen = np.unique(np.linspace(0, len(groups) - 1, most).round().astype(int)).tolist()
    for place, begin, rows in (groups[at] for at in chosen):
        end = begin + min(rows, MOST_ROWS)
        batches = read_batches(
            shards, places=[place], columns=columns, start=(0, begin), threads=1, budget_bytes=1,
            unit_bytes=1 << 20,
        )  # fmt: skip
        with closing(iter(batches)) as pieces:
            for piece in pieces:
                if piece.row >= end:
                    break
                yield piece.batch.slice(0, end - piece.row)


def _microseconds(values: pa.Array) -> Times:
    """Since 1970, of the values that are not null."""
    ticks = values.drop_null().cast(pa.timestamp("us"), safe=False).view(pa.int64())
    found: Times = ticks.to_numpy(zero_copy_only=False)
    return found
