"""Sharded mode's walk over the rows: one round a micro-batch, as every owner makes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.core.finite import FiniteCheck, Place
from streamomd.features import Names, Plan
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.cursor import Cursor
from streamomd.shards.digests import Digests
from streamomd.shards.order import places
from streamomd.shards.shard import ShardSet
from streamomd.training.metrics import Metrics
from streamomd.training.partitions import Share, micro_batches
from streamomd.training.row_stream import SharedDecoding, cache_of, no_rows, rows_of

Floats = NDArray[np.float64]
Exchange = Callable[[Floats], Floats]
"""(own partitions, rows, n) to (all partitions, rows, n), or to their sum (1, rows, n)."""


def no_exchange(found: Floats) -> Floats:
    """The exchange of an owner of all partitions."""
    return found


@dataclass(eq=False)
class Rounds:
    """A share's rounds, from its cursor on. Every owner has the same cursor, metrics and steps.

    names: records hashed values. digests: of the row groups that are read. shared: how several
    owners decode the groups of an epoch, given the shards, their order and the epoch. examines:
    whether detailed metrics are recorded, which one owner's are enough for. done: rounds of this
    object.
    """

    spec: Spec
    plan: Plan
    shards: ShardSet
    share: Share
    metrics: Metrics
    cursor: Cursor
    names: Names | None = None
    digests: Digests = field(default_factory=Digests)
    exchange: Exchange = no_exchange
    guard: FiniteCheck = field(default_factory=FiniteCheck)
    done: int = 0
    shared: Callable[[ShardSet, Sequence[int], int], SharedDecoding] | None = None
    examines: bool = True

    def warm(self) -> float:
        """Compile the loops, or load them; the seconds it took."""
        started = time.perf_counter()
        none = self.share.cut(no_rows(self.plan, self.shards))
        found = self.share.sense(none)
        self.share.follow(none, np.zeros(3), found)
        return time.perf_counter() - started

    def __iter__(self) -> Iterator[None]:
        """Learn a micro-batch, and give it; then cursor and metrics stand between two.

        Raises DivergedError, naming its rows, if a number is no longer finite.
        """
        while self.cursor.epoch < self.spec.train.epochs:
            epoch, rows = self.cursor.epoch, self.shards.rows
            self.metrics.begin(epoch, self.shards.unread_rows)
            data = self.spec.data
            order = places(data.order, data.seed, len(self.shards), epoch)
            with closing(self._pieces()) as pieces:
                most = self.spec.data.max_bad_rows
                for batch, place, row, bad in micro_batches(pieces, self.spec.train.batch_rows):
                    self.metrics.count_skipped(bad, most)
                    self._learn(batch, self._rows_to(order, place, row))
                    passed = self.metrics.rows[epoch] + self.metrics.bad[epoch].sum()
                    ended = passed == rows
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
        found = self.exchange(self.share.sense(batch))
        margins = self.share.follow(batch, self.metrics.current, found)
        self.metrics.count(len(batch))
        if self.spec.train.detail and self.examines:
            engine = self.share.engine
            self.metrics.examine(engine.loss, engine.classes, margins, batch.y, batch.weight)
        self.guard.after(self.share.state, self.metrics.current, margins, batch.values.size, rows)

    @cached_property
    def _cache(self) -> Cache | None:
        return cache_of(self.spec.data)

    def _pieces(self) -> Any:
        at, data = self.cursor, self.spec.data
        order = places(data.order, data.seed, len(self.shards), at.epoch)
        pieces = rows_of(
            self.plan,
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
                yield piece.value.batch, piece.position, piece.row
