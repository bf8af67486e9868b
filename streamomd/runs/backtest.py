"""Backtest: train up to a day, evaluate on the next one, for each day of the data, in one run.

Rows are predicted by the model of the end of the period before, less a gap, and are learned after
the period: the schedule of delayed labels, whose clock stands still within a period. So the model
that predicts a period is bit-identical to one trained on the rows before it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamomd.checkpoint.manifest import KINDS
from streamomd.config.build_job import may_change
from streamomd.config.job_table import brief
from streamomd.config.spec import Spec, refuse_delay
from streamomd.core.errors import (
    DataError,
    OutputExistsError,
    ResumeRefusedError,
    StoppedError,
    UnsupportedError,
    UsageError,
)
from streamomd.core.urls import shown
from streamomd.core.wording import counted, suggestion
from streamomd.runs.modes import no_rows_learned
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import (
    Session,
    refuse_collection,
    refuse_selection,
    report_plan,
    report_rejected,
)
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.load_model import load_model
from streamomd.training.metrics.by_time import PERIODS, Backtest
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import backtest_result
from streamomd.training.open_checkpoint import refuse_diverged_again
from streamomd.training.progress import note, quiet_notes
from streamomd.training.signals import stop_on_signals

MANY = 10_000_000
"""Rows from which on a backtest that is not saved says so."""


def backtest(
    job: Any = None,
    *,
    by: str = "day",
    gap: float | str | None = None,
    checkpoint: str = "",
    restart: bool = False,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    log: str | None = None,
    quiet: bool = False,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Train up to each hour, day or week of the data, and evaluate on the next one.

    job, flags and the other arguments: as ``streamomd.train``; the job names ``data.time``, and its
    own checkpoint is neither read nor written. checkpoint: directory or URL to save the backtest
    to; the same call, or ``streamomd.resume``, continues one that was interrupted, bit-identically.
    restart: overwrite what is there. by: "hour", "day" or "week" (from Monday), in UTC. gap:
    seconds, or "1d", before each period whose rows are not learned when it is predicted; None: the
    job's data.delay.

    Gives rows, loss, error or rmse of all evaluated rows, and the same with ``period`` (its start),
    ``learned`` (rows that its model had learned), ``auc`` and ``auc_error`` of each period under
    ``periods``, of the latest 2,048; earlier ones are one, "earlier". With model.calibrate also
    ``calibrated``, of all rows with the log loss alone. ``rows_before``: of the periods before the
    first one with a model, which are not evaluated. A row belongs to the period in which it
    arrives, by stream time; ``late`` and ``ties`` count those that are not after the row before.
    With data.sample, rows that are not sampled are evaluated, too, and not learned.

    Raises UsageError without data.time, UnsupportedError for a job with hold-out rows or several
    epochs, ResumeRefusedError for a checkpoint of another backtest, DataError if the rows are all
    of one period, and what ``train`` raises.
    """
    if by not in PERIODS:
        raise UsageError(f"by = {by!r}: expected hour, day or week; {suggestion(by, PERIODS)}")
    refuse_collection(job, flags, "a backtest")
    reporting = Reporting(log, quiet)
    flags = {**flags, "storage_options": storage_options}
    own = checkpoint or (sets or {}).get("checkpoint.url")  # the job's is that of its run
    sets = {**(sets or {}), "checkpoint.url": own or "none"}
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as opened:
        session = Session.open(job, flags, sets, stop=stop, client=client)
        figures = Backtest(by, _gap(session.spec, gap))
        _refuse(session.spec)
        refuse_selection(session.spec, "a backtest")
        with session.prepare() as (new, connection):
            new.metrics.backtest = figures
            report_plan(new.plan, session.rows, "", session.choices)
            model, manager = _begin_or_resume(session, new, restart=restart)
            if not model.finished:
                _learn(session, model, manager, connection, opened)
            return _result(model)


def _gap(spec: Spec, gap: float | str | None) -> float:
    if gap is None:
        return spec.data.delay
    from streamomd.config.data_table import Data

    try:
        return Data.model_validate({"delay": gap}).delay
    except ValueError:
        raise UsageError(
            f"gap = {gap!r}: expected 0 or more seconds, or a duration such as 6h or 1d"
        ) from None


