"""Sweep: many learners in one reading. Every row is decoded and hashed once, and learned by all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamomd.config.build_job import build_job
from streamomd.config.spec import Spec
from streamomd.core.counted import counted
from streamomd.core.errors import DivergedError, UnsupportedError, UsageError
from streamomd.core.nearest import named_keywords
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown
from streamomd.features import Plan, limits_of
from streamomd.runs.collection_job import refuse_collection
from streamomd.runs.metrics_server import MetricsAddress
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_plan, report_rejected
from streamomd.runs.sweep.edges import find_edges
from streamomd.runs.sweep.grid import Entry, dotted_key, entries, entries_of, values_of
from streamomd.runs.sweep.learners import Learner, Sweep
from streamomd.runs.sweep.loop import SweepLoop
from streamomd.runs.sweep.sweep_checkpoint import (
    begin_sweep,
    load_sweep,
    resume_sweep_checkpoint,
    save_best,
    with_checkpoint,
)
from streamomd.training.model import Model
from streamomd.training.new_model import new_model
from streamomd.training.open_checkpoint import open_ledger
from streamomd.training.progress import note, quiet_notes
from streamomd.training.resume_changes import change_model_job
from streamomd.training.signals import stop_on_signals

EXTENSIONS = 3
"""Times that a grid is extended at most."""


def sweep(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    grid: Mapping[str, str | Sequence[Any]] | None = None,
    halve: int = 0,
    extend: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    quiet: bool = False,
    metrics_port: int | None = None,
    metrics_host: str = "",
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Sweep:
    """Train a learner for each combination of a grid, all of them in one reading of the shards.

    grid: values by key, a list or a text: ``{"eta": "0.01..10:16", "rule": ["nag", "adagrad"]}``.
    A key is a parameter of the rule, or rule, loss, loss_params.NAME …; combinations that are no
    valid job are skipped and reported; a rule that lacks a parameter which another one has runs
    once. Without a grid the job itself is learned. halve: after this many rows, and whenever their
    number has doubled, the worse half is dropped, by the loss of the rows since; 0: none is.
    extend: while the best value of a parameter is at an end of its values, three more beyond it are
    learned in another reading, at most three times; their checkpoints are in URL/extended-1 … and
    ``extensions`` has their sweeps. Exported metrics have a label ``learner``. The other arguments
    are those of ``train``. Each learner ends
    with the bits of one trained alone.

    Gives the models, in the order of the grid; ``best`` is the one with the lowest progressive
    loss (where losses differ: error or rmse). Raises what ``train`` raises; UnsupportedError in
    any mode but exact.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from streamomd.training.demo import stream
    >>> rows, folder = stream(True), tempfile.TemporaryDirectory()
    >>> columns = {f"x{j}": rows.values[:, j] for j in range(12)} | {"y": rows.y}
    >>> pyarrow.parquet.write_table(pyarrow.table(columns), f"{folder.name}/rows.parquet")
    >>> models = sweep(
    ...     folder.name, grid={"eta": "0.01..10:4"}, rule="nag", label="y", checkpoint="none",
    ...     quiet=True,
    ... )
    >>> [round(model.result()["error"], 3) for model in models]
    [0.134, 0.114, 0.098, 0.109]
    >>> models.best.spec.model.params["eta"]
    1.0
    >>> folder.cleanup()
    """
    tried = {key: values_of(key, values) for key, values in (grid or {}).items()}
    if halve < 0:
        raise UsageError(f"halve = {halve}: expected a number of rows, or 0 to drop no learner")
    refuse_collection(job, flags, "a sweep")
    flags = {**flags, "storage_options": storage_options}
    reporting = Reporting(quiet=quiet, metrics=MetricsAddress.of(metrics_port, metrics_host))

    choices: dict[str, None] = {}

    def make(chosen: Mapping[str, Any]) -> Spec:
        return build_job(job, flags, {**(sets or {}), **chosen}, report=choices.setdefault)

    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as reporting:
        found = entries(make, tried)
        for line in choices:
            note(line)
        _refuse_what_shares_no_rows(found[0].spec)
        session = Session.of(found[0].spec, stop=stop)
        name_run(shown(session.spec.checkpoint.url))
        made = _learn(found, session, halve, reporting, restart=restart)
        for number in range(1, EXTENSIONS + 1) if extend else ():
            more = _beyond(made, make, tried, number)
            if not more:
                break
            session = replace(session, spec=more[0].spec)
            try:
                prefix = f"extended-{number}/"
                learned = _learn(more, session, 0, reporting, restart=True, prefix=prefix)
                made.extensions.append(learned)
            except DivergedError as error:
                note(f"extension {number} ends: {error}")
                break
            save_best(made, session)
        return made


def _learn(
    found: Sequence[Entry],
    session: Session,
    halve: int,
    reporting: Reporting,
    *,
    restart: bool,
    prefix: str = "",
) -> Sweep:
    """A sweep of these learners, finished. prefix: of their names in metrics."""
    models = _new_models(found, session)
    report_plan(models[0].plan, session.rows)
    learners = [
        Learner(f"{at:03d}", entry.chosen, model)
        for at, (entry, model) in enumerate(zip(found, models, strict=True))
    ]
    made = Sweep(learners, halve, min(model.cursor for model in models))
    note(f"{counted(len(made), 'learner')}, each row read once")
    manager = begin_sweep(made, session, restart=restart)
    return SweepLoop(made, session, manager).learn(reporting, prefix)


def _beyond(
    made: Sweep,
    make: Callable[[Mapping[str, Any]], Spec],
    grid: Mapping[str, Sequence[Any]],
    number: int,
) -> list[Entry]:
    """Learners with values beyond the ends that the best is at; none if it is at no end, or they
    are no valid job."""
    best = made.best_learner.chosen
    edges = find_edges(best, [learner.chosen for learner in made.all_learners])
    choices = [{**best, edge.key: value} for edge in edges for value in edge.beyond]
    url = made.url and f"{made.url}/extended-{number}"

    def make_there(chosen: Mapping[str, Any]) -> Spec:
        return make({**chosen, "checkpoint.url": url} if url else chosen)

    if not choices:
        return []
    named = ", ".join(f"{edge.key} = {', '.join(map(str, edge.beyond))}" for edge in edges)
    note(f"extension {number}: {named}")
    try:
        return entries_of(make_there, {key: dotted_key(key) for key in grid}, choices)
    except UsageError as error:
        note(f"no extension: {error}")
        return []


@named_keywords
def resume_sweep(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    accept_new_shards: bool = False,
    quiet: bool = False,
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Sweep:
    """Resume the sweep whose checkpoint is at ``url``; a finished one returns its models.

    Arguments and errors are those of ``streamomd.resume``; learners that were dropped stay so.
    """
    reporting = Reporting(quiet=quiet, metrics=MetricsAddress.of(metrics_port, metrics_host))
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as reporting:
        name_run(shown(url))
        found, loaded, commits = load_sweep(url, checkpoint_storage_options)
        report_rejected(loaded, found.sequence)
        options, more = (storage_options, checkpoint_storage_options), False
        for learner in found.active:
            model = learner.model
            more = change_model_job(model, sets or {}, *options)
            model.spec = with_checkpoint(model.spec, model.url)
            model.names = found.lead.names
        if found.finished and not more:
            return found
        found.finished = False
        no_cache = "data.cache" not in (sets or {})
        for line in found.lead.recorded.hints(found.url, cluster=False, cache=no_cache):
            note(line)
        ledger = open_ledger(found.lead, commits[found.lead])[1]
        session = Session.recorded(found.lead, facts=ledger.shards, stop=stop)
        sequence = found.sequence  # resuming makes another commit
        given = (found, loaded, commits, session)
        manager = resume_sweep_checkpoint(*given, accept_new=accept_new_shards)
        text = f"resuming from commit {sequence} of {shown(url)}, after row {found.rows:,}"
        note(text, "resumed", "info", sequence=sequence, rows=found.rows)
        return SweepLoop(found, session, manager).learn(reporting)


def _new_models(found: Sequence[Entry], session: Session) -> list[Model]:
    """A model for each job. All of one loss read labels alike, so that is found out once.

    Rows are encoded once for all: their values are in the range of every rule.
    """
    standardize = any(entry.spec.data.standardize == "running" for entry in found)
    limits = limits_of((entry.spec.model for entry in found), standardize=standardize)
    models: list[Model] = []
    plans: dict[str, Plan] = {}
    url = session.spec.checkpoint.url
    for at, entry in enumerate(found):
        spec = with_checkpoint(entry.spec, f"{url}/learners/{at:03d}")
        loss = spec.model.loss
        if loss not in plans:
            plans[loss] = replace(replace(session, spec=spec).plan(), limits=limits)
        model = new_model(spec, plans[loss])
        model.table_versions = session.table_versions
        models.append(model)
        if model.plan != models[0].plan:
            raise UsageError(
                f"losses {found[0].spec.model.loss!r} and {loss!r} read the labels in two ways: "
                "run a sweep for each, or set model.task"
            )
        model.names, model.digests = models[0].names, models[0].digests
    return models


def _refuse_what_shares_no_rows(spec: Spec) -> None:
    if spec.train.mode != "exact":
        raise UnsupportedError(
            f"a sweep learns in exact mode, not {spec.train.mode}: its learners share every row"
        )
    if spec.data.holdout:
        raise UnsupportedError(
            f"data.holdout = {spec.data.holdout}: a sweep learns every row. Its progressive loss "
            "is of rows not learned yet, and ranks its learners as well"
        )
    if spec.cluster.scheduler:
        raise UnsupportedError(
            "a sweep decodes in this process: leave cluster.scheduler out (--scheduler '')"
        )
