"""Exact mode where labels come later: a row is predicted when it arrives, and learned afterwards.

Two cursors walk the same shards. The first predicts rows and counts them. The second reads them
again and learns those that are due (``training.run_records``), so that no row waits in memory or
in a commit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, Floats, Skipped, Times
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.core.wording import counted
from streamomd.runs.walk import ExactRun, Learner, Part, Parts, parts_of
from streamomd.shards.order import Cursor, Dataset
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.holdout import stretches_of, with_places
from streamomd.training.metrics import Counts, Metrics
from streamomd.training.metrics.by_time import NEVER, Backtest
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import end_period
from streamomd.training.open_checkpoint import first_needed, list_numbers
from streamomd.training.progress import note
from streamomd.training.row_stream import Source, view_shards
from streamomd.training.run_records import Schedule, Teaching, stream_times
from streamomd.training.signals import StopRequest
from streamomd.training.training_step import learn_rows
from streamomd.training.url_trust import find_list

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
        """Learns as ``ExactRun`` does, but for rows that are not due at the end of the data."""
        try:
            super().learn_epochs(epochs)
        finally:
            if "_teacher" in self.__dict__:
                self._teacher.close()

    @cached_property
    def _teacher(self) -> Teacher:
        model = self.model
        shards, before = rows_to_learn(model, self.shards, self.manager or self.recorded)
        # No commit while it reads: the first cursor is between two rows then.
        source = ExactRun(model, shards, None, [], StopRequest(), self.connection)._source()
        parts = rows_to_teach(model, shards, source, before)
        return Teacher(model, parts, self.schedule, before, all_arrive=not self.draws)

    def begin_part(self, part: Part) -> None:
        """Nothing: rows are learned later."""

    def learner(self) -> Learner:
        """Predict rows and count them."""
        return self._predict

    def _predict(
        self, rows: Batch, skipped: Counts, held: Mask | None, at: tuple[Place, Place]
    ) -> None:
        model = self.model
        predict = partial(self._teacher.predict, arrival_times(model, rows), model.metrics)
        learn_rows(model, rows, skipped, held, at, predict=predict)


def arrival_times(model: ModelData, rows: Batch) -> Times:
    """The stream times when rows arrive, after those that the model has predicted."""
    assert rows.time is not None
    known = model.metrics.by_time
    latest = NEVER if known is None or known.latest is None else known.latest
    return stream_times(rows.time, latest)


def rows_to_teach(model: ModelData, shards: Dataset, source: Source, before: int = 0) -> Parts:
    """The parts of these shards from the model's second cursor on, ``before`` of the run's being
    before them."""
    at = model.teaching.cursor
    inside = at.place >= before
    start = replace(at, place=at.place - before) if inside else Cursor(at.epoch)
    return parts_of(model, shards, source, start)


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
    first_place = min(before, bisect_left(numbers, first_needed(model, ledger)))
    if first_place == before:
        return shards, first_place
    data, facts = model.spec.data, [ledger.shards[number] for number in numbers[first_place:before]]
    note(f"{counted(len(facts), 'shard')} of rows that wait for their labels are read again")
    earlier = find_list(data, model.plan, facts, ledger.shards)
    earlier = view_shards(earlier, data, model.plan, anywhere=True)
    earlier = with_places(earlier, model.holdout_by, recorded.shards)
    versions = {**earlier.versions, **shards.versions}
    return replace(shards, shards=(*earlier.shards, *shards.shards), versions=versions), first_place


def _places_among(skipped: Skipped, fewer: Skipped, rows: int) -> NDArray[np.int64]:
    """The places of rows among those of the same batch of which fewer are skipped."""
    some, more = (np.delete(np.arange(rows), one.places) for one in (skipped, fewer))
    return np.searchsorted(more, some)


class Teacher:
    """Learns the rows of a run when they are due, from ``model.teaching`` on, and predicts others.

    parts: the rows from there on. before: how many shards of the run are before theirs. all_arrive:
    whether stream time is also that of rows that are not sampled.
    """

    def __init__(
        self, model: ModelData, parts: Parts, schedule: Schedule, before: int = 0, *,
        all_arrive: bool = False,
    ) -> None:  # fmt: skip
        self._model, self._parts, self._schedule, self._before = model, parts, schedule, before
        self._all_arrive, self._latest = all_arrive, model.teaching.latest
        self._part: Part | None = None
        self._stream = self._due = np.empty(0, np.int64)
        self._low = self._saved = self._rows = self._values = 0
        self._sums = np.zeros(3)  # rows are counted where they are predicted
        self._margins = np.zeros((0, model.engine.layout.learners))

    def predict(
        self, stream: Times, metrics: Metrics, batch: Batch, held: Mask | None
    ) -> tuple[Floats, Floats]:
        """Predict rows, and before each learn those that are due: see ``training_step.Predict``.

        stream: the stream times when they arrive. metrics: to whose sums their losses are added.
        """
        engine, state = self._model.engine, self._model.state
        margins = np.empty((len(batch), engine.layout.learners))
        losses, nothing = np.empty((len(batch), 2)), np.zeros(len(batch))  # is learned of them
        now, low = self._schedule.now(stream), 0
        while low < len(batch):
            due = self.learn_due(int(now[low]))
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
        self.save()
        return margins, losses

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
            self._part = part = next(self._parts, None)
            if part is None:
                return False
            arrived = part.piece.value.batch if self._all_arrive else part.batch
            assert arrived.time is not None
            stream = stream_times(arrived.time, self._latest)
            self._latest = int(stream[-1]) if len(stream) else self._latest
            if arrived is not part.batch:
                skipped = part.batch.skipped, arrived.skipped
                stream = stream[_places_among(*skipped, part.piece.rows)]
            self._stream = stream
            self._due = self._schedule.due(stream)
            self._low = self._saved = 0
        return True

    def _learn(self, high: int) -> None:
        """Learn the rows of the part before ``high``, except those that are held out."""
        assert self._part is not None
        model, part, low = self._model, self._part, self._low
        some, held = part.batch.rows(low, high), part.held
        out = None if held is None else held[low:high]
        for begin, end in ((0, len(some)),) if out is None else stretches_of(out):
            if out is not None and out[begin]:
                continue
            rows = own = some if end - begin == len(some) else some.rows(begin, end)
            if model.class_weights is not None:
                rows = model.class_weights.weighted(model.metrics, rows)
            with Stage("learn"):
                self._margins = model.engine.learn(model.state, self._sums, rows)
            if model.spec.model.counts_first:
                model.metrics.count_first(model.engine.loss, self._margins, own.y, own.weight)
            self._rows += end - begin
            self._values += rows.values.size
        self._low = high
        if high == len(part.batch):
            self.save()

    def save(self) -> None:
        """Have the model's second cursor stand after the rows that were learned."""
        part, model, low = self._part, self._model, self._low
        if part is None or low == self._saved:
            return
        before, some = model.teaching, part.stretch(self._saved, low)
        cursor = replace(some.cursor, place=self._before + some.cursor.place)
        model.teaching = Teaching(cursor, int(self._stream[low - 1]), before.rows + self._rows)
        model.guard.after(model.state, self._sums, self._margins, self._values, some.at)
        self._saved, self._rows, self._values = low, 0, 0

    def close(self) -> None:
        """Stop reading ahead."""
        self._parts.close()


