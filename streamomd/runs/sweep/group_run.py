"""A group of a sweep's learners, continued from its last commit: here, or by a task of a worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.core.errors import ConcurrentWriterError, DivergedError
from streamomd.core.run_events import receiving
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.runs.sweep.leaderboard import SweepWatcher
from streamomd.runs.sweep.learners import Sweep
from streamomd.runs.sweep.loop import SweepLoop
from streamomd.runs.sweep.sweep_checkpoint import (
    Found,
    load_group,
    resume_sweep_checkpoint,
    with_checkpoint,
)
from streamomd.runs.worker_task import SentSettings
from streamomd.training.model_data import ModelData
from streamomd.training.open_checkpoint import open_ledger
from streamomd.training.progress import note_return, quiet_notes
from streamomd.training.signals import StopRequest

LEARNERS_OF_EVENT = 32
"""Learners whose figures are reported twice a second; those of more, less often."""


@dataclass(frozen=True)
class SentGroup:
    """What the task of a group gets from its sender. title: of the group, in messages.

    directory: of its commits, below the sweep's URL. names: of its learners. until: the row after
    which it ends; 0: the last one.
    """

    settings: SentSettings = field(repr=False)
    directory: str
    names: tuple[str, ...]
    until: int
    title: str

    def with_settings(self, more: Mapping[str, Any]) -> SentGroup:
        """The same with other settings of a machine, by dotted key."""
        changed = replace(self.settings, settings={**self.settings.settings, **more})
        return replace(self, settings=changed)

    def load(self, url: str) -> Found:
        """The group, its commit and those of its learners, which have the sender's settings."""
        options = self.settings.options[1]
        found = load_group(url, self.directory, self.names, options)
        for learner in found[0].active:
            model = learner.model
            self.settings.change(model)
            model.spec = with_checkpoint(model.spec, model.url)
            model.names = found[0].lead.names
        return found


def run_group(
    url: str,
    sent: SentGroup,
    open_session: Callable[[ModelData, Loaded], Session],
    watch: Callable[[Sweep], Sequence[SweepWatcher]] = lambda group: (),
) -> Sweep:
    """The group, learned up to its last row, and committed there.

    Learners that diverged are dropped, and all of them may be: the others of the sweep remain.
    """
    group, loaded, commits = sent.load(url)
    watchers = watch(group)
    until = sent.until or math.inf
    if group.finished and group.cursor.epoch < group.lead.spec.train.epochs:
        group.finished = False
        for learner in group.active:
            learner.model.finished = False
    if group.finished or group.rows >= until:
        return group
    session = open_session(group.lead, commits[group.lead])
    manager = resume_sweep_checkpoint(group, loaded, commits, session, accept_new=False)
    loop = SweepLoop(group, session, manager, until=until, whole=False)
    try:
        return loop.learn(Reporting(quiet=True), more=watchers)
    except DivergedError:
        if group.active:
            raise
        return group


def open_sent(lead: ModelData, loaded: Loaded, stop: StopRequest) -> Session:
    """The session of a group on the shards that the sender checked; each learner has a ledger."""
    opened = open_ledger(loaded)
    return replace(Session.of(lead.spec, running=lead, opened=opened, stop=stop), opened=None)


class GroupReporter(SweepWatcher):
    """On a worker: reports the figures of a group's learners to the submitter."""

    def __init__(self, group: Sweep, reporter: Any) -> None:
        self._group, self._reporter = group, reporter
        self._seconds = max(0.5, 0.5 * len(group) / LEARNERS_OF_EVENT)

    def update(self) -> None:
        """See ``SweepWatcher``."""
        if self._group.active:
            self._reporter.report(lambda: group_event(self._group), self._seconds)


def group_event(group: Sweep) -> dict[str, Any]:
    """The event of the learners' figures. rows: of the group, by epoch."""
    from streamomd.distributed.remote_learner import metrics_event

    figures = {one.name: metrics_event(one.model.metrics) for one in group.learners}
    rows = list(group.lead.metrics.rows) if group.active else [0]
    return {"rows": rows, "learners": figures}


def group_result(group: Sweep) -> dict[str, Any]:
    """What the task of a group returns: where each of its learners is, and its figures."""
    return {
        **group_event(group),
        "sequences": {one.name: one.model.sequence for one in group.learners},
        "dropped": {one.name: (one.dropped, one.diverged) for one in group.learners if one.dropped},
        "cursor": group.cursor.to_json(),
        "finished": group.finished,
        "compile_seconds": group.compile_seconds,
    }


def learn_group_on_worker(url: str, topic: str, sent: SentGroup) -> dict[str, Any]:
    """On a worker: continue a group of the sweep at ``url`` from its last commit, and report to the
    submitter.

    A task that Dask has started again on another worker returns without a result.
    """
    from streamomd.distributed.remote_learner import event_reporter, was_reassigned

    stop = StopRequest()
    with (
        quiet_notes(True),
        event_reporter(topic, stop) as (client, reporter),
        receiving(reporter.receive),
    ):

        def watch(group: Sweep) -> list[SweepWatcher]:
            before = reporter.rows_before()
            if before is not None and group.active:
                what = f"{sent.title} was started again from its commit {group.sequence}"
                note_return(what, group.rows, before)
            reporter.log(group_event(group))
            return [GroupReporter(group, reporter)]

        def open_session(lead: ModelData, loaded: Loaded) -> Session:
            return open_sent(lead, loaded, stop)

        threads = sent.settings.settings["train.threads"] or reporter.threads
        mine = sent.with_settings({"train.threads": threads})
        if was_reassigned(client):  # and must not be fenced by one that comes late
            return {}
        try:
            group = run_group(url, mine, open_session, watch)
        except ConcurrentWriterError:
            if was_reassigned(client):  # the other task is the writer now
                return {}
            raise
        return group_result(group)
