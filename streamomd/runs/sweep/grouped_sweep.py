"""A sweep on a cluster: groups of its learners are tasks, which wait for each other to halve.

The groups of a division learn up to the next halving, or to the last row. Then the sweep drops the
worse half, as it does in one process, and divides the others again.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.core.errors import CorruptionError, StoppedError, StreamomdError
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.runs.modes import learned_of
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.runs.sweep.group_run import SentGroup, learn_group_on_worker, run_group
from streamomd.runs.sweep.leaderboard import ExportedLearners, SweepWatcher, sweep_watcher
from streamomd.runs.sweep.learners import Division, Learner, Sweep
from streamomd.runs.sweep.sweep_checkpoint import SweepCheckpoint, load_sweep, take_over_sweep
from streamomd.runs.worker_task import SentSettings
from streamomd.shards.order import Cursor
from streamomd.shards.shard import Digests
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.open_checkpoint import open_ledger
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest


@dataclass(eq=False)
class GroupedSweep:
    """A sweep whose groups are tasks on a cluster. session: of its lead, with its shards."""

    sweep: Sweep
    session: Session
    checkpoint: SweepCheckpoint
    connection: Any
    sent: SentSettings
    _reported: set[str] = field(default_factory=set)

    def learn(self, reporting: Reporting, prefix: str = "") -> Sweep:
        """Learn the remaining rows, commit and report progress; the sweep, finished. prefix: of the
        learners' names in metrics.

        A StoppedError, of a signal, is raised once all groups have committed.
        """
        from streamomd.distributed.scheduler import report_lost_scheduler

        sweep, before = self.sweep, self.sweep.rows
        began, finished = time.perf_counter(), False
        watchers = self._watchers(reporting, prefix)
        try:
            with report_lost_scheduler(self.connection, sweep.url):
                while not finished:
                    if sweep.division is None:
                        self._divide()
                    finished = self._learn_division(watchers)
        except StreamomdError as error:
            self.checkpoint.failed(error)
            raise
        finally:
            for watcher in watchers:
                watcher.close()
        load_learners(sweep, self.sent.options[1])
        self.checkpoint.finish(self.session)
        sweep.seconds = max(time.perf_counter() - began, 1e-9)
        sweep.rows_per_second = (sweep.rows - before) / sweep.seconds
        return sweep

    def _watchers(self, reporting: Reporting, prefix: str) -> list[SweepWatcher]:
        spec, rows = self.sweep.lead.spec, self.session.shards.rows
        expected = learned_of(rows, spec.data.held_every) * spec.train.epochs
        found = [] if reporting.quiet else [sweep_watcher(self.sweep, expected)]
        if reporting.exported:
            given = (self.sweep, expected, reporting.exported, prefix)
            found.append(ExportedLearners(*given))
        return found

    def _divide(self) -> None:
        """Commit groups of the learners that are left, one for each worker."""
        from streamomd.distributed.worker_monitor import monitor_of

        sweep = self.sweep
        workers = monitor_of(self.connection).wait_for_usable(self.connection, self._refuse_stopped)
        until, names = sweep.next_halving, divide(sweep.active, len(workers))
        stage = uuid.uuid4().hex[:8]
        self.checkpoint.begin_groups(Division(stage, 0 if until == math.inf else int(until), names))
        most = counted(max(len(group) for group in names), "learner")
        groups, there = counted(len(names), "group"), counted(len(workers), "worker")
        note(f"{groups} of up to {most} on {there}; each group reads every row once")

    def _refuse_stopped(self) -> None:
        if self.session.stop.signal:
            raise self._stopped("stopped while no worker learns")

    def _stopped(self, what: str) -> StoppedError:
        command = f"streamomd resume {shown(self.sweep.url)}"
        text = f"{what}: the last commits are intact; resume, with --scheduler or here: {command}"
        return StoppedError(text, signal=self.session.stop.signal)

    def _learn_division(self, watchers: Sequence[SweepWatcher]) -> bool:
        """Have tasks learn the groups up to the row at which they wait; whether it is the last."""
        from streamomd.distributed.remote_learner import (
            SubmittedLearner,
            learner_results,
            update_metrics,
        )

        sweep, division, stop = self.sweep, self.sweep.division, self.session.stop
        assert division is not None
        models = {learner.name: learner.model for learner in sweep.learners}

        def take(figures: Mapping[str, Any]) -> None:
            for name, own in figures["learners"].items():
                update_metrics(models[name].metrics, own)

        def submitted(group: SentGroup) -> SubmittedLearner:
            counter = Metrics(sweep.lead.metrics.classifies)
            given = (self.connection, learn_group_on_worker, sweep.url, group, counter, (), stop)
            return SubmittedLearner(*given, group.title, take, self._reported)

        def waiting() -> None:
            for watcher in watchers:
                watcher.update()

        tasks = [submitted(group) for group in sent_groups(division, self.sent)]
        try:
            results = learner_results(self.connection, tasks, waiting)
        except StoppedError:
            if not stop.signal:
                raise
            raise self._stopped(f"stopped after row {sweep.rows:,}") from None
        for result in results:
            take_result(sweep, result)
        sweep.refuse_all_diverged()
        waiting()
        sweep.compile_seconds += max(result["compile_seconds"] for result in results)
        finished = all(learner.model.finished for learner in sweep.active)
        if not finished:
            join_groups(sweep, self.checkpoint)
        return finished


def sent_groups(division: Division, settings: SentSettings) -> list[SentGroup]:
    """What the task of each group gets."""
    count = len(division.names)
    return [
        SentGroup(
            settings, division.directory(at), names, division.until, f"group {at + 1} of {count}"
        )
        for at, names in enumerate(division.names)
    ]


def take_result(sweep: Sweep, result: Mapping[str, Any]) -> None:
    """Note where the learners of a group are, and which of them diverged."""
    learners = {learner.name: learner for learner in sweep.learners}
    for name, sequence in result["sequences"].items():
        model = learners[name].model
        model.sequence, model.finished = sequence, result["finished"]
        model.cursor = Cursor.from_json(result["cursor"])
        learners[name].dropped, learners[name].diverged = result["dropped"].get(name, (0, ""))


def join_groups(sweep: Sweep, checkpoint: SweepCheckpoint) -> None:
    """Commit the sweep when all groups are at one row; drop the worse half if it is time.

    Raises CorruptionError if they are not.
    """
    division, cursor = sweep.division, common_cursor([one.model for one in sweep.active])
    assert division is not None
    if cursor is None:
        raise CorruptionError(f"the groups of {shown(sweep.url)} are not at the same row")
    sweep.cursor = cursor
    if 0 < division.until <= sweep.rows and len(sweep.active) > 1:
        worse = sweep.drop_half()
        note(f"dropped after row {sweep.rows:,}: {counted(len(worse), 'learner')}")
    checkpoint.join_groups()


def common_cursor(models: Sequence[ModelData]) -> Cursor | None:
    """Where a sweep of these models is; None if they are not at one row.

    Before the first row, some may observe the rows while the others wait.
    """
    cursors = {model.cursor for model in models}
    observing = {cursor for cursor in cursors if cursor.epoch < 0}
    waiting = cursors - observing
    alike = len({model.metrics.total_rows for model in models}) == 1
    if not alike or len(observing) > 1 or len(waiting) > 1:
        return None
    return min(cursors) if not observing or waiting <= {Cursor()} else None


def join_here(url: str, settings: SentSettings, stop: StopRequest) -> None:
    """Bring the groups of a sweep to one row in this process, one after the other, and commit it.

    Those that are behind continue to the foremost, or, where that is not the same place in the
    shards, all of them to the row at which they wait.
    """
    diverged: dict[str, tuple[int, str]] = {}

    def open_session(lead: ModelData, loaded: Loaded) -> Session:
        facts = open_ledger(loaded)[1].shards
        return Session.recorded(lead, facts=facts, stop=stop)

    options = settings.options[1]

    def load() -> tuple[Sweep, SweepCheckpoint]:
        sweep, loaded, _ = load_sweep(url, options, lambda spec: True)
        for learner in sweep.learners:
            settings.change(learner.model)
            if learner.name in diverged:
                learner.dropped, learner.diverged = diverged[learner.name]
        sweep.refuse_all_diverged()
        return sweep, take_over_sweep(sweep, loaded)

    sweep, checkpoint = load()
    division, models = sweep.division, [learner.model for learner in sweep.active]
    assert division is not None
    foremost = max(model.metrics.total_rows for model in models)
    first = 0 if any(model.finished for model in models) else foremost
    for until in dict.fromkeys((first or division.until, division.until)):
        if common_cursor([learner.model for learner in sweep.active]) is not None:
            break
        for group in sent_groups(division, settings):
            joined = run_group(url, replace(group, until=until), open_session)
            if not joined.active:  # which no commit of the group records
                diverged |= {
                    member.name: (member.dropped, member.diverged) for member in joined.learners
                }
        sweep, checkpoint = load()
    join_groups(sweep, checkpoint)


def load_learners(sweep: Sweep, storage_options: Mapping[str, Any] | None) -> None:
    """Load the commits that groups made of the learners; states are read when they are needed."""
    commits = {}
    for learner in sweep.learners:
        before, url = learner.model, f"{sweep.url}/learners/{learner.name}"
        model, commits[learner.name] = load_model(
            url, storage_options=storage_options, at=before.sequence, remote=lambda spec: True
        )
        model.spec, model.recorded = before.spec, before.recorded
        learner.model = model
    best = sweep.ranked()[0]  # which is saved once more
    ledger = open_ledger(commits[best.name])[1]
    best.model.digests = Digests(ledger.digests(0))


def divide(learners: Sequence[Learner], count: int) -> tuple[tuple[str, ...], ...]:
    """The names of these learners in ``count`` groups, or one for each if they are fewer.

    Sizes differ by one at most. Learners of one rule and loss are together, so that they share
    loops.
    """
    alike = sorted(learners, key=_kind)
    count = min(count, len(alike))
    edges = [at * len(alike) // count for at in range(count + 1)]
    return tuple(
        tuple(learner.name for learner in alike[low:high])
        for low, high in itertools.pairwise(edges)
    )


def _kind(learner: Learner) -> tuple[str, ...]:
    model = learner.model.spec.model
    return model.rule, model.loss, repr(model.loss_params)
