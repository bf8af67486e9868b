"""Exact mode where labels come later: a row is predicted when it arrives, and learned afterwards.

Two cursors walk the same shards. The first predicts rows and counts them. The second reads them
again and learns those that are due (``training.teaching``), so that no row waits in memory or in a
commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, Skipped, Times
from streamomd.core.counted import counted
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.runs.exact import ExactRun
from streamomd.shards.cursor import Cursor
from streamomd.shards.dataset import Dataset
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.allowed_urls import find_list
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.holdout import rows_held_out, stretches_of, with_places
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.backtest_figures import Backtest
from streamomd.training.metrics.by_time import NEVER
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import end_period
from streamomd.training.open_checkpoint import first_needed, list_numbers
from streamomd.training.progress import note
from streamomd.training.sampling import sampled_rows
from streamomd.training.shard_views import view_shards
from streamomd.training.signals import StopRequest, raise_stopped
from streamomd.training.teaching import Schedule, Teaching, stream_times
from streamomd.training.training_step import learn_rows

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NONE_DUE = (1 << 63) - 1
"""The time when the next row is due if there is none."""


@dataclass(eq=False)
class DelayedRun(ExactRun):
    """A walk that predicts rows, with a second one that learns them later.

    predicts_all: whether rows are predicted that are not sampled, which arrive then, too.
    """

    predicts_all: ClassVar[bool] = False

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
        shards, before = rows_to_learn(self.model, self.shards, self.manager or self.recorded)
        # No commit while it reads: the first cursor is between two rows then.
        source = DelayedRun(self.model, shards, None, [], StopRequest(), self.connection)
        return Teacher(source, self.schedule, before, all_arrive=self.predicts_all)

    def _learn(self, piece: Piece[Rows], shard: int) -> None:
        """Predict a piece; before each row others are learned that are due when it arrives."""
        model, low, passed = self.model, 0, 0
        batch, held = self.rows_and_held_out(piece, shard)
        assert batch.time is not None
        known = model.metrics.by_time
        latest = NEVER if known is None or known.latest is None else known.latest
        stream = stream_times(batch.time, latest)
        while True:
            high = min(len(batch), low + self._rows_to_tell())
            high = self._end(stream, low, high) if low < len(batch) else high
            bad = batch.skipped.before(high)
            at = (
                (self.shard_name(shard), piece.row + low + passed),
                (self.shard_name(shard), piece.row + high + bad),
            )
            counted = batch.skipped.counts(passed, bad)
            out = None if held is None else held[low:high]
            self._count(batch.rows(low, high), counted, out, at, stream[low:high])
            model.cursor = Cursor(model.cursor.epoch, piece.position, at[1][1])
            low, passed = high, bad
            for watcher in self.watchers:
                watcher.update(model.metrics)
            if self.stop.signal:
                raise_stopped(self.stop, self.model, self.manager)
            if low == len(batch):
                return

    def rows_and_held_out(self, piece: Piece[Rows], shard: int) -> tuple[Batch, Mask | None]:
        """The rows of a piece that are sampled, and which of them are held out."""
        data, place = self.model.spec.data, self.place(shard)
        rows = range(piece.row, piece.row + piece.rows)
        batch = sampled_rows(data, self.model.plan, place, rows, piece.value.batch)
        return batch, rows_held_out(data, place, rows, batch.skipped, batch.time)

    def _end(self, stream: Times, low: int, high: int) -> int:
        """Where the rows from ``low`` on end that are counted together, at ``high`` at most."""
        return high

    def _count(
        self,
        batch: Batch,
        bad: NDArray[np.int64],
        held: Mask | None,
        at: tuple[Place, Place],
        stream: Times,
    ) -> None:
        """Predict and count rows. stream: the stream times when they arrive."""
        predict = partial(self.predict_rows, stream, self.model.metrics)
        learn_rows(self.model, batch, bad, held, at, predict=predict)

    def predict_rows(
        self, stream: Times, metrics: Metrics, batch: Batch, held: Mask | None
    ) -> tuple[Floats, Floats]:
        """Predict rows, and before each learn those that are due: see ``training_step.Predict``.

        stream: the stream times when they arrive. metrics: to whose sums their losses are added.
        """
        engine, state = self.model.engine, self.model.state
        margins = np.empty((len(batch), engine.layout.learners))
        losses, nothing = np.empty((len(batch), 2)), np.zeros(len(batch))  # is learned of them
        now, low = self.schedule.now(stream), 0
        while low < len(batch):
            due = self._teacher.learn_due(int(now[low]))
            high = int(np.searchsorted(now, due))
            with Stage("learn"):
                for begin, end in (
                    ((0, high - low),) if held is None else stretches_of(held[low:high])
                ):
                    some = slice(low + begin, low + end)
                    counted = metrics.held if held is not None and held[some.start] else metrics
                    assert counted is not None
                    rows = batch.rows(some.start, some.stop)
                    margins[some] = engine.predict(state, counted.current, rows)
            if engine.layout.block:  # losses depend on the rows learned by now
                given = (margins[low:high], batch.y[low:high], nothing[low:high])
                losses[low:high] = engine.row_losses(engine.rows_learned(state), *given)
            low = high
        if not engine.layout.block:
            losses = engine.row_losses(0.0, margins, batch.y, nothing)
        self._teacher.save()
        return margins, losses


def rows_to_learn(
    model: ModelData, shards: Dataset, recorded: CheckpointManager | None
) -> tuple[Dataset, int]:
    """The shards that the second cursor reads, and how many of the run are before them.

    recorded: whose ledger has the shards of the run. Those of an update come after shards that were
    predicted before it and are not all learned yet.
    """
    first = model.update.first
    if not model.update.of_new:
        return shards, 0
    assert recorded is not None
    assert isinstance(shards, ShardSet)
    ledger = recorded.ledger
    numbers = list_numbers(ledger, 0)
    before = bisect_left(numbers, first)
    at = min(before, bisect_left(numbers, first_needed(model, ledger)))
    if at == before:
        return shards, at
    data, facts = model.spec.data, [ledger.shards[number] for number in numbers[at:before]]
    note(f"{counted(len(facts), 'shard')} of rows that wait for their labels are read again")
    found = view_shards(find_list(data, model.plan, facts), data, model.plan, anywhere=True)
    found = with_places(found, model.holdout_by, recorded.shards)
    versions = {**found.versions, **shards.versions}
    return replace(shards, shards=(*found.shards, *shards.shards), versions=versions), at


def _places_among(skipped: Skipped, fewer: Skipped, rows: int) -> NDArray[np.int64]:
    """The places of rows among those of the same batch of which fewer are skipped."""
    some, more = (np.delete(np.arange(rows), one.places) for one in (skipped, fewer))
    return np.searchsorted(more, some)


class Teacher:
    """Reads the rows of a run again and learns them, from ``model.teaching`` on.

    run: of the shards that it reads, from the one with this number on. all_arrive: whether stream
    time is also that of rows that are not sampled.
    """

    def __init__(
        self, run: DelayedRun, schedule: Schedule, before: int, *, all_arrive: bool
    ) -> None:
        self._run, self._schedule, self._before = run, schedule, before
        self._all_arrive, self._latest = all_arrive, run.model.teaching.latest
        data, at = run.model.spec.data, run.model.teaching.cursor
        self._order = places(data.order, data.seed, len(run.shards), at.epoch)
        start = (at.place - before, at.row) if at.place >= before else (0, 0)
        self._pieces: Iterator[Piece[Rows]] = iter(run._source()(self._order, start))
        self._piece: Piece[Rows] | None = None
        self._batch: Batch
        self._stream = self._due = np.empty(0, np.int64)
        self._held: Mask | None = None
        self._low = self._saved = self._rows = self._values = 0
        self._sums = np.zeros(3)  # rows are counted where they are predicted
        self._margins = np.zeros((0, run.model.engine.layout.learners))

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
            piece, run = self._piece, self._run
            shard = self._order[piece.position]
            self._batch, self._held = run.rows_and_held_out(piece, shard)
            arrived = piece.value.batch if self._all_arrive else self._batch
            assert arrived.time is not None
            stream = stream_times(arrived.time, self._latest)
            self._latest = int(stream[-1]) if len(stream) else self._latest
            if arrived is not self._batch:
                stream = stream[_places_among(self._batch.skipped, arrived.skipped, piece.rows)]
            self._stream = stream
            self._due = self._schedule.due(self._stream)
            self._low = self._saved = 0
        return True

    def _learn(self, high: int) -> None:
        """Learn the rows of the piece before ``high``, except those that are held out."""
        model, low, held = self._run.model, self._low, self._held
        some, out = self._batch.rows(low, high), None if held is None else held[low:high]
        for begin, end in ((0, high - low),) if out is None else stretches_of(out):
            if out is not None and out[begin]:
                continue
            rows = own = some if end - begin == high - low else some.rows(begin, end)
            if model.class_weights is not None:
                rows = model.class_weights.weighted(model.metrics, rows)
            with Stage("learn"):
                self._margins = model.engine.learn(model.state, self._sums, rows)
            if model.spec.model.counts_first:
                model.metrics.count_first(model.engine.loss, self._margins, own.y, own.weight)
            self._rows += end - begin
            self._values += rows.values.size
        self._low = high
        if high == len(self._batch):
            self.save()

    @property
    def learned(self) -> int:
        """How many rows were learned."""
        return self._run.model.teaching.rows + self._rows

    def save(self) -> None:
        """Have the model's second cursor stand after the rows that were learned."""
        piece, model, low = self._piece, self._run.model, self._low
        if piece is None or low == self._saved:
            return
        before, skipped = model.teaching, self._batch.skipped
        name = self._run.shard_name(self._order[piece.position])
        end = piece.row + low + skipped.before(low)
        begin = piece.row + self._saved + skipped.before(self._saved)
        cursor = Cursor(before.cursor.epoch, self._before + piece.position, end)
        model.teaching = Teaching(cursor, int(self._stream[low - 1]), before.rows + self._rows)
        at = (name, begin), (name, end)
        model.guard.after(model.state, self._sums, self._margins, self._values, at)
        self._saved, self._rows, self._values = low, 0, 0

    def close(self) -> None:
        """Stop reading ahead."""
        if hasattr(self._pieces, "close"):
            self._pieces.close()


