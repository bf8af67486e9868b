"""Update: learn the shards that arrived since the last commit of a run, each once.

    load the run → finish its list → list the sources → take what is new → record it → learn it

The shards of an update are a list of their own in the ledger, which the update's first commit
records: an interrupted update is finished before another looks for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.core.counted import counted
from streamomd.core.errors import (
    StreamomdError,
)
from streamomd.core.nearest import named_keywords
from streamomd.core.run_events import name_run
from streamomd.core.urls import absolute, shown, typed
from streamomd.runs.metrics_address import MetricsAddress
from streamomd.runs.reporting import Reporting
from streamomd.runs.update_choice import choice_of, given_keys, update_table
from streamomd.runs.update_run import UpdateRun
from streamomd.sources.arrivals import (
    Arrivals,
)
from streamomd.sources.known_sources import by_source
from streamomd.training.callbacks import Callback
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note, quiet_notes
from streamomd.training.signals import StopRequest, stop_on_signals


@named_keywords
def update(
    url: str,
    *,
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

    dry_run: only say which they are. settle to fail_on_alert: keys of the job's table [update], for
    this call alone; None: as the job has them. accept_rewritten: URLs of learned shards whose new
    content is ignored from now on. settle: seconds, or "30s". until: ISO 8601. The
    other arguments are those of ``streamomd.resume``. In exact mode the state is that of one run
    over the same shards in the same order, to the bit.

    Raises ResumeRefusedError (a learned shard was rewritten or moved), UnsupportedError (the order
    is shuffled, or the rule observes all rows first), SchemaError, AlertError, and what ``resume``
    raises.
    """
    model, _ = run_update(
        url,
        given_keys(locals()),
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
) -> tuple[Model, dict[str, Any]]:
    """Does what ``update`` does; returns the model and the figures of the update."""
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as opened:
        name_run(shown(url))
        more = {"stop": stop, "reporting": opened, "client": client}
        run = UpdateRun.open(url, sets, *options, given=choice, **more)
        model, chosen = run.model, choice_of(run.model.spec, choice)
        chosen = chosen._replace(accept_rewritten=[*map(absolute, accept_rewritten)])
        model.fail_on_alert = update_table(model.spec, choice).fail_on_alert
        appends_only = bool(choice.get("appends_only"))
        if not dry_run:
            run.catch_up(chosen, appends_only=appends_only)
            return model, run.figures()
        arrivals = run.find(chosen, appends_only=appends_only)
        report_new(model, arrivals)
        rows, shards = arrivals.shards.rows, len(arrivals.shards)
        return model, {**run.figures(), "new_shards": shards, "new_rows": rows}


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
