"""Sweep: many learners in one reading. Every row is decoded and hashed once, and learned by all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.config.build_job import build_job
from streamomd.config.spec import Spec
from streamomd.core.errors import DivergedError, UnsupportedError, UsageError
from streamomd.core.http_servers import MetricsAddress
from streamomd.core.run_events import name_run
from streamomd.core.urls import shown
from streamomd.core.wording import counted, named_keywords
from streamomd.features import Plan, limits_of
from streamomd.runs.connection import record_cluster
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import (
    Session,
    refuse_collection,
    refuse_selection,
    report_plan,
    report_rejected,
)
from streamomd.runs.sweep.grid import Entry, dotted_key, entries, entries_of, find_edges, values_of
from streamomd.runs.sweep.grouped_sweep import GroupedSweep, join_here
from streamomd.runs.sweep.learners import Learner, Sweep
from streamomd.runs.sweep.loop import SweepLoop
from streamomd.runs.sweep.sweep_checkpoint import (
    begin_sweep,
    load_sweep,
    resume_sweep_checkpoint,
    save_best,
    take_over_sweep,
    with_checkpoint,
)
from streamomd.runs.worker_task import SentSettings
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.new_model import new_model
from streamomd.training.open_checkpoint import change_model_job, open_ledger
from streamomd.training.progress import note, quiet_notes
from streamomd.training.signals import stop_on_signals

EXTENSIONS = 3
"""Times that a grid is extended at most."""


def sweep(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    grid: Mapping[str, str | Sequence[Any]] | None = None,
    halve: int = 0,
    extend: bool = False,
    client: Any = None,
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
    ``extensions`` has their sweeps. Exported metrics have a label ``learner``. client: a
    distributed.Client (else one is made for ``cluster.scheduler``, if that is given), whose workers
    learn a group of the learners each; the checkpoint is at a URL that they reach. The other
    arguments are those of ``train``. Each learner ends with the bits of one trained alone.

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
        grid_entries = entries(make, tried)
        for line in choices:
            note(line)
        _refuse_what_shares_no_rows(grid_entries[0].spec)
        refuse_selection(grid_entries[0].spec, "a sweep")
        session = Session.of(grid_entries[0].spec, stop=stop, client=client)
        name_run(shown(session.spec.checkpoint.url))
        with _connected(session) as connection:
            given = (connection, reporting)
            made = _learn(grid_entries, session, halve, *given, restart=restart)
            for number in range(1, EXTENSIONS + 1) if extend else ():
                more = _beyond(made, make, tried, number)
                if not more:
                    break
                session = replace(session, spec=more[0].spec)
                try:
                    prefix = f"extended-{number}/"
                    learned = _learn(more, session, 0, *given, restart=True, prefix=prefix)
                    made.extensions.append(learned)
                except DivergedError as error:
                    note(f"extension {number} ends: {error}")
                    break
                save_best(made, session)
        return made


@contextmanager
def _connected(session: Session) -> Iterator[Any]:
    """A client of the cluster whose workers learn, or None: without one, this process learns."""
    spec = session.spec
    named = session.client is not None or spec.cluster.scheduler
    if not named and spec.cluster.learner != "worker":
        yield None
        return
    if spec.data.delay:
        raise UnsupportedError(
            f"data.delay = {spec.data.delay:g} s: a sweep on a cluster learns each row when it is "
            "read; run it without --scheduler and --cluster, or leave data.delay out"
        )
    if spec.checkpoint.url == "none":
        raise UsageError(
            "a sweep on a cluster needs a checkpoint at a URL that its workers reach: what they "
            "learn comes back through it"
        )
    with replace(session, spec=_on_worker(spec)).connect() as connection:
        yield connection


def _on_worker(spec: Spec) -> Spec:
    cluster = spec.cluster.model_copy(update={"learner": "worker"})
    return spec.model_copy(update={"cluster": cluster})


def _learn(
    entries: Sequence[Entry],
    session: Session,
    halve: int,
    connection: Any,
    reporting: Reporting,
    *,
    restart: bool,
    prefix: str = "",
) -> Sweep:
    """A sweep of these learners, finished. connection: to a cluster whose workers learn. prefix: of
    the learners' names in metrics."""
    models = _new_models(entries, session)
    report_plan(models[0].plan, session.rows)
    learners = [
        Learner(f"{number:03d}", entry.chosen, model)
        for number, (entry, model) in enumerate(zip(entries, models, strict=True))
    ]
    made = Sweep(learners, halve, min(model.cursor for model in models))
    if connection is None:
        read = "twice: labels come later" if session.spec.data.delay else "once"
        note(f"{counted(len(made), 'learner')}, each row read {read}")
        manager = begin_sweep(made, session, restart=restart)
        return SweepLoop(made, session, manager).learn(reporting, prefix)
    from streamomd.distributed.diagnose import refuse_too_small

    note(counted(len(made), "learner"))
    largest = max((model.state.layout for model in models), key=lambda layout: layout.nbytes)
    refuse_too_small(connection, _on_worker(session.spec), largest, learners=len(models))
    for model in models:
        record_cluster(model, session.client)
    manager = begin_sweep(made, session, restart=restart)
    assert manager is not None
    sent = SentSettings.of(session.spec)
    return GroupedSweep(made, session, manager, connection, sent).learn(reporting, prefix)


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
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    accept_new_shards: bool = False,
    quiet: bool = False,
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> Sweep:
    """Resume the sweep whose checkpoint is at ``url``; a finished one returns its models.

    Arguments and errors are those of ``streamomd.resume``; learners that were dropped stay so. A
    sweep that began on a cluster may be resumed without one, and the other way round. Without one,
    groups that are behind are learned one after the other up to the foremost, then all in one
    reading.
    """
    reporting = Reporting(quiet=quiet, metrics=MetricsAddress.of(metrics_port, metrics_host))
    sets, options = sets or {}, (storage_options, checkpoint_storage_options)
    named = client is not None or bool(sets.get("cluster.scheduler"))
    there = named or sets.get("cluster.learner") == "worker"
    if there and accept_new_shards:
        raise UnsupportedError(
            "a sweep accepts new shards in this process alone: resume it once without --scheduler"
        )
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as reporting:
        name_run(shown(url))
        saved, loaded, commits, more = _load_changed(url, sets, options, there)
        report_rejected(loaded, saved.sequence)
        if saved.finished and not more:
            return saved
        no_cache = "data.cache" not in sets
        for line in saved.lead.recorded.hints(saved.url, cluster=not there, cache=no_cache):
            note(line)
        sent = SentSettings.of(saved.lead.spec)
        sent = replace(sent, settings={**sent.settings, **sets})
        if saved.division and not there:
            join_here(saved.url, sent, stop)
            saved, loaded, commits, _ = _load_changed(url, sets, options, there)
        saved.finished, sequence = False, saved.sequence  # resuming makes another commit
        facts = open_ledger(commits[saved.lead])[1].shards
        session = Session.recorded(saved.lead, facts=facts, stop=stop, client=client)
        with _connected(session) as connection:
            if connection is None:
                given = (saved, loaded, commits, session)
                manager = resume_sweep_checkpoint(*given, accept_new=accept_new_shards)
            else:
                manager = take_over_sweep(saved, loaded)
            text = f"resuming from commit {sequence} of {shown(url)}, after row {saved.rows:,}"
            note(text, "resumed", "info", sequence=sequence, rows=saved.rows)
            if connection is None:
                return SweepLoop(saved, session, manager).learn(reporting)
            return GroupedSweep(saved, session, manager, connection, sent).learn(reporting)


