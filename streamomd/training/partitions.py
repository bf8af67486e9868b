"""Partitions of the coordinates, who owns which, and micro-batches of the rows.

The coordinates 0 … size − 1 fall into P contiguous partitions, for any number of owners: every sum
over coordinates is a sum over the partitions, in their order, so results are bit-identical for any
number of owners. A micro-batch is rows k B … (k + 1) B − 1 of an epoch, for any cut into shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch, joined_values
from streamomd.engine import Engine
from streamomd.engine.micro_batches import Sensed, apply, decide, sense
from streamomd.engine.state import State

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def edges(size: int, parts: int) -> NDArray[np.int64]:
    """The first coordinate of each of ``parts`` partitions, and ``size``.

    >>> edges(10, 4).tolist(), edges(2, 4).tolist()
    ([0, 2, 5, 7, 10], [0, 0, 1, 1, 2])
    """
    return np.array([part * size // parts for part in range(parts + 1)], dtype=np.int64)


def owned(owner: int, owners: int, parts: int) -> range:
    """The partitions of owner ``owner`` of ``owners``.

    >>> owned(0, 3, 16), owned(1, 3, 16), owned(2, 3, 16)
    (range(0, 5), range(5, 10), range(10, 16))
    """
    return range(owner * parts // owners, (owner + 1) * parts // owners)


@dataclass(eq=False)
class Share:
    """Some consecutive partitions: an engine and a state for their coordinates alone.

    low: the first coordinate. edges: between the partitions, from 0 to the last coordinate and one.
    cells of ``state`` are those of coordinate ``low`` and on; totals and clock those of the model.
    """

    engine: Engine
    state: State
    low: int
    edges: NDArray[np.int64]
    bias: bool

    @classmethod
    def whole(cls, engine: Engine, state: State, parts: int) -> Share:
        """All partitions of a model."""
        return cls(engine, state, 0, edges(state.layout.size, parts), engine.bias)

    @classmethod
    def of(cls, engine: Engine, parts: int, mine: range) -> Share:
        """The share of partitions ``mine`` of a model with this engine, at its start."""
        all_edges = edges(engine.layout.size, parts)
        between = all_edges[mine.start : mine.stop + 1]
        low, high = int(between[0]), int(between[-1])
        layout = replace(engine.layout, size=high - low)
        # The bias is coordinate 0.
        local = replace(engine, layout=layout, bias=engine.bias and low == 0 < high)
        return cls(local, State.start(layout), low, between - low, engine.bias)

    @property
    def high(self) -> int:
        """The last coordinate and one."""
        return self.low + int(self.edges[-1])

    def cut(self, batch: Batch) -> Batch:
        """A batch's rows with the entries of this share's coordinates alone, numbered from 0."""
        shift = int(self.bias)  # of the columns: coordinate 0 is no column
        return cut_columns(batch, max(0, self.low - shift), max(0, self.high - shift))

    def sense(self, batch: Batch) -> Sensed:
        """Observe a micro-batch; what each partition adds to its rows."""
        return sense(self.engine, self.state, self.edges, batch)

    def decide(self, batch: Batch, sums: Floats, numbers: Floats) -> tuple[Floats, Floats]:
        """The steps of the micro-batch just sensed, and its margins. numbers: of all partitions,
        or their sum."""
        return decide(self.engine, self.state, sums, batch, numbers)

    def apply(self, batch: Batch, moves: Floats) -> None:
        """Take the steps of the micro-batch just sensed."""
        apply(self.engine, self.state, batch, moves)

    def fill(self, low: int, high: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Take what is this share's of a part in a checkpoint; every share takes the first."""
        if low == 0:
            self.state.totals[...] = arrays["totals"]
            self.state.clock = int(arrays["clock"][0])
        first, last = max(low, self.low), min(high, self.high)
        for slot, columns in self.state.layout.columns():
            if first < last:
                there = arrays[f"slot.{slot.name}"][first - low : last - low]
                self.state.table[first - self.low : last - self.low, columns] = there

    def parts(self, nbytes: int = 0) -> Iterator[tuple[int, int, dict[str, NDArray[Any]]]]:
        """Yields the parts that ``State.parts`` does, of the model's coordinates; the first holds
        totals and clock."""
        for low, high, arrays in self.state.parts(nbytes):
            slots = {name: array for name, array in arrays.items() if name.startswith("slot.")}
            yield low + self.low, high + self.low, arrays if self.low == 0 else slots


