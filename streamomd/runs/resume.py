"""Resume a run from its last commit, and update it with the shards that arrived since.

    load the run → finish its list → list the sources → take what is new → record it → learn it

The shards of an update are a list of their own in the ledger, which the update's first commit
records: an interrupted update is finished before another looks for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.checkpoint.manifest import KINDS
from streamomd.core.errors import StreamomdError, SweepError, UnsupportedError
from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import name_run
from streamomd.core.urls import absolute, shown, typed
from streamomd.core.wording import counted, named_keywords
from streamomd.runs.connection import learns_on_worker, record_cluster
from streamomd.runs.modes import has_remote_state, read_state
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_rejected
from streamomd.runs.update_choice import choice_of, given_keys, update_table
from streamomd.runs.update_run import UpdateRun, undoable
from streamomd.sources.arrivals import Arrivals
from streamomd.sources.find import by_source
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.open_checkpoint import (
    change_model_job,
    divergence,
    open_ledger,
    refuse_diverged_again,
)
from streamomd.training.progress import Callback, note, quiet_notes
from streamomd.training.signals import StopRequest, stop_on_signals


@named_keywords
def update(
    url: str,
    *,
    shards: Sequence[str] = (),
    dry_run: bool = False,
    settle: float | str | None = None,
    max_shards: int | None = None,
    until: str | None = None,
    ignore_rewritten: bool | None = None,
    accept_rewritten: Sequence[str] = (),
    moved: bool | None = None,
    accept_duplicates: bool | None = None,
    retry_skipped: bool | None = None,
    appends_only: bool | None = None,
    fail_on_alert: bool | None = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Model:
    """Learn the shards of a run's sources that it has not learned: each once, in order of arrival.

    shards: more sources, which the job has from here on. dry_run: only say which they are. settle
    to fail_on_alert: keys of the job's table [update], for this call alone; None: as the job has
    them. accept_rewritten: URLs of learned shards whose new content is ignored from now on. settle:
    seconds, or "30s". until: ISO 8601. The other arguments are those of ``streamomd.resume``. In
    exact mode the state is that of one run over the same shards in the same order, to the bit.

    Raises ResumeRefusedError (a learned shard was rewritten or moved), UnsupportedError (the order
    is shuffled, or the rule observes all rows first), SchemaError, AlertError, and what ``resume``
    raises.
    """
    model, _ = run_update(
        url,
        given_keys(locals()),
        shards=shards,
        dry_run=dry_run,
        accept_rewritten=accept_rewritten,
        options=(storage_options, checkpoint_storage_options),
        sets=sets or {},
        client=client,
        reporting=Reporting(log, quiet, callbacks, MetricsAddress.of(metrics_port, metrics_host)),
        quiet=quiet,
    )
    return model


def run_update(
    url: str,
    choice: Mapping[str, Any],
    *,
    dry_run: bool,
    options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    sets: Mapping[str, Any],
    client: Any,
    reporting: Reporting,
    quiet: bool,
    accept_rewritten: Sequence[str] = (),
    shards: Sequence[str] = (),
) -> tuple[Model, dict[str, Any]]:
    """Does what ``update`` does; returns the model and the figures of the update."""
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as opened:
        name_run(shown(url))
        more = {"stop": stop, "reporting": opened, "client": client}
        run = UpdateRun.open(url, sets, *options, given=choice, **more)
        run.add_sources([shards] if isinstance(shards, str) else shards)
        model, chosen = run.model, choice_of(run.model.spec, choice)
        chosen = chosen._replace(accept_rewritten=[*map(absolute, accept_rewritten)])
        model.fail_on_alert = update_table(model.spec, choice).fail_on_alert
        appends_only = bool(choice.get("appends_only"))
        if not dry_run:
            run.catch_up(chosen, appends_only=appends_only)
            return model, run.figures()
        arrivals = run.find(chosen, appends_only=appends_only)
        report_new(model, arrivals)
        rows, count = arrivals.shards.rows, len(arrivals.shards)
        return model, {**run.figures(), "new_shards": count, "new_rows": rows}


def report_unlearned(model: Model, loaded: Loaded) -> None:
    """Print how many new shards the sources of a finished run have, where they can be listed."""
    try:
        run = UpdateRun.of(model, loaded, stop=StopRequest(), reporting=Reporting(quiet=True))
        units = [source.unit for source in by_source(model.spec.data.shards) if source.unit]
        if units:
            _note_new(model, *run.count_unopened(), units[0])
            return
        arrivals = run.find(choice_of(model.spec)._replace(on_bad_shard="skip"), decode=False)
    except StreamomdError:
        return  # a finished run is complete without its shards
    if len(arrivals.shards):
        report_new(model, arrivals)


def report_new(model: ModelData, arrivals: Arrivals) -> None:
    """Print how many shards an update would learn, or that there are none."""
    count = len(arrivals.shards)
    _note_new(model, count, arrivals.shards.rows, "row")
    if not count:
        note(f"nothing new since commit {model.sequence} of {shown(model.url)}")


def _note_new(model: ModelData, shards: int, count: int, what: str) -> None:
    if shards:
        note(
            f"{counted(shards, 'new shard')} ({counted(count, what)}) not learned: "
            f"streamomd update {typed(model.url)}"
        )


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

    shards: the Dask collection or the stream of rows, made again, of a run that started on one.
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
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened(serving=here) as reporting:
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
        with undoable(model, lambda: open_ledger(loaded)[1]):
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