def _load_changed(
    url: str,
    sets: Mapping[str, Any],
    options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    there: bool,
) -> tuple[Sweep, Loaded, dict[ModelData, Loaded], bool]:
    """The sweep at a URL, its commits, its learners' jobs changed; whether they have more epochs.

    there: workers learn, and read the states.
    """
    remote = (lambda spec: True) if there else None
    saved, loaded, commits = load_sweep(url, options[1], remote)
    more = False
    for learner in saved.active:
        model = learner.model
        more = change_model_job(model, sets, *options)
        model.spec = with_checkpoint(model.spec, model.url)
        model.names = saved.lead.names
    return saved, loaded, commits, more


def _new_models(entries: Sequence[Entry], session: Session) -> list[Model]:
    """A model for each job. All of one loss read labels alike, so that is found out once.

    Rows are encoded once for all: their values are in the range of every rule.
    """
    standardize = any(entry.spec.data.standardize == "running" for entry in entries)
    limits = limits_of((entry.spec.model for entry in entries), standardize=standardize)
    models: list[Model] = []
    plans: dict[str, Plan] = {}
    url = session.spec.checkpoint.url
    for number, entry in enumerate(entries):
        spec = with_checkpoint(entry.spec, f"{url}/learners/{number:03d}")
        loss = spec.model.loss
        if loss not in plans:
            plans[loss] = replace(replace(session, spec=spec).plan(), limits=limits)
        model = new_model(spec, plans[loss])
        model.table_versions = session.table_versions
        models.append(model)
        if model.plan != models[0].plan:
            raise UsageError(
                f"losses {entries[0].spec.model.loss!r} and {loss!r} read the labels in two ways: "
                "run a sweep for each, or set model.task"
            )
        model.names, model.digests = models[0].names, models[0].digests
    return models


def _refuse_what_shares_no_rows(spec: Spec) -> None:
    if spec.train.mode != "exact":
        raise UnsupportedError(
            f"a sweep learns in exact mode, not {spec.train.mode}: its learners share every row"
        )
    if spec.alert.watches:
        raise UnsupportedError(
            "[alert] is for one learner, not for a sweep: each has a loss of its own, and which is "
            "the best one is known at the end; leave the table out, and train the best learner's "
            "job with it"
        )
    if spec.train.patience:
        raise UnsupportedError(
            f"train.patience = {spec.train.patience}: the learners of a sweep learn the same rows, "
            "so none stops early; data.holdout alone gives the held-out loss of each"
        )