def cut_columns(batch: Batch, first: int, last: int) -> Batch:
    """A batch's rows with the entries of columns first … last - 1 alone, numbered from 0."""
    if isinstance(batch, DenseBatch):
        columns = np.ascontiguousarray(batch.values[:, first:last])
        return replace(batch, values=columns)
    inside = (batch.indices >= first) & (batch.indices < last)
    if inside.all():
        return replace(batch, indices=batch.indices - np.int32(first)) if first else batch
    before = np.zeros(len(inside) + 1, dtype=np.int64)
    np.cumsum(inside, out=before[1:])
    indices = batch.indices[inside] - np.int32(first)
    values = batch.values[inside]
    return replace(batch, indptr=before[batch.indptr], indices=indices, values=values)


def column_ranges(size: int, parts: int, owners: int, *, bias: bool) -> list[tuple[int, int]]:
    """The first column of each owner, and its last column and one.

    >>> column_ranges(10, 4, 2, bias=True)
    [(0, 4), (4, 9)]
    """
    all_edges = np.maximum(0, edges(size, parts) - int(bias)).tolist()
    ranges = [owned(owner, owners, parts) for owner in range(owners)]
    return [(all_edges[one.start], all_edges[one.stop]) for one in ranges]


def micro_batches(
    pieces: Iterable[tuple[Batch, int, int]], rows: int
) -> Iterator[tuple[Batch, int, int, Counts | None]]:
    """Consecutive batches of ``rows`` rows each, the last one of what is left, or of none.

    pieces: (batch, place, row of its first row in that shard). With each: the place and row after
    its last, and the bad rows that were passed since the one before, by reason; None for none.
    """
    waiting: list[Batch] = []
    missing, after = rows, (0, 0)
    bad: Counts | None = None
    for batch, place, row in pieces:
        low = passed = 0
        while True:
            high = min(len(batch), low + missing)
            waiting.append(batch.rows(low, high))
            missing -= high - low
            left_out = batch.skipped.before(high)
            if left_out > passed:
                bad = batch.skipped.counts(passed, left_out) + (0 if bad is None else bad)
            low, passed, after = high, left_out, (place, row + high + left_out)
            if not missing:
                yield joined(waiting), *after, bad
                waiting, missing, bad = [], rows, None
            if low == len(batch):
                break
    if waiting:
        yield joined(waiting), *after, bad


def joined(batches: list[Batch]) -> Batch:
    """Rows one after the other."""
    if len(batches) == 1:
        return batches[0]
    y = np.concatenate([batch.y for batch in batches])
    weight = np.concatenate([batch.weight for batch in batches])
    values = np.concatenate([batch.values for batch in batches])
    times = [batch.time for batch in batches if batch.time is not None]
    time = np.concatenate(times) if times else None
    sparse = [batch for batch in batches if isinstance(batch, SparseBatch)]
    columns = joined_values([batch.columns for batch in batches])
    if not sparse:
        return DenseBatch(values, y, weight, time=time, columns=columns)
    indptr, before = [np.zeros(1, dtype=np.int64)], 0
    for batch in sparse:
        indptr.append(batch.indptr[1:] + before)
        before += len(batch.indices)
    indices = np.concatenate([batch.indices for batch in sparse])
    return SparseBatch(
        np.concatenate(indptr), indices, values, y, weight, time=time, columns=columns
    )
