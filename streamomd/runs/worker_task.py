"""A run whose learner is a task on a worker: sent and watched from here, resumed there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from streamomd.checkpoint import Loaded
from streamomd.checkpoint.manifest import KINDS
from streamomd.config.recorded import settings
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, ConcurrentWriterError, UsageError
from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import receiving
from streamomd.core.urls import shown, without_secrets
from streamomd.runs.connection import report_lost_scheduler
from streamomd.runs.follow import Follower, follow_to_end
from streamomd.runs.follow_alerts import watch_files
from streamomd.runs.modes import has_remote_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.runs.update_run import UpdateRun
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.open_checkpoint import change_model_job, open_ledger
from streamomd.training.progress import Watcher, note, note_return, quiet_notes, watching
from streamomd.training.signals import StopRequest

Options = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Storage options of the shards, and of the checkpoint."""


@dataclass(frozen=True)
class SentSettings:
    """What a learner's task gets from its sender, and never from a checkpoint, wherever it runs.

    settings: cluster and cache, by dotted key. shards: as the sender named or checked them.
    metrics: where the worker that learns serves its metrics. unfit: workers that the sender found
    unfit, by address, each with the reason.
    """

    options: Options = field(repr=False)
    settings: Mapping[str, Any]
    shards: tuple[str, ...]
    metrics: MetricsAddress | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        spec: Spec,
        metrics: MetricsAddress | None = None,
        unfit: Mapping[str, str] | None = None,
    ) -> Self:
        """What goes with the task of a job that was given here."""
        options = (spec.data.storage_options, spec.checkpoint.storage_options)
        shards = tuple(map(without_secrets, spec.data.shards))
        return cls(options, settings(spec), shards, metrics, unfit or {})

    def change(self, model: ModelData) -> None:
        """Give a model that was read from its checkpoint this job."""
        change_model_job(model, self.settings, *self.options)
        data = model.spec.data.model_copy(update={"shards": self.shards})
        model.spec = model.spec.model_copy(update={"data": data})

    def apply(self, model: ModelData, loaded: Loaded, stop: StopRequest) -> Session:
        """Give a model that was read from its checkpoint this job; the session on its shards."""
        self.change(model)
        opened = open_ledger(loaded)
        return Session.of(model.spec, running=model, opened=opened, stop=stop)


def learn_on_worker(session: Session, model: Model, connection: Any, reporting: Reporting) -> Model:
    """Have a worker resume a run from its commit, and watch it; the finished model."""
    from streamomd.distributed.remote_learner import SubmittedLearner

    rows, expected = model.metrics.total_rows, session.rows.rows * model.spec.train.epochs
    watchers = reporting.watchers(model, expected, None)
    with report_lost_scheduler(model, connection), watching(watchers, model.metrics):
        sent = SentSettings.of(model.spec, reporting.metrics)
        given = (model.url, sent, model.metrics, watchers, session.stop)
        figures = SubmittedLearner(connection, resume_on_worker, *given).result()
    options = model.spec.checkpoint.storage_options
    learned = load_model(model.url, storage_options=options, remote=has_remote_state)[0]
    learned.spec = model.spec  # with the settings that were given here
    learned.seconds = figures["seconds"]
    learned.rows_per_second = (learned.metrics.total_rows - rows) / learned.seconds
    return learned


def resume_on_worker(url: str, topic: str, sent: SentSettings) -> dict[str, Any]:
    """On a worker: resume a run with the sender's settings, and report to the submitter.

    A task that Dask has started again on another worker returns without a result.
    """
    from streamomd.distributed.diagnose import spare_memory
    from streamomd.distributed.remote_learner import was_reassigned
    from streamomd.distributed.worker_monitor import choose_workers

    def learn(
        client: Any, stop: StopRequest, watchers: Sequence[Watcher], before: int | None
    ) -> Model | None:
        model, loaded = load_model(
            url, storage_options=sent.options[1], remote=has_remote_state, needs=KINDS
        )
        report_restart(model, before)
        if model.finished:
            return model
        session = sent.apply(model, loaded, stop)
        refuse_worker(model)
        alone = model.spec.train.mode == "exact" and model.spec.cluster.decode == "local"
        if was_reassigned(client):  # and must not be fenced by one that comes late
            return None
        connection = None if alone else client
        if connection is not None:
            choose_workers(connection, model.spec, sent.unfit)
        with worker_reporting(sent, before) as reporting:
            manager = session.resume(model, loaded, accept_new=False)
            manager.spare = spare_memory()
            try:
                session.learn(model, manager, connection, reporting, *watchers)
            except ConcurrentWriterError:
                if was_reassigned(client):  # the other task is the writer now
                    return None
                raise
        return model

    return _learn_as_task(topic, learn)


