"""Runs that are left to a cluster, and whether its workers are fit for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.config.build_job import build_job
from streamomd.config.cluster_choice import NO_CLUSTER, choose_cluster
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.runs.collection_job import refuse_collection
from streamomd.runs.connection import connect_needed, report_lost_scheduler
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.session import Session
from streamomd.runs.update_choice import refuse_update
from streamomd.runs.worker_task import SentSettings, follow_on_worker, resume_on_worker
from streamomd.training.progress import note
from streamomd.training.warm_start import started_job


def submit(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    follow: bool = False,
    metrics_port: int | None = None,
    metrics_host: str = "",
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> str:
    """Start a run as a task of a cluster, and return its id.

    Arguments as in ``train``. The job, the shards and the workers are checked in this process, and
    the first commit is made; then a task on a worker resumes from it. If its worker is lost, the
    task resumes from the last commit on another. follow: after its shards the task learns those
    that arrive, as ``streamomd.follow`` does with the job's table [update], until it is cancelled.
    metrics_port, metrics_host: as in ``train``; of the worker that learns.
    See ``streamomd.distributed.jobs`` for what can be done with the id. Raises what ``train``
    raises before its first row.
    """
    metrics = MetricsAddress.of(metrics_port, metrics_host)
    refuse_collection(job, flags, "a job that is left to a cluster")
    flags["storage_options"] = storage_options
    spec = build_job(job, flags, sets, report=note, inherit=started_job)
    if follow:
        refuse_to_follow(spec)
    on_worker = spec.cluster.model_copy(update={"learner": "worker"})
    if not choose_cluster(client, spec.cluster.scheduler, needed=True).known:
        raise UsageError(f"submit needs a cluster: {NO_CLUSTER}; `streamomd train` learns here")
    session = Session.of(spec.model_copy(update={"cluster": on_worker}), client=client)
    with session.prepare() as (model, connection):
        from streamomd.distributed import diagnose as checks
        from streamomd.distributed import jobs
        from streamomd.distributed.made_cluster import refuse_ending

        refuse_ending(connection)
        unfit = checks.exclude_unfit(connection, model, session.shards)
        session.begin(model, restart=restart)
        rows = session.rows.rows * session.spec.train.epochs
        sent = SentSettings.of(session.spec, metrics, unfit)
        task = follow_on_worker if follow else resume_on_worker
        with report_lost_scheduler(model, connection):
            expected, resources = 0 if follow else rows, session.spec.cluster.resources
            return jobs.send(connection, task, model.url, sent, expected, resources)


def refuse_to_follow(spec: Spec) -> None:
    """Raises UnsupportedError for a job whose task cannot follow."""
    refuse_update(spec.model_copy(update={"cluster": type(spec.cluster)()}))
    if spec.train.mode != "exact":
        raise UnsupportedError(
            f"submit --follow learns in one task, in exact mode, not {spec.train.mode}: run "
            "streamomd follow URL in a process of its own"
        )


def diagnose(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    scheduler: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """What ``streamomd.distributed.diagnose`` finds of each worker, for a job if there is one."""
    from streamomd.distributed.diagnose import diagnose as examine_workers
    from streamomd.distributed.worker_monitor import choose_workers

    model = shards = None
    if job is not None:
        options = (storage_options, checkpoint_storage_options)
        flags = dict(zip(("storage_options", "checkpoint_storage_options"), options, strict=True))
        session = Session.open(job, flags, sets)
        model, shards = session.new_model(), session.shards
        scheduler = session.spec.cluster.scheduler if scheduler is None else scheduler
    with connect_needed(client, scheduler) as connection:
        if model is not None:
            choose_workers(connection, model.spec)
        return examine_workers(connection, model, shards)
