"""Runs whose learner is a task on a worker: watched from here, or left to the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from streamomd.checkpoint.manifest import KINDS
from streamomd.config.recorded import settings
from streamomd.config.spec import Spec
from streamomd.core.errors import ConcurrentWriterError
from streamomd.core.urls import without_secrets
from streamomd.runs.modes import connected, is_far, record_cluster, resumable, run, told_to
from streamomd.runs.on_collection import refuse_collection
from streamomd.shards.find import ShardSet, find
from streamomd.training.callbacks import Callback
from streamomd.training.job import build
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import Log, Watcher, heard, hushed, progress, watching
from streamomd.training.session import begin, change_job, new_model, take_over
from streamomd.training.signals import StopRequest

Options = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Storage options of the shards, and of the checkpoint."""


@dataclass(frozen=True)
class SentSettings:
    """What a learner's task gets from its sender, and never from a checkpoint, wherever it runs.

    settings: cluster and cache, by dotted key. shards: as the sender named or checked them.
    """

    options: Options = field(repr=False)
    settings: Mapping[str, Any]
    shards: tuple[str, ...]

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """What goes with the task of a job that was given here."""
        options = (spec.data.storage_options, spec.checkpoint.storage_options)
        return cls(options, settings(spec), tuple(map(without_secrets, spec.data.shards)))

    def applied(self, model: Model) -> ShardSet:
        """Give a model that was read from its checkpoint this job; the shards it is to learn."""
        change_job(model, self.settings, *self.options)
        data = model.spec.data.model_copy(update={"shards": self.shards})
        model.spec = model.spec.model_copy(update={"data": data})
        return find(data.shards, order=data.order, storage_options=data.storage_options)


def watch(
    model: Model,
    shards: ShardSet,
    connection: Any,
    stop: StopRequest,
    *,
    log: str | None,
    quiet: bool,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Have a worker go on with the run that was begun, and watch it; the finished model."""
    from streamomd.distributed.remote_learner import SubmittedLearner

    rows, expected = model.metrics.total_rows, shards.rows * model.spec.train.epochs
    watchers: list[Watcher] = [Log(log, model.metrics)] if log else []
    watchers += [] if quiet else [progress(model.metrics, expected)]
    watchers += told_to(callbacks, model, expected)
    with resumable(model, connection), watching(watchers, model.metrics):
        sent = SentSettings.of(model.spec)
        task = SubmittedLearner(connection, go_on, model.url, sent, model.metrics, watchers, stop)
        found = task.result()
    options = model.spec.checkpoint.storage_options
    learned = load_model(model.url, storage_options=options, far=is_far)[0]
    learned.spec = model.spec  # with the settings that were given here
    learned.seconds = found["seconds"]
    learned.rows_per_second = (learned.metrics.total_rows - rows) / learned.seconds
    return learned


def go_on(url: str, topic: str, sent: SentSettings) -> dict[str, Any]:
    """On a worker: what ``resume`` does, with the sender's settings; it reports to the submitter.

    Nothing comes of one that Dask has begun again elsewhere: nobody waits for it.
    """
    from streamomd.distributed.memory_checks import spare_memory
    from streamomd.distributed.remote_learner import event_reporter, metrics_event, was_reassigned

    stop = StopRequest()
    with hushed(True), event_reporter(topic, stop) as (client, watcher), heard(watcher.log_note):
        model, loaded = load_model(url, storage_options=sent.options[1], far=is_far, needs=KINDS)
        if not model.finished:
            shards = sent.applied(model)
            alone = model.spec.train.mode == "exact" and model.spec.cluster.decode == "local"
            if was_reassigned(client):  # and must not be fenced by one that comes late
                return {}
            keeper = take_over(model, loaded, shards, accept_new=False)
            keeper.spare = spare_memory()
            connection = None if alone else client
            try:
                run(model, shards, keeper, stop, connection, told=[watcher], quiet=True)
            except ConcurrentWriterError:
                if was_reassigned(client):  # which took over: what is said here counts no more
                    return {}
                raise
        watcher.finish(model.metrics)
    return {"seconds": model.seconds or 1e-9, **metrics_event(model.metrics)}


def submit(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> str:
    """Begin a run, leave it to a cluster, and come back with its id.

    Arguments as in ``train``. The job, the shards and the workers are looked at here and now, and
    the first commit is made; then a task on a worker goes on from it, and begins again from the
    last commit, elsewhere, if its worker is lost. ``streamomd.distributed.jobs`` has what can be
    done with the id. Raises what ``train`` raises before its first row.
    """
    refuse_collection(job, flags, "a job that is left to a cluster")
    spec = build(job, {**flags, "storage_options": storage_options}, sets)
    away = spec.cluster.model_copy(update={"learner": "worker"})
    spec = spec.model_copy(update={"cluster": away})
    data = spec.data
    shards = find(data.shards, order=data.order, storage_options=data.storage_options)
    model = new_model(spec, shards)
    with connected(spec, client) as connection:
        from streamomd.distributed import diagnose as doctor
        from streamomd.distributed import jobs

        doctor.refuse_unfit(connection, model, shards)
        record_cluster(model, client)
        begin(model, shards, restart=restart)
        rows = shards.rows * spec.train.epochs
        with resumable(model, connection):
            return jobs.send(connection, go_on, model.url, SentSettings.of(spec), rows)


def diagnose(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    scheduler: str = "",
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """What ``streamomd.distributed.diagnose`` finds of each worker, for a job if there is one."""
    from streamomd.distributed.cluster import connect_client
    from streamomd.distributed.diagnose import diagnose as look

    model = shards = None
    if job is not None:
        options = (storage_options, checkpoint_storage_options)
        flags = dict(zip(("storage_options", "checkpoint_storage_options"), options, strict=True))
        spec = build(job, flags, sets)
        data = spec.data
        shards = find(data.shards, order=data.order, storage_options=data.storage_options)
        model = new_model(spec, shards)
    with connect_client(client, scheduler) as connection:
        return look(connection, model, shards)