def _refuse(spec: Spec) -> None:
    if not spec.data.time:
        raise UsageError(
            "a backtest needs the rows' times: name their column in data.time (--time COLUMN)"
        )
    if spec.data.holds_out:
        raise UnsupportedError(
            f"data.holdout = {spec.data.holdout}: a backtest evaluates on all rows of later "
            "periods, and learns them; set data.holdout = 0 (--holdout 0)"
        )
    if spec.model.shapes == "all":
        raise UnsupportedError(
            "backtest: model.shapes = 'all' grows trees with labels that are not known yet where "
            "they predict; take model.shapes = 'columns'"
        )
    refuse_delay(spec, "backtest")


def _begin_or_resume(
    session: Session, model: Model, *, restart: bool
) -> tuple[Model, CheckpointManager | None]:
    """A new checkpoint, or the one that an interrupted backtest of the same job has left there."""
    checkpoint = model.spec.checkpoint
    try:
        return model, session.begin(model, restart=restart)
    except OutputExistsError:
        options = checkpoint.storage_options
        saved, loaded = load_model(
            checkpoint.url, storage_options=options, needs=KINDS, finite=True
        )
        if saved.metrics.backtest is None:
            raise
    report_rejected(loaded, saved.sequence)
    _refuse_another(saved, model)
    saved.spec, saved.recorded = model.spec, model.recorded
    refuse_diverged_again(saved, loaded)
    if saved.finished:
        note(f"{shown(saved.url)} has this backtest, finished: nothing is learned")
        return saved, None
    rows = counted(saved.metrics.total_rows, "row")
    manager = session.resume(saved, loaded, accept_new=False)
    note(f"resuming the backtest {shown(saved.url)} from commit {saved.sequence}, after {rows}")
    return saved, manager


def _refuse_another(saved: ModelData, model: ModelData) -> None:
    """Raise ResumeRefusedError if a checkpoint has a backtest of another job."""
    before, now = (
        {
            **dict(_keys(run.spec.to_json())),
            "--by": run.metrics.backtest.by if run.metrics.backtest else "",
            "--gap": run.metrics.backtest.gap if run.metrics.backtest else 0.0,
        }
        for run in (saved, model)
    )
    other = [f"{key} was {brief(before[key])}, is {brief(now[key])}" for key in now
             if before.get(key) != now[key] and not may_change(key)]  # fmt: skip
    if other:
        raise ResumeRefusedError(
            f"{shown(saved.url)} has a backtest of another job: {'; '.join(other)}. Name another "
            "--checkpoint, or overwrite this one with --restart"
        )


def _keys(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, table in tables.items():
        for key, value in table.items():
            yield f"{name}.{key}", value


def _learn(
    session: Session,
    model: Model,
    manager: CheckpointManager | None,
    connection: Any,
    reporting: Reporting,
) -> None:
    if manager is None and session.rows.rows >= MANY:
        note("this backtest is not saved: --checkpoint URL makes it resumable")
    try:
        session.learn(model, manager, connection, reporting)
    except StoppedError as error:
        if manager is not None:
            raise
        raise StoppedError(_stopped(model), signal=error.exit_code - 128) from None


def _stopped(model: ModelData) -> str:
    figures = model.metrics.backtest
    finished = counted(len(figures.periods) if figures else 0, "period")
    return (
        f"stopped after row {model.metrics.total_rows:,}, {finished} finished; nothing was saved: "
        "run it again with --checkpoint URL, which saves a backtest, and resumes it"
    )


def _result(model: ModelData) -> dict[str, Any]:
    figures = model.metrics.backtest
    assert figures is not None
    if not figures.periods:
        raise DataError(_no_period(model, figures.by))
    return backtest_result(figures, model)


def _no_period(model: ModelData, by: str) -> str:
    if not model.metrics.total_rows:
        return no_rows_learned(model.metrics)
    timed, why = model.metrics.by_time, ""
    if timed is not None and timed.late:
        why = f" {counted(timed.late, 'late row')} count when they arrive: give shards in order."
    if model.spec.data.sample:
        why += " data.sample may drop all rows before."
    return (
        f"no {by} has rows before it to learn from: all {model.metrics.total_rows:,} rows are of "
        f"one {by} or within the gap, or no row before is learned; choose a shorter --by or --gap, "
        f"or give more shards.{why}"
    )
