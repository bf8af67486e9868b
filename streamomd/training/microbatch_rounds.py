"""Sharded mode's walk over the rows: one round a micro-batch, as every owner makes it.

Partitions of the coordinates, who owns which, and micro-batches of the rows.

The coordinates 0 … size − 1 fall into P contiguous partitions, for any number of owners: every sum
over coordinates is a sum over the partitions, in their order, so results are bit-identical for any
number of owners. A micro-batch is rows k B … (k + 1) B − 1 of an epoch, for any cut into shards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.run_tables import Alert
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, DenseBatch, Floats, Times, joined_rows
from streamomd.core.finite import FiniteCheck, Place
from streamomd.engine import Engine
from streamomd.engine.micro_batches import Sensed, apply, decide, sense
from streamomd.engine.state import State
from streamomd.features import Names, Plan
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.order import Cursor, places
from streamomd.shards.shard import Digests, ShardSet
from streamomd.training.class_weights import ClassWeights, class_weights_of, recount, sampled_rows
from streamomd.training.column_statistics import Fired
from streamomd.training.drift_alerts import alerts_of_rows, plan_to_read
from streamomd.training.metrics import BLOCK, Metrics
from streamomd.training.row_stream import SharedDecoding, cache_of, no_rows, rows_of

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
        shift = int(self.bias)  # coordinate 0 is the bias, which no column has
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
                yield joined_rows(waiting), *after, bad
                waiting, missing, bad = [], rows, None
            if low == len(batch):
                break
    if waiting:
        yield joined_rows(waiting), *after, bad


Unexamined = tuple[Floats, Floats, Floats, Times]
"""Margins, labels, weights and times of rows whose metrics are not recorded yet."""
NO_TIMES = np.empty(0, np.int64)
Exchange = Callable[[Batch, Sensed], tuple[Floats, Floats]]
"""From a micro-batch and what the share's partitions add to its rows: the steps and the margins, as
``Share.decide`` gives them. It moves totals and sums alike."""


@dataclass(eq=False)
class Rounds:
    """A share's rounds, from its cursor on. Every owner has the same cursor, metrics and steps.

    exchange: with the owners of other partitions, if there are any. names: records hashed values.
    digests: of the row groups that are read. shared: how several owners decode the groups of an
    epoch, given the shards, their order and the epoch. examines: whether detailed metrics are
    recorded, which one owner's are enough for. done: rounds of this object. of_new: whether the
    shards are those of an update. alerted: called with alerts, where detailed metrics are recorded.
    """

    spec: Spec
    plan: Plan
    shards: ShardSet
    share: Share
    metrics: Metrics
    cursor: Cursor
    names: Names | None = None
    digests: Digests = field(default_factory=Digests)
    exchange: Exchange | None = None
    guard: FiniteCheck = field(default_factory=FiniteCheck)
    done: int = 0
    shared: Callable[[ShardSet, Sequence[int], int], SharedDecoding] | None = None
    examines: bool = True
    of_new: bool = False
    alerted: Callable[[list[Fired]], None] = lambda found: None
    _epoch: int = field(default=0, init=False)
    _unexamined: list[Unexamined] = field(default_factory=list, init=False)

    def warm(self) -> float:
        """Compile the loops, or load them; the seconds it took."""
        started = time.perf_counter()
        none = self.share.cut(no_rows(self.plan, self.shards))
        numbers = self.share.sense(none).numbers
        moves, _ = self.share.decide(none, np.zeros(3), numbers)
        self.share.apply(none, moves)
        return time.perf_counter() - started

    def __iter__(self) -> Iterator[None]:
        """Learn a micro-batch, and give it; then cursor and metrics stand between two, but for
        detailed ones: see ``examine``.

        Raises DivergedError, naming its rows, if a number is no longer finite.
        """
        try:
            yield from self._learn_epochs()
        finally:
            self.examine()

    def _learn_epochs(self) -> Iterator[None]:
        while self.cursor.epoch < self.spec.train.epochs:
            epoch, rows = self.cursor.epoch, self.shards.rows
            self.examine()  # of the epoch before
            self._epoch = epoch
            self.metrics.begin(epoch, self.shards.unread_rows)
            data = self.spec.data
            order = places(data.order, data.seed, len(self.shards), epoch)
            with closing(self._pieces()) as pieces:
                most, skipped = self.spec.data.max_bad_rows, int(self.metrics.bad[epoch].sum())
                # Of a run that is resumed with a smaller limit.
                self.metrics.count_skipped(np.zeros_like(self.metrics.bad[epoch]), most)
                for batch, place, row, bad in micro_batches(pieces, self.spec.train.batch_rows):
                    if bad is not None:
                        self.metrics.count_skipped(bad, most)
                        skipped += int(bad.sum())
                    self._learn(batch, self._rows_to(order, place, row))
                    ended = self.metrics.rows[epoch] + skipped == rows
                    self.cursor = Cursor(epoch + 1) if ended else Cursor(epoch, place, row)
                    self.done += 1
                    yield
            self.cursor = Cursor(epoch + 1)

    def _rows_to(self, order: Sequence[int], place: int, row: int) -> tuple[Place, Place]:
        """Where the micro-batch from the cursor to this row begins and ends."""
        at, shards = self.cursor, self.shards.shards
        if at.row == shards[order[at.place]].rows and at.place < place:
            at = Cursor(at.epoch, at.place + 1)
        return (shards[order[at.place]].url, at.row), (shards[order[place]].url, row)

    def _learn(self, batch: Batch, rows: tuple[Place, Place]) -> None:
        learned, sums = batch, self.metrics.current.copy()
        if self._weights is not None:
            learned = replace(batch, weight=batch.weight * self._weights.of(self.metrics, batch))
        sensed = self.share.sense(learned)
        if self.exchange is None:
            moves, margins = self.share.decide(learned, self.metrics.current, sensed.numbers)
        else:
            moves, margins = self.exchange(learned, sensed)
        self.share.apply(learned, moves)
        if self._weights is not None and len(margins) == len(batch):  # else the leader has them
            losses = self.share.engine.row_losses(0.0, margins, batch.y, batch.weight)
            self.metrics.current[...] = sums
            recount(self.metrics.current, losses, batch)
        self.metrics.count(len(batch))
        if self.examines and (alert := self._alert):
            given = self.share.engine, alert, self.plan, self.metrics
            if alerts := alerts_of_rows(*given, batch, margins):
                self.alerted(alerts)
        more = self.spec.train.detail or self._counts_first() or batch.time is not None
        if more and self.examines:
            time = NO_TIMES if batch.time is None else batch.time
            self._unexamined.append((margins, batch.y, batch.weight, time))
            if len(self._unexamined) * len(batch) >= BLOCK:
                self.examine()
        self.guard.after(self.share.state, self.metrics.current, margins, batch.values.size, rows)

    def examine(self) -> None:
        """Record the detailed metrics of all rows learned. Call it before these metrics are read.

        Rounds of 256 rows would pay five times as much per row as many rounds together.
        """
        if not self._unexamined:
            return
        margins, y, weight, time = map(np.concatenate, zip(*self._unexamined, strict=True))
        engine, metrics = self.share.engine, self.metrics
        if self.spec.train.detail:
            metrics.examine(engine.loss, engine.classes, margins, y, weight)
        if self._counts_first():
            metrics.count_first(engine.loss, margins, y, weight)
        if len(time):
            metrics.count_times(time, weight, engine.row_losses(0.0, margins, y, weight))
            metrics.read_times(time)
        self._unexamined.clear()

    def _counts_first(self) -> bool:
        return self.spec.model.counts_first and self._is_first_time

    @property
    def _is_first_time(self) -> bool:
        return self.of_new or self._epoch == 0

    @property
    def _alert(self) -> Alert | None:
        alert = self.spec.alert
        return alert if alert.watches and self._is_first_time else None

    @cached_property
    def _weights(self) -> ClassWeights | None:
        return class_weights_of(self.spec, self.plan)

    @cached_property
    def _cache(self) -> Cache | None:
        return cache_of(self.spec.data)

    def _pieces(self) -> Any:
        at, data = self.cursor, self.spec.data
        order = places(data.order, data.seed, len(self.shards), at.epoch)
        pieces = rows_of(
            plan_to_read(self._alert, self.plan),
            self.shards,
            order,
            start=(at.place, at.row),
            names=self.names,
            ahead_bytes=self.spec.train.prefetch << 20,
            cache=self._cache,
            digests=self.digests,
            shared=self.shared(self.shards, order, at.epoch) if self.shared else None,
        )
        with closing(pieces):
            for piece in pieces:
                place = self.shards.shards[order[piece.position]].place
                rows = range(piece.row, piece.row + piece.rows)
                batch = sampled_rows(data, self.plan, place, rows, piece.value.batch)
                yield batch, piece.position, piece.row
