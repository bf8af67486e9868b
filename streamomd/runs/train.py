"""Train and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.config.recorded import with_settings
from streamomd.config.spec import Spec
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown
from streamomd.core.wording import named_keywords
from streamomd.runs.collection_job import split_collection
from streamomd.runs.connection import learns_on_worker
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_plan
from streamomd.sources.memory.row_streams import written_rows
from streamomd.training.callbacks import Callback
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import note, quiet_notes
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
    alone and alike: then the order is that of the partitions (docs/modes.md). Or a
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