def follow_on_worker(url: str, topic: str, sent: SentSettings) -> dict[str, Any]:
    """On a worker: finish a run with the sender's settings, and follow it until it is stopped.

    It learns in exact mode and decodes its own rows. As ``resume_on_worker`` otherwise.
    """
    from streamomd.distributed.remote_learner import was_reassigned

    def open_run(stop: StopRequest, reporting: Reporting) -> UpdateRun:
        model, loaded = load_model(url, storage_options=sent.options[1], needs=KINDS)
        sent.change(model)
        refuse_worker(model)
        cluster = {"learner": "client", "decode": "local"}
        alone = model.spec.cluster.model_copy(update=cluster)
        model.spec = model.spec.model_copy(update={"cluster": alone})
        return UpdateRun.of(model, loaded, stop=stop, reporting=reporting)

    def learn(
        client: Any, stop: StopRequest, watchers: Sequence[Watcher], before: int | None
    ) -> Model | None:
        if was_reassigned(client):
            return None
        try:
            with worker_reporting(sent, before) as reporting:
                opening = partial(open_run, stop, reporting)
                follower = Follower(opening, {}, stop, watch_files, waiting=watchers)
                report_restart(follower.model, before)
                return follow_to_end(follower)[0]
        except ConcurrentWriterError:
            if was_reassigned(client):
                return None
            raise

    return _learn_as_task(topic, learn)


def refuse_worker(model: ModelData) -> None:
    """Raise ClusterError on a worker that the job does not choose: Dask starts its task there once
    all others are gone."""
    from streamomd.distributed.worker_probe import not_chosen

    if problem := not_chosen(model.spec.cluster):
        raise ClusterError(f"{problem}: streamomd resume {shown(model.url)}")


Learn = Callable[[Any, StopRequest, Sequence[Watcher], int | None], Model | None]
"""Learns from the last commit on: with the worker's client, until a stop, updating watchers; the
rows that earlier tasks of the run reported, None: this is the first one. None if Dask has started
the task on another worker."""


def _learn_as_task(topic: str, learn: Learn) -> dict[str, Any]:
    """The figures of what a task learns; none if it is continued on another worker."""
    from streamomd.distributed.remote_learner import event_reporter, metrics_event
    from streamomd.distributed.retirement import Retirement, learn_until_moved

    stop = StopRequest()
    with (
        quiet_notes(True),
        event_reporter(topic, stop) as (client, watcher),
        receiving(watcher.receive),
    ):

        def learn_watched(retirement: Retirement) -> Model | None:
            return learn(client, stop, [retirement, watcher], watcher.rows_before())

        model = learn_until_moved(client, topic, stop, learn_watched)
        if model is None:
            return {}
        watcher.finish(model.metrics)
    return {"seconds": model.seconds or 1e-9, **metrics_event(model.metrics)}


@contextmanager
def worker_reporting(sent: SentSettings, before: int | None) -> Iterator[Reporting]:
    """How a run on a worker reports. before: rows that an earlier task of it reported.

    A run that was started again continues without metrics if the port is in use: that task may
    have been on this machine, and its process may still have it.
    """
    with ExitStack() as stack:
        reporting = Reporting(quiet=True, metrics=sent.metrics)
        try:
            reporting = stack.enter_context(reporting.opened())
        except UsageError as error:
            if before is None:
                raise
            note(f"{error}; the run continues without metrics", "metrics", "warning")
        yield reporting


def report_restart(model: ModelData, before: int | None) -> None:
    """Report what it costs that Dask started the learner's task again, if it did."""
    if before is not None:
        what = f"the learner was started again from commit {model.sequence}"
        note_return(what, model.metrics.total_rows, before)
