"""Exact mode where labels come later: a row is predicted when it arrives, and learned afterwards.

Two cursors walk the same shards. The first predicts rows and counts them. The second reads them
again and learns those that are due (``training.teaching``), so that no row waits in memory or in a
commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, Times
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.runs.exact import ExactRun
from streamomd.shards.cursor import Cursor
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.training.holdout import stretches_of
from streamomd.training.metrics.by_time import NEVER, ends_of_hours, next_end
from streamomd.training.row_stream import Source
from streamomd.training.signals import raise_stopped
from streamomd.training.teaching import Schedule, Teaching, stream_times
from streamomd.training.training_step import learn_rows

Mask = NDArray[np.bool_]
NONE_DUE = (1 << 63) - 1
"""The time when the next row is due if there is none."""


@dataclass(eq=False)
class DelayedRun(ExactRun):
    """A walk that predicts rows, with a second one that learns them later."""

    @property
    def schedule(self) -> Schedule:
        """When rows are learned."""
        return Schedule(self.model.spec.data.delay_ns)

    def learn_epochs(self, epochs: int) -> None:
        """As ``ExactRun``; rows that are not due at the end of the data are not learned."""
        try:
            super().learn_epochs(epochs)
        finally:
            if "_teacher" in self.__dict__:
                self._teacher.close()

    @cached_property
    def _teacher(self) -> Teacher:
        data, at = self.model.spec.data, self.model.teaching.cursor
        order = places(data.order, data.seed, len(self.shards), at.epoch)
        return Teacher(self, self._source(), order)

    def _learn(self, piece: Piece[Rows], shard: int) -> None:
        """Predict a piece; before each row others are learned that are due when it arrives."""
        model, low, passed = self.model, 0, 0
        batch, held = self.rows_and_held_out(piece, shard)
        assert batch.time is not None
        known = model.metrics.by_time
        latest = NEVER if known is None or known.latest is None else known.latest
        stream = stream_times(batch.time, latest)
        now, ends = self.schedule.now(stream), self._ends(batch.time, stream)
        while True:
            high = min(len(batch), low + self._rows_to_tell())
            if low < len(batch):
                due = self._teacher.learn_due(int(now[low]))
                high = min(next_end(ends, low, high), int(np.searchsorted(now, due)))
            bad = batch.skipped.before(high)
            at = (
                (self.shard_name(shard), piece.row + low + passed),
                (self.shard_name(shard), piece.row + high + bad),
            )
            counted = batch.skipped.counts(passed, bad)
            out = None if held is None else held[low:high]
            self._predict(batch.rows(low, high), counted, out, at, stream[low:high])
            model.cursor = Cursor(model.cursor.epoch, piece.position, at[1][1])
            low, passed = high, bad
            for watcher in self.watchers:
                watcher.update(model.metrics)
            if self.stop.signal:
                raise_stopped(self.stop, self.model, self.manager)
            if low == len(batch):
                return

    def _ends(self, time: Times, stream: Times) -> list[int]:
        """Where rows that are counted together end."""
        return ends_of_hours(time)

    def _predict(
        self,
        batch: Batch,
        bad: NDArray[np.int64],
        held: Mask | None,
        at: tuple[Place, Place],
        stream: Times,
    ) -> None:
        """Predict and count rows. stream: the stream times when they arrive."""
        learn_rows(self.model, batch, bad, held, at, learns=False)


class Teacher:
    """Reads the rows of a run again and learns them, from ``model.teaching`` on."""

    def __init__(self, run: DelayedRun, source: Source, order: Sequence[int]) -> None:
        self._run, self._order = run, order
        at = run.model.teaching.cursor
        self._pieces: Iterator[Piece[Rows]] = iter(source(order, (at.place, at.row)))
        self._piece: Piece[Rows] | None = None
        self._batch: Batch
        self._stream = self._due = np.empty(0, np.int64)
        self._held: Mask | None = None
        self._low = self._passed = 0
        self._sums = np.zeros(3)  # rows are counted where they are predicted

    def learn_due(self, now: int) -> int:
        """Learn all rows that are due at a time; when the next one is due, ``NONE_DUE``: never."""
        while self._advance():
            high = int(np.searchsorted(self._due, now, side="right"))
            if high > self._low:
                self._learn(high)
            if high < len(self._due):
                return int(self._due[high])
        return NONE_DUE

    def _advance(self) -> bool:
        """Have a row that is not learned; False at the end of the data."""
        while self._low == len(self._due):
            self._piece = next(self._pieces, None)
            if self._piece is None:
                return False
            run, shard = self._run, self._order[self._piece.position]
            self._batch, self._held = run.rows_and_held_out(self._piece, shard)
            assert self._batch.time is not None
            self._stream = stream_times(self._batch.time, run.model.teaching.latest)
            self._due = run.schedule.due(self._stream)
            self._low = self._passed = 0
        return True

    def _learn(self, high: int) -> None:
        """Learn the rows of the piece before ``high``, except those that are held out."""
        piece, run, low = self._piece, self._run, self._low
        assert piece is not None
        model, batch = run.model, self._batch
        bad = batch.skipped.before(high)
        name = run.shard_name(self._order[piece.position])
        at = (name, piece.row + low + self._passed), (name, piece.row + high + bad)
        learned = 0
        some, out = batch.rows(low, high), None if self._held is None else self._held[low:high]
        for begin, end in [(0, len(some))] if out is None else stretches_of(out):
            if out is not None and out[begin]:
                continue
            rows = some.rows(begin, end)
            if model.class_weights is not None:
                rows = model.class_weights.weighted(model.metrics, rows)
            with Stage("learn"):
                margins = model.engine.learn(model.state, self._sums, rows)
            learned += len(rows)
            model.guard.after(model.state, self._sums, margins, rows.values.size, at)
        before = model.teaching
        cursor = Cursor(before.cursor.epoch, piece.position, at[1][1])
        latest = int(self._stream[high - 1])
        model.teaching = Teaching(cursor, latest, before.rows + learned)
        self._low, self._passed = high, bad

    def close(self) -> None:
        """Stop reading ahead."""
        if hasattr(self._pieces, "close"):
            self._pieces.close()
