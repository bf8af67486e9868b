"""A sweep's walk over its shards: each piece of rows is learned by all, before the next."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from streamomd.core.batch import Batch, Times
from streamomd.core.errors import DataError, StoppedError, StreamomdError
from streamomd.core.finite import Place, between
from streamomd.core.run_events import phase
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.engine.divided import Threads
from streamomd.runs.delayed import Teacher, arrival_times, rows_to_teach
from streamomd.runs.modes import learned_of, no_rows_learned
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.runs.sweep.batched import LearnerGroup, group_learners
from streamomd.runs.sweep.leaderboard import ExportedLearners, SweepWatcher, sweep_watcher
from streamomd.runs.sweep.learners import Sweep
from streamomd.runs.sweep.sweep_checkpoint import SweepCheckpoint
from streamomd.runs.walk import NEVER_DUE, Learner, Part, Parts, local_rows, parts_of, walk
from streamomd.shards.order import Cursor
from streamomd.shards.shard import ShardSet
from streamomd.training.holdout import with_places
from streamomd.training.metrics import Counts
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.row_checks import MOST, report_offsets
from streamomd.training.row_stream import cache_of, no_rows
from streamomd.training.run_records import Schedule
from streamomd.training.training_step import Mask, Predict, begin_epoch
from streamomd.training.training_threads import thread_count


@dataclass(eq=False)
class SweepLoop:
    """One walk of a sweep over its shards, from its cursor on; its groups learn in threads.

    until: the row after which it ends with a commit, before the sweep is finished. whole: whether
    these are all learners of the sweep, so that the best of them is saved. delayed: their second
    cursors, with data.delay; delayed, watchers and threads are there while it learns.
    """

    sweep: Sweep
    session: Session
    manager: SweepCheckpoint | None
    groups: list[LearnerGroup] = field(default_factory=list)
    until: float = math.inf
    whole: bool = True
    delayed: DelayedLearners | None = None
    watchers: list[SweepWatcher] = field(default_factory=list)
    threads: Threads = field(init=False)
    _halving: float = math.inf

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
        self.watchers = [*more, *([] if reporting.quiet else [sweep_watcher(sweep, expected)])]
        if reporting.exported:
            self.watchers.append(ExportedLearners(sweep, expected, reporting.exported, prefix))
        try:
            models = [learner.model for learner in sweep.active]
            self.delayed = DelayedLearners(models, shards) if data.delay else None
            with Threads(thread_count(sweep.lead.spec.train)) as self.threads:
                finished = self._epochs()
            if not finished and self.manager:
                self.manager.commit(self.groups)
        except StreamomdError as error:
            if self.manager:
                self.manager.failed(error)
            raise
        finally:
            for watcher in self.watchers:
                watcher.close()
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

    def _epochs(self) -> bool:
        """Learn the remaining rows; False once ``until`` is reached."""
        sweep, spec, shards = self.sweep, self.sweep.lead.spec, self.session.shards
        cache = cache_of(spec.data)
        while sweep.cursor.epoch < spec.train.epochs:
            if sweep.rows >= self.until:
                return False
            at = sweep.cursor
            for learner in sweep.active if at.epoch >= 0 else ():
                begin_epoch(learner.model, shards.unread_rows)
            source = partial(local_rows, sweep.lead, shards, cache)
            if not walk(parts_of(sweep.lead, shards, source, at), self):
                return False
            self._move(Cursor(at.epoch + 1))
        return True

    def begin_part(self, part: Part) -> None:
        """Report columns far from 0 in the first one."""
        sweep = self.sweep
        if sweep.cursor.epoch == 0 and not sweep.rows:
            specs = [learner.model.spec for learner in sweep.active]
            front = part.batch.first_columns(len(sweep.lead.plan.numeric), MOST)
            report_offsets(specs, sweep.lead.plan, front)

    def most(self, part: Part, low: int) -> int:
        """Rows up to where a commit, a halving or a line is due."""
        sweep = self.sweep
        if sweep.cursor.epoch < 0:  # none is learned: what is due waits
            return NEVER_DUE
        due = [sweep.lead.metrics.next_point, sweep.next_halving, self.until]
        due += [one.next_row for one in self.watchers]
        due += [self.manager.next_row] if self.manager else []
        return int(min(float(NEVER_DUE), *due)) - sweep.rows

    def learner(self) -> Learner:
        """Have all groups learn rows, or observe them."""
        return self._learn if self.sweep.cursor.epoch >= 0 else self._observe

    def _observe(
        self, rows: Batch, skipped: Counts, held: Mask | None, at: tuple[Place, Place]
    ) -> None:
        observing = [group for group in self.groups if group.models[0].cursor.epoch < 0]
        self.threads.run([partial(group.observe, rows, held) for group in observing])

    def _learn(
        self, rows: Batch, skipped: Counts, held: Mask | None, at: tuple[Place, Place]
    ) -> None:
        sweep = self.sweep
        self._halving = sweep.next_halving
        for learner in sweep.active:
            learner.model.metrics.count_skipped(skipped, sweep.lead.spec.data.max_bad_rows)
        stream = arrival_times(sweep.lead, rows) if self.delayed else None
        calls = [self._call(group, rows, held, stream) for group in self.groups]
        self._drop_diverged(self.threads.run(calls), at)

    def after(self, cursor: Cursor) -> bool:
        """Move the cursors, halve, report, and commit what is due; False at ``until``."""
        self._move(cursor)
        self._after_rows(halve=self.sweep.rows >= self._halving)
        return self.sweep.rows < self.until

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

    def _move(self, to: Cursor) -> None:
        """Those that learn stand at another row; who does not look at them first waits at 0."""
        at, self.sweep.cursor = self.sweep.cursor, to
        for learner in self.sweep.active:
            if learner.model.cursor.epoch == at.epoch:
                learner.model.cursor = to

    def _after_rows(self, *, halve: bool) -> None:
        manager, sweep = self.manager, self.sweep
        if self.delayed:
            self.delayed.forget([learner.model for learner in sweep.active])
        if halve:
            worse = sweep.drop_half()
            note(f"dropped after row {sweep.rows:,}: {counted(len(worse), 'learner')}")
        for watcher in self.watchers:  # of a task, one reads the signal
            watcher.update()
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


class DelayedLearners:
    """The second cursors of models that are at the same row."""

    def __init__(self, models: Sequence[ModelData], shards: ShardSet) -> None:
        lead = models[0]
        source = partial(local_rows, lead, shards, cache_of(lead.spec.data))
        self._parts = rows_to_teach(lead, shards, source)
        self._found: deque[Part] = deque()
        self._first, self._lock = 0, threading.Lock()
        self._at = dict.fromkeys(models, 0)
        schedule = Schedule(lead.spec.data.delay_ns)
        self._teachers = {model: Teacher(model, self._read(model), schedule) for model in models}

    def predict(self, model: ModelData, stream: Times) -> Predict:
        """Returns what predicts rows that arrive at these stream times, see ``Teacher.predict``."""
        return partial(self._teachers[model].predict, stream, model.metrics)

    def forget(self, models: Sequence[ModelData]) -> None:
        """Drop the parts that all of these models have read."""
        low = min((self._at[model] for model in models), default=self._first)
        for _ in range(low - self._first):
            self._found.popleft()
        self._first = max(self._first, low)

    def close(self) -> None:
        """Stop reading ahead."""
        for teacher in self._teachers.values():
            teacher.close()
        self._parts.close()

    def _read(self, model: ModelData) -> Parts:
        """The parts in order. Learners may be in threads; the first one that needs a part reads
        it."""
        while True:
            with self._lock:
                at = self._at[model] - self._first
                if at == len(self._found):
                    part = next(self._parts, None)
                    if part is None:
                        return
                    self._found.append(part)
                self._at[model] += 1
                part = self._found[at]
            yield part
