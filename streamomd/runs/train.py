"""Train and load; runs that are left to a cluster, and whether its workers are fit for a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from streamomd.config.build_job import build_job
from streamomd.config.cluster_choice import NO_CLUSTER, choose_cluster
from streamomd.config.recorded import with_settings
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown
from streamomd.core.wording import named_keywords
from streamomd.runs.connection import connect_needed, learns_on_worker, report_lost_scheduler
from streamomd.runs.reporting import Reporting
from streamomd.runs.select_columns import with_selected
from streamomd.runs.session import Session, refuse_collection, report_plan, split_collection
from streamomd.runs.streamed_rows import rows_of_stream, stream_url
from streamomd.runs.update_choice import refuse_update
from streamomd.runs.worker_task import SentSettings, follow_on_worker, resume_on_worker
from streamomd.sources.memory.row_streams import split_rows_given
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import Callback, note, quiet_notes
from streamomd.training.signals import stop_on_signals
from streamomd.training.warm_start import split_weights, started_job


def train(
    job: str | Sequence[str] | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    metrics_port: int | None = None,
    metrics_host: str = "",
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Model:
    """Train on shards, from their first row to their last, and save the run to a checkpoint.

    job: path of a TOML file, shards, nested tables, a Spec, or none. flags: those of the command by
    name (``shards``, ``label``, ``numeric``, ``hashed``, ``rule``, ``loss``, ``eta``, …).
    shards: names, or a Dask DataFrame, or Dask arrays (X, y) or (X, y, weights), dense, cut by rows
    alone and alike: then the order is that of the partitions (docs/clusters.md). Or
    rows: a DataFrame, an Arrow table, a polars LazyFrame, a pyarrow Dataset or RecordBatchReader,
    an iterator of record batches: learned as they come, or written to the cache folder first where
    they are read more than once (docs/in-memory.md).
    start: a checkpoint's URL, a Parquet file of weights, or a fitted linear model (``coef_``).
    restart: overwrite an existing checkpoint and start over. log: file for JSON lines.
    callbacks: called with the metrics of the run (``training.progress.Callback``), as trackers
    are. metrics_port: serve metrics for Prometheus there while the run lasts (docs/prometheus.md);
    0: at any free port, which is printed. metrics_host: its address, "": 127.0.0.1.
    client: a distributed.Client (else one is made for ``cluster.scheduler``, if that is
    given); its workers may decode: see the job's [cluster]. The result is bit-identical to that of
    this process alone.

    Raises the errors of ``streamomd.core.errors``: UsageError (job), DataError (shards),
    OutputExistsError (the checkpoint holds a run), ConcurrentWriterError, StoppedError (signal),
    DivergedError (a number of the model is no longer finite; the last commit stands),
    ClusterError (no scheduler answers, or it is lost: ``resume`` continues without it).
    """
    reporting = Reporting(log, quiet, callbacks, MetricsAddress.of(metrics_port, metrics_host))
    with stop_on_signals() as stop, reporting.counting() as reporting, ExitStack() as folders:
        job, flags, stream = split_rows_given(job, flags, stream_url)
        job, flags, collection = split_collection(job, flags)
        flags, weights = split_weights(flags)
        flags["storage_options"] = storage_options
        choices: list[str] = []
        spec = build_job(job, flags, sets, report=choices.append, inherit=started_job)
        spec, rows, retain = folders.enter_context(rows_of_stream(spec, stream, client))
        more = {"client": client, "weights": weights, "stop": stop, "choices": tuple(choices)}
        session = Session.of(spec, collection=rows or collection, **more)
        with quiet_notes(quiet):
            session = with_selected(session)
        here = session.spec.cluster.learner != "worker"
        with (
            quiet_notes(quiet),
            reporting.opened(serving=here) as opened,
            session.prepare() as (model, connection),
        ):
            name_run(shown(session.spec.checkpoint.url))
            rule, loss = model.spec.rule, model.spec.model.loss
            chosen = f"rule {rule.name} ({rule.title}), loss {loss}"
            choices = [*session.choices, *session.column_hints(model.plan)]
            report_plan(model.plan, session.rows, chosen, choices)
            manager = session.begin(model, restart=restart)
            retain(session.spec.checkpoint.url)
            if learns_on_worker(model, connection):
                from streamomd.runs.worker_task import learn_on_worker

                return learn_on_worker(session, model, connection, opened)
            return session.learn(model, manager, connection, opened)


@named_keywords
def load(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    at: int | None = None,
    *,
    cache: str = "",
) -> Model:
    """The model of the newest commit at ``url`` that is whole, or of commit ``at``.

    cache: local folder of decoded rows for ``evaluate`` and ``certify``; the one that the
    checkpoint records is not used. No URL that the checkpoint names is opened.

    Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    model, loaded = load_model(url, storage_options=storage_options, at=at)
    for sequence, reason in loaded.rejected:
        note(f"commit {sequence} rejected: {reason}; this is {model.sequence}")
    if cache:
        model.spec = with_settings(model.spec, {"data.cache": cache})
    return model


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
    session = with_selected(session)
    with session.prepare() as (model, connection):
        from streamomd.distributed import diagnose as checks
        from streamomd.distributed import jobs
        from streamomd.distributed.connect import refuse_ending

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
