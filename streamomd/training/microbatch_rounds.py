"""Sharded mode's walk over the rows: one round a micro-batch, as every owner makes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.run_tables import Alert
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Times
from streamomd.core.finite import FiniteCheck, Place
from streamomd.engine.micro_batches import Sensed
from streamomd.features import Names, Plan
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.order import Cursor, places
from streamomd.shards.shard import Digests, ShardSet
from streamomd.training.class_weights import ClassWeights, class_weights_of, recount, sampled_rows
from streamomd.training.drift_alerts import alerts_of_rows, plan_to_read
from streamomd.training.metrics import BLOCK, Metrics
from streamomd.training.metrics.drift import Fired
from streamomd.training.partitions import Share, micro_batches
from streamomd.training.row_stream import SharedDecoding, cache_of, no_rows, rows_of

Floats = NDArray[np.float64]
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
    _unexamined: list[tuple[Floats, Floats, Floats, Times]] = field(
        default_factory=list, init=False
    )

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
            if found := alerts_of_rows(*given, batch, margins):
                self.alerted(found)
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
