"""A sweep's walk over its shards: each piece of rows is learned by all, before the next."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NoReturn

from streamomd.core.batch import Batch, Times
from streamomd.core.counted import counted
from streamomd.core.errors import DataError, StoppedError, StreamomdError
from streamomd.core.finite import Place, between
from streamomd.core.phases import phase
from streamomd.core.threads import Threads
from streamomd.core.urls import shown
from streamomd.runs.delayed import DelayedRun, Teacher
from streamomd.runs.exact import ExactRun
from streamomd.runs.modes import learned_of, no_rows_learned
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.runs.sweep.batched import LearnerGroup, group_learners
from streamomd.runs.sweep.leaderboard import ExportedLearners, SweepWatcher, sweep_watcher
from streamomd.runs.sweep.learners import Sweep
from streamomd.runs.sweep.sweep_checkpoint import SweepCheckpoint
from streamomd.shards.cursor import Cursor
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training import offsets
from streamomd.training.class_threads import thread_count
from streamomd.training.holdout import rows_held_out, with_places
from streamomd.training.metrics.by_time import NEVER
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.row_stream import Source, cache_of, no_rows, rows_of
from streamomd.training.sampling import sampled_rows
from streamomd.training.signals import StopRequest
from streamomd.training.teaching import stream_times
from streamomd.training.training_step import Mask, Predict, begin_epoch


@dataclass(eq=False)
class SweepLoop:
    """One walk of a sweep over its shards, from its cursor on; its groups learn in threads.

    until: the row after which it ends with a commit, before the sweep is finished. whole: whether
    these are all learners of the sweep, so that the best of them is saved. delayed: their second
    cursors, with data.delay.
    """

    sweep: Sweep
    session: Session
    manager: SweepCheckpoint | None
    groups: list[LearnerGroup] = field(default_factory=list)
    until: float = math.inf
    whole: bool = True
    delayed: DelayedLearners | None = None

    def learn(
        self, reporting: Reporting, prefix: str = "", more: Sequence[SweepWatcher] = ()
    ) -> Sweep:
        """Learn the remaining rows, commit and report progress. prefix: of the learners' names in
        metrics. more: watchers."""
        sweep, before = self.sweep, self.sweep.rows
        self._side_by_side()
        began, compiled = time.perf_counter(), sweep.compile_seconds
        data, shards = sweep.lead.spec.data, self.session.shards
        expected = learned_of(shards.rows, data.held_every) * sweep.lead.spec.train.epochs
        if data.holds_out or data.sample:
            ledger = self.manager.shards if self.manager else ()
            shards = with_places(shards, sweep.lead.holdout_by, ledger)
            self.session = replace(self.session, rows=shards)
        watchers = [*more, *([] if reporting.quiet else [sweep_watcher(sweep, expected)])]
        if reporting.exported:
            watchers.append(ExportedLearners(sweep, expected, reporting.exported, prefix))
        try:
            models = [learner.model for learner in sweep.active]
            self.delayed = DelayedLearners(models, shards) if data.delay else None
            with Threads(thread_count(sweep.lead.spec.train)) as threads:
                finished = self._epochs(threads, watchers)
            if not finished and self.manager:
                self.manager.commit(self.groups)
        except StreamomdError as error:
            if self.manager:
                self.manager.failed(error)
            raise
        finally:
            for one in watchers:
                one.close()
            if self.delayed:
                self.delayed.close()
        for group in self.groups:
            group.split()
        if not finished:
            return sweep
        last = {learner.model: learner.model.state.problem() for learner in sweep.active}
        sweep.drop_diverged({model: problem for model, problem in last.items() if problem})
        if not sweep.rows:
            raise DataError(no_rows_learned(sweep.lead.metrics))
        if self.manager:
            self.manager.finish(self.session if self.whole else None)
        sweep.finished = True
        again = sweep.compile_seconds - compiled  # after learners were dropped
        sweep.seconds = max(time.perf_counter() - began - again, 1e-9)
        sweep.rows_per_second = (sweep.rows - before) / sweep.seconds
        return sweep

    def _side_by_side(self) -> None:
        """Those that learn, in as few loops as may be, which are compiled."""
        for group in self.groups:
            group.split()
        models = [learner.model for learner in self.sweep.active]
        threads = thread_count(self.sweep.lead.spec.train)
        self.groups = group_learners(models, threads)
        empty = no_rows(self.sweep.lead.plan, self.session.shards)
        for group in self.groups:
            group.divide(self.session.shards.rows, threads // len(self.groups))
            before = group.engine.compile_seconds
            with phase("compiling"):
                group.engine.warm(group.state, empty, learning=True)
            self.sweep.compile_seconds += group.engine.compile_seconds - before

    def _epochs(self, threads: Threads, watchers: Sequence[SweepWatcher]) -> bool:
        """Learn the remaining rows; False once ``until`` is reached."""
        sweep, spec = self.sweep, self.sweep.lead.spec
        cache = cache_of(spec.data)
        while sweep.cursor.epoch < spec.train.epochs:
            if sweep.rows >= self.until:
                return False
            at = sweep.cursor
            for learner in sweep.active if at.epoch >= 0 else ():
                begin_epoch(learner.model, self.session.shards.unread_rows)
            order = places(spec.data.order, spec.data.seed, len(self.session.shards), at.epoch)
            for piece in rows_of(
                sweep.lead.plan,
                self.session.shards,
                order,
                start=(at.place, at.row),
                names=sweep.lead.names,
                ahead_bytes=spec.train.prefetch << 20,
                cache=cache,
                digests=sweep.lead.digests,
            ):
                self._learn(piece, order[piece.position], threads, watchers)
                if sweep.rows >= self.until:
                    return False
            self._move(Cursor(at.epoch + 1))
        return True

    def _learn(
        self,
        piece: Piece[Rows],
        shard: int,
        threads: Threads,
        watchers: Sequence[SweepWatcher],
    ) -> None:
        """Learn a piece, cut where a commit, a halving or a line is due: cuts change no bit."""
        sweep, low, passed = self.sweep, 0, 0
        data = sweep.lead.spec.data
        rows_of_piece = range(piece.row, piece.row + piece.rows)
        place = self.session.shards.shards[shard].place
        batch = sampled_rows(data, sweep.lead.plan, place, rows_of_piece, piece.value.batch)
        if sweep.cursor.epoch == 0 and not sweep.rows:
            specs = [learner.model.spec for learner in sweep.active]
            front = batch.first_columns(len(sweep.lead.plan.numeric), offsets.MOST)
            offsets.report_offsets(specs, sweep.lead.plan, front)
        held = rows_held_out(data, place, rows_of_piece, batch.skipped, batch.time)
        stream = self.delayed.stream(sweep.lead, batch) if self.delayed else None
        while True:
            halving = sweep.next_halving
            high = min(len(batch), low + self._rows_to_report(watchers))
            bad = batch.skipped.before(high)
            rows, skipped = batch.rows(low, high), batch.skipped.counts(passed, bad)
            out = None if held is None else held[low:high]
            if sweep.cursor.epoch < 0:
                observing = [group for group in self.groups if group.models[0].cursor.epoch < 0]
                threads.run([partial(group.observe, rows, out) for group in observing])
            else:
                for learner in sweep.active:
                    learner.model.metrics.count_skipped(skipped, data.max_bad_rows)
                url = self.session.shards.shards[shard].url
                at = (url, piece.row + low + passed), (url, piece.row + high + bad)
                due = None if stream is None else stream[low:high]
                calls = [self._call(group, rows, out, due) for group in self.groups]
                self._drop_diverged(threads.run(calls), at)
            self._move(Cursor(sweep.cursor.epoch, piece.position, piece.row + high + bad))
            low, passed = high, bad
            self._after_rows(watchers, halve=sweep.rows >= halving)
            if low == len(batch) or sweep.rows >= self.until:
                return

    def _call(
        self, group: LearnerGroup, rows: Batch, held: Mask | None, stream: Times | None
    ) -> Callable[[], dict[ModelData, str]]:
        """What a group does with rows. stream: the times when they arrive, if labels come later."""
        if self.delayed is None or stream is None:
            return partial(group.learn, rows, held)
        return partial(group.learn, rows, held, self.delayed.predict(group.models[0], stream))

    def _drop_diverged(
        self, found: Sequence[dict[ModelData, str]], rows: tuple[Place, Place]
    ) -> None:
        """Drop what diverged in these rows; the others go on without it, in loops of their own."""
        problems = {
            model: problem if " after row" in problem else f"{problem} after {between(*rows)}"
            for one in found
            for model, problem in one.items()
        }
        if problems:
            self.sweep.drop_diverged(problems)
            self._side_by_side()

    def _rows_to_report(self, watchers: Sequence[SweepWatcher]) -> int:
        sweep = self.sweep
        if sweep.cursor.epoch < 0:  # none is learned: what is due waits
            return 1 << 62
        due = [sweep.lead.metrics.next_point, sweep.next_halving, self.until]
        due += [one.next_row for one in watchers]
        due += [self.manager.next_row] if self.manager else []
        return int(min(2.0**62, *due)) - sweep.rows

    def _move(self, to: Cursor) -> None:
        """Those that learn stand at another row; who does not look at them first waits at 0."""
        at, self.sweep.cursor = self.sweep.cursor, to
        for learner in self.sweep.active:
            if learner.model.cursor.epoch == at.epoch:
                learner.model.cursor = to

    def _after_rows(self, watchers: Sequence[SweepWatcher], *, halve: bool) -> None:
        manager, sweep = self.manager, self.sweep
        if self.delayed:
            self.delayed.forget([learner.model for learner in sweep.active])
        if halve:
            worse = sweep.drop_half()
            note(f"dropped after row {sweep.rows:,}: {counted(len(worse), 'learner')}")
        for one in watchers:  # of a task, one reads the signal
            one.update()
        signal = self.session.stop.signal
        if manager and (halve or signal or manager.is_due(sweep.rows)):
            manager.commit(self.groups)
        if halve or sum(len(group.models) for group in self.groups) != len(sweep.active):
            self._side_by_side()
        if signal:
            self._leave()

    def _leave(self) -> NoReturn:
        saved = "nothing was saved (checkpoint none)"
        if self.manager:
            place = shown(self.sweep.url)
            saved = f"commit {self.sweep.sequence}; resume with: streamomd resume {place}"
        text = f"stopped after row {self.sweep.rows:,}: {saved}"
        raise StoppedError(text, signal=self.session.stop.signal)


@dataclass(eq=False)
class DelayedLearner(DelayedRun):
    """The second cursor of a learner. pieces: what it reads."""

    pieces: Iterator[Piece[Rows]] | None = None

    def _source(self) -> Source:
        assert self.pieces is not None
        pieces = self.pieces
        return lambda order, start: pieces

    @cached_property
    def _teacher(self) -> Teacher:
        return Teacher(self, self.schedule, 0, all_arrive=self.predicts_all)


class DelayedLearners:
    """The second cursors of models that are at the same row."""

    def __init__(self, models: Sequence[ModelData], shards: ShardSet) -> None:
        lead = models[0]
        data, at = lead.spec.data, lead.teaching.cursor
        order = places(data.order, data.seed, len(shards), at.epoch)
        source = ExactRun(lead, shards, None, [], StopRequest())
        self._pieces = source._here(order, (at.place, at.row))
        self._found: deque[Piece[Rows]] = deque()
        self._first, self._lock = 0, threading.Lock()
        self._at = dict.fromkeys(models, 0)
        self._runs = {
            model: DelayedLearner(model, shards, None, [], StopRequest(), pieces=self._read(model))
            for model in models
        }

    def stream(self, model: ModelData, batch: Batch) -> Times:
        """The stream times when rows arrive, after those that the model has predicted."""
        assert batch.time is not None
        known = model.metrics.by_time
        latest = NEVER if known is None or known.latest is None else known.latest
        return stream_times(batch.time, latest)

    def predict(self, model: ModelData, stream: Times) -> Predict:
        """Of rows that arrive at these stream times, see ``DelayedRun.predict_rows``."""
        return partial(self._runs[model].predict_rows, stream, model.metrics)

    def forget(self, models: Sequence[ModelData]) -> None:
        """Drop the pieces that all of these models have read."""
        low = min((self._at[model] for model in models), default=self._first)
        for _ in range(low - self._first):
            self._found.popleft()
        self._first = max(self._first, low)

    def close(self) -> None:
        """Stop reading ahead."""
        for run in self._runs.values():
            run._teacher.close()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def _read(self, model: ModelData) -> Iterator[Piece[Rows]]:
        """The pieces in order. Learners may be in threads; the first one that needs a piece reads
        it."""
        while True:
            with self._lock:
                at = self._at[model] - self._first
                if at == len(self._found):
                    piece = next(self._pieces, None)
                    if piece is None:
                        return
                    self._found.append(piece)
                self._at[model] += 1
                piece = self._found[at]
            yield piece