@dataclass(eq=False)
class BacktestRun(DelayedRun):
    """A walk that predicts the rows of each period by the model of its start."""

    predicts_all: ClassVar[bool] = True

    @property
    def figures(self) -> Backtest:
        """Of the periods."""
        assert self.model.metrics.backtest is not None
        return self.model.metrics.backtest

    @cached_property
    def schedule(self) -> Schedule:
        """When rows are learned: at the start of a period that begins after the gap."""
        return Schedule(round(self.figures.gap * 1e9) + 1, self.figures.length, self.figures.origin)

    def learn_epochs(self, epochs: int) -> None:
        """As ``DelayedRun``; the last period ends with the data."""
        super().learn_epochs(epochs)
        end_period(self.figures, self.model)

    def rows_and_held_out(self, piece: Piece[Rows], shard: int) -> tuple[Batch, Mask | None]:
        """All rows of a piece with their own weights: only the second cursor samples."""
        return piece.value.batch, None

    def _end(self, stream: Times, low: int, high: int) -> int:
        after = int(self.schedule.now(stream[low : low + 1])[0]) + self.schedule.length
        return min(high, int(np.searchsorted(stream, after)))

    def _count(
        self,
        batch: Batch,
        bad: NDArray[np.int64],
        held: Mask | None,
        at: tuple[Place, Place],
        stream: Times,
    ) -> None:
        model, figures = self.model, self.figures
        model.metrics.count_skipped(bad, model.spec.data.max_bad_rows)
        if batch.time is None or not len(batch):
            return
        model.metrics.read_times(batch.time)
        number = (int(stream[0]) - figures.origin) // figures.length
        if number != figures.number:
            end_period(figures, model)
            figures.number = number
            model.metrics.period = Metrics(model.spec.model.classifies)
            model.metrics.period.begin(0)
        metrics = model.metrics.period
        assert metrics is not None
        margins, _ = self.predict_rows(stream, metrics, batch, None)
        metrics.count(len(batch))
        with Stage("metrics"):
            engine = model.engine
            metrics.examine(engine.loss, engine.classes, margins, batch.y, batch.weight)
        model.metrics.current[...] = metrics.current + figures.finished
        model.metrics.count(len(batch))
        model.guard.predicted(metrics.current, margins, at)
