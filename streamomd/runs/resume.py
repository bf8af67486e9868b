"""Resume a run from its last commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.checkpoint.manifest import KINDS
from streamomd.core.errors import SweepError, UnsupportedError
from streamomd.core.nearest import named_keywords
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown, typed
from streamomd.runs.connection import learns_on_worker, record_cluster
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.modes import has_remote_state, read_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_rejected
from streamomd.runs.update import report_unlearned
from streamomd.runs.update_choice import choice_of
from streamomd.runs.update_run import UpdateRun, undoable
from streamomd.training.callbacks import Callback
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.open_checkpoint import open_ledger
from streamomd.training.progress import note, quiet_notes
from streamomd.training.resume_changes import change_model_job, divergence, refuse_diverged_again
from streamomd.training.signals import stop_on_signals


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
        if more and model.metrics.backtest is not None:
            raise UnsupportedError(
                f"{shown(model.url)} is a backtest, which learns each row once; leave train.epochs "
                "out (--epochs)"
            )
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
                    from streamomd.runs.worker_task import learn_on_worker

                    manager.commit()  # the task reads the job from it
                    return learn_on_worker(session, model, connection, reporting)
                return session.learn(model, manager, connection, reporting)
