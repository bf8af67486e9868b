"""Train, resume and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.checkpoint.manifest import KINDS
from streamomd.config.recorded import with_settings
from streamomd.config.spec import Spec
from streamomd.core.errors import SweepError
from streamomd.core.nearest import named_keywords
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown, typed
from streamomd.runs.collection_job import split_collection
from streamomd.runs.connection import record_cluster
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.modes import has_remote_state, read_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_plan, report_rejected
from streamomd.runs.update import UpdateRun, report_unlearned, undoable
from streamomd.runs.update_choice import choice_of
from streamomd.runs.worker_task import learn_on_worker, learns_on_worker
from streamomd.shards.memory.row_streams import written_rows
from streamomd.training.callbacks import Callback
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.open_checkpoint import open_ledger
from streamomd.training.progress import note, quiet_notes
from streamomd.training.resume_changes import change_model_job, divergence, refuse_diverged_again
from streamomd.training.signals import stop_on_signals
from streamomd.training.warm_start import split_weights


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
    alone and alike: then the order is that of the partitions (docs/dask-collections.md). Or a
    stream of rows: a polars LazyFrame, a pyarrow Dataset or RecordBatchReader, an iterator of
    record batches; its rows are written to the cache folder first (docs/in-memory.md).
    start: a checkpoint's URL, a Parquet file of weights, or a fitted linear model (``coef_``).
    restart: overwrite an existing checkpoint and start over. log: file for JSON lines.
    callbacks: called with the metrics of the run (``streamomd.training.callbacks``), as trackers
    are. metrics_port: serve metrics for Prometheus there while the run lasts (docs/monitoring.md);
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
    with (
        stop_on_signals() as stop,
        reporting.counting() as reporting,
        written_rows(job, flags, note) as (source, given, retain),
    ):
        job, flags, collection = split_collection(source, given)
        flags, weights = split_weights(flags)
        flags["storage_options"] = storage_options
        more = {"collection": collection, "client": client, "weights": weights, "stop": stop}
        session = Session.open(job, flags, sets, **more)
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
                return learn_on_worker(session, model, connection, opened)
            return session.learn(model, manager, connection, opened)


@named_keywords
def resume(
    url: str,
    *,
    shards: Any = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    accept_new_shards: bool = False,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Model:
    """Resume the run whose checkpoint is at ``url``; a finished run returns its model.

    shards: the Dask collection, made again, of a run that started on one; else None.
    sets: what may change, by dotted key: train.epochs (upward), train.prefetch, train.threads,
    data.cache, checkpoint.*, cluster.*; of a run that diverged also data.on_bad_row (to "skip").
    client: as in ``train``; with another cluster than before, or none, the result is bit-identical.
    callbacks, metrics_port, metrics_host: as in ``train``. accept_new_shards: also learn shards
    that were added after the last; of a finished run, as ``update`` does.

    The cluster and the cache of decoded rows are those given here, never those that the checkpoint
    records. The URLs of its shards are printed before they are opened, and must be on the
    allow-list if one is set (docs/checkpoints.md).

    Raises NoCommitError, ResumeRefusedError (data or job changed), DivergedError (the run diverged,
    and nothing changed since), UsageError (a URL outside the allow-list), TooLargeError (sharded
    mode without a cluster), and what ``train`` raises.
    """
    reporting = Reporting(log, quiet, callbacks, MetricsAddress.of(metrics_port, metrics_host))
    sets = sets or {}
    options = (storage_options, checkpoint_storage_options)
    here = sets.get("cluster.learner") != "worker"
    with (
        stop_on_signals() as stop,
        quiet_notes(quiet),
        reporting.opened(serving=here) as reporting,
    ):
        name_run(shown(url))
        try:
            model, loaded = load_model(
                url,
                storage_options=checkpoint_storage_options,
                remote=has_remote_state,
                needs=KINDS,
                finite=True,
            )
        except SweepError as error:
            raise SweepError(f"{error}; streamomd.resume_sweep resumes all of them") from None
        report_rejected(loaded, model.sequence)
        may_skip = bool(divergence(loaded) or model.update.number)
        more = change_model_job(model, sets, *options, may_skip=may_skip)
        refuse_diverged_again(model, loaded)
        if accept_new_shards and not more and (model.finished or model.update.number):
            run = UpdateRun.of(model, loaded, stop=stop, reporting=reporting, client=client)
            run.catch_up(choice_of(model.spec))
            return model
        if model.finished and not more:
            report_unlearned(model, loaded)
            return model
        for line in model.recorded.hints(
            model.url,
            cluster=client is None and "cluster.scheduler" not in sets,
            cache="data.cache" not in sets,
        ):
            note(line)
        with undoable(model, lambda: open_ledger(model, loaded)[1]):
            session = Session.continued(model, loaded, shards, client=client, stop=stop)
            with session.connect() as connection:
                if connection is None:
                    read_state(model)
                record_cluster(model, client)
                manager = session.resume(model, loaded, accept_new=accept_new_shards)
                rows = model.metrics.total_rows
                note(
                    f"resuming from commit {model.sequence} of {shown(model.url)}, "
                    f"after row {rows:,}",
                    "resumed",
                    "info",
                    sequence=model.sequence,
                    rows=rows,
                )
                if accept_new_shards and model.update.number:
                    note(
                        "more epochs read the learned shards alone; then learn new ones: "
                        f"streamomd update {typed(model.url)}"
                    )
                if learns_on_worker(model, connection):
                    manager.commit()  # the task reads the job from it
                    return learn_on_worker(session, model, connection, reporting)
                return session.learn(model, manager, connection, reporting)


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