@dataclass(eq=False)
class BacktestRun(DelayedRun):
    """A walk that predicts the rows of each period by the model of its start."""

    draws: ClassVar[bool] = False  # only the second cursor samples

    @property
    def figures(self) -> Backtest:
        """The figures of the periods."""
        assert self.model.metrics.backtest is not None
        return self.model.metrics.backtest

    @cached_property
    def schedule(self) -> Schedule:
        """When rows are learned: at the start of a period that begins after the gap."""
        return Schedule(round(self.figures.gap * 1e9) + 1, self.figures.length, self.figures.origin)

    def learn_epochs(self, epochs: int) -> None:
        """Learns as ``DelayedRun`` does; the last period ends with the data."""
        super().learn_epochs(epochs)
        end_period(self.figures, self.model)

    def most(self, part: Part, low: int) -> int:
        """Returns what ``ExactRun`` does, but not more rows than to the end of the period."""
        rows = part.batch.rows(low, min(len(part.batch), low + super().most(part, low)))
        if not len(rows):
            return 1
        stream = arrival_times(self.model, rows)
        after = int(self.schedule.now(stream[:1])[0]) + self.schedule.length
        return int(np.searchsorted(stream, after))

    def _predict(
        self, rows: Batch, skipped: Counts, held: Mask | None, at: tuple[Place, Place]
    ) -> None:
        """Predicts rows of one period, and counts them in the period's figures."""
        model, figures = self.model, self.figures
        model.metrics.count_skipped(skipped, model.spec.data.max_bad_rows)
        if rows.time is None or not len(rows):
            return
        stream = arrival_times(model, rows)
        model.metrics.read_times(rows.time)
        number = (int(stream[0]) - figures.origin) // figures.length
        if number != figures.number:
            end_period(figures, model)
            figures.number = number
            model.metrics.period = Metrics(model.spec.model.classifies)
            model.metrics.period.begin(0)
        metrics = model.metrics.period
        assert metrics is not None
        margins, _ = self._teacher.predict(stream, metrics, rows, None)
        metrics.count(len(rows))
        with Stage("metrics"):
            engine = model.engine
            metrics.examine(engine.loss, engine.classes, margins, rows.y, rows.weight)
        model.metrics.current[...] = metrics.current + figures.finished
        model.metrics.count(len(rows))
        model.guard.predicted(metrics.current, margins, at)
