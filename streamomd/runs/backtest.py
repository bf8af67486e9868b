"""Backtest: train up to a day, evaluate on the next one, for each day of the data, in one run.

Rows are predicted by the model of the end of the period before, less a gap, and are learned after
the period: the schedule of delayed labels, whose clock stands still within a period. So the model
that predicts a period is bit-identical to one trained on the rows before it alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamomd.config.refusals import refuse_delay
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Times
from streamomd.core.counted import counted
from streamomd.core.errors import DataError, StoppedError, UnsupportedError, UsageError
from streamomd.core.finite import Place
from streamomd.core.nearest import suggestion
from streamomd.core.phases import phase
from streamomd.core.profiling import Stage
from streamomd.core.run_events import emit
from streamomd.runs.collection_job import refuse_collection
from streamomd.runs.delayed import DelayedRun, Mask
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session, report_plan
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.training.class_threads import classes_divided
from streamomd.training.fit_calibration import fit_calibration
from streamomd.training.holdout import with_places
from streamomd.training.metrics import Metrics, no_rows_learned
from streamomd.training.metrics.by_time import DAY, EARLIER_TEXT, HOUR, RETAINED, period_text
from streamomd.training.model import Model
from streamomd.training.progress import quiet_notes, watching
from streamomd.training.row_stream import no_rows
from streamomd.training.scoring.calibration import Calibration
from streamomd.training.signals import stop_on_signals
from streamomd.training.teaching import Schedule

PERIODS = {"hour": (HOUR, 0), "day": (DAY, 0), "week": (7 * DAY, -3 * DAY)}
"""Length and the start of the one of 1970, in nanoseconds. Weeks begin on Monday."""


@dataclass(eq=False)
class BacktestRun(DelayedRun):
    """A walk that predicts the rows of each period by the model of its start.

    length, origin: of periods. gap: nanoseconds before a period whose rows are not learned yet.
    periods: figures of those that are finished, the latest ones; earlier: of all before them,
    None without any. before: rows of the periods without a model.
    """

    predicts_all: ClassVar[bool] = True
    length: int = DAY
    origin: int = 0
    gap: int = 0
    periods: list[dict[str, Any]] = field(default_factory=list)
    before: int = 0
    earlier: dict[str, Any] | None = None
    _number: int | None = None
    _learned: int = 0
    _metrics: Metrics = field(default_factory=lambda: Metrics(classifies=True))
    _calibration: Calibration | None = None
    _finished: Any = field(default_factory=lambda: np.zeros(3))

    @property
    def schedule(self) -> Schedule:
        """When rows are learned: at the start of a period that begins after the gap."""
        return Schedule(self.gap + 1, self.length, self.origin)

    def rows_and_held_out(self, piece: Piece[Rows], shard: int) -> tuple[Batch, Mask | None]:
        """All rows of a piece with their own weights: only the second cursor samples."""
        return piece.value.batch, None

    def _end(self, stream: Times, low: int, high: int) -> int:
        after = int(self.schedule.now(stream[low : low + 1])[0]) + self.length
        return min(high, int(np.searchsorted(stream, after)))

    def _count(
        self,
        batch: Batch,
        bad: NDArray[np.int64],
        held: Mask | None,
        at: tuple[Place, Place],
        stream: Times,
    ) -> None:
        model = self.model
        model.metrics.count_skipped(bad, model.spec.data.max_bad_rows)
        if batch.time is None or not len(batch):
            return
        model.metrics.read_times(batch.time)
        self._teacher.learn_due(int(self.schedule.now(stream[:1])[0]))
        self._begin_period((int(stream[0]) - self.origin) // self.length)
        metrics = self._metrics
        margins, _ = self.predict_rows(stream, metrics, batch, None)
        metrics.count(len(batch))
        with Stage("metrics"):
            engine = model.engine
            metrics.examine(engine.loss, engine.classes, margins, batch.y, batch.weight)
        model.metrics.current[...] = self._finished + metrics.current
        model.metrics.count(len(batch))
        model.guard.predicted(metrics.current, margins, at)

    def _begin_period(self, number: int) -> None:
        """Begin a period, unless it is under way."""
        if number == self._number:
            return
        self.end_period()
        self._number, self._learned = number, self._teacher.learned
        self._metrics = Metrics(self.model.spec.model.classifies)
        self._metrics.begin(0)
        kind = self.model.spec.model.calibrate
        if kind != "none":
            self._calibration = fit_calibration(kind, self.model.metrics.margins)

    def end_period(self) -> None:
        """Note the figures of the period under way, if its model had learned a row."""
        number, metrics = self._number, self._metrics
        if number is None:
            return
        self._number = None
        self._finished = self._finished + metrics.current
        if not self._learned:
            self.before += metrics.total_rows
            return
        rank = metrics.detail.rank() if metrics.detail is not None else {}
        calibrated = metrics.calibrated(self._calibration)
        found = {
            "period": period_text(number, self.length, self.origin),
            "learned": self._learned,
            "rows": metrics.total_rows,
            **metrics.figures(metrics.current),
            "auc": rank.get("auc"),
            "auc_error": rank.get("auc_error"),
            **({"calibrated": calibrated} if self._calibration is not None else {}),
        }
        emit("period", "", "info", **found)
        self.periods.append({**found, "sums": metrics.current.copy()})
        if len(self.periods) > RETAINED:
            self._join_earliest()

    def _join_earliest(self) -> None:
        """Join the earliest period with those before it: figures of at most ``RETAINED``, and of
        all earlier ones together."""
        first = self.periods.pop(0)
        before = self.earlier or {"rows": 0, "sums": np.zeros(3)}
        sums = before["sums"] + first["sums"]
        self.earlier = {
            "period": EARLIER_TEXT,
            "learned": first["learned"],
            "rows": before["rows"] + first["rows"],
            **self.model.metrics.figures(sums),
            "auc": None,
            "auc_error": None,
            **_calibrated_together([before, first]),
            "sums": sums,
        }


def _calibrated_together(periods: list[dict[str, Any]]) -> dict[str, Any]:
    """``calibrated`` of the rows of all periods: the mean log loss, None if one has none; nothing
    without calibration."""
    known = [(one["calibrated"], one["sums"][0]) for one in periods if "calibrated" in one]
    if not known:
        return {}
    weight = sum(weight for _, weight in known)
    if not weight or any(one is None or one["log_loss"] is None for one, _ in known):
        return {"calibrated": {"log_loss": None}}
    total = sum(one["log_loss"] * weight for one, weight in known)
    return {"calibrated": {"log_loss": float(total / weight)}}


def backtest(
    job: Any = None,
    *,
    by: str = "day",
    gap: float | str | None = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    log: str | None = None,
    quiet: bool = False,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Train up to each hour, day or week of the data, and evaluate on the next one.

    job, flags and the other arguments: as ``streamomd.train``; the job names ``data.time``, and its
    checkpoint is neither read nor written. by: "hour", "day" or "week" (from Monday), in UTC. gap:
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
    epochs, DataError if the rows are all of one period, and what ``train`` raises.
    """
    if by not in PERIODS:
        raise UsageError(f"by = {by!r}: expected hour, day or week; {suggestion(by, PERIODS)}")
    refuse_collection(job, flags, "a backtest")
    reporting = Reporting(log, quiet)
    flags = {**flags, "storage_options": storage_options}
    sets = {**(sets or {}), "checkpoint.url": "none"}
    with stop_on_signals() as stop, quiet_notes(quiet), reporting.opened() as opened:
        session = Session.open(job, flags, sets, stop=stop, client=client)
        lag = _gap(session.spec, gap)
        _refuse(session.spec)
        with session.prepare() as (model, connection):
            report_plan(model.plan, session.rows, "", session.choices)
            length, origin = PERIODS[by]
            periods = (length, origin, round(lag * 1e9))
            rows = with_places(session.shards, model.holdout_by)  # by which rows are sampled
            run = BacktestRun(model, rows, None, [], stop, connection, None, *periods)
            seconds = _learn(run, session, opened)
            return _result(run, by, lag, seconds)


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
    refuse_delay(spec, "backtest")


def _learn(run: BacktestRun, session: Session, reporting: Reporting) -> float:
    """Walk over all rows; the seconds that it took."""
    model, rows = run.model, session.shards.rows
    with phase("compiling"):
        empty = no_rows(model.plan, session.shards)
        model.engine.warm(model.state, empty, learning=True)
        model.engine.warm(model.state, empty, learning=False)
    run.watchers.extend(reporting.watchers(model, rows, None))
    began = time.perf_counter()
    with classes_divided(model, rows), watching(run.watchers, model.metrics):
        try:
            run.learn_epochs(1)
        except StoppedError as error:
            raise StoppedError(_stopped(run), signal=error.exit_code - 128) from None
        run.end_period()
    return time.perf_counter() - began


def _stopped(run: BacktestRun) -> str:
    finished = f"{counted(len(run.periods), 'period')} finished"
    return (
        f"stopped after row {run.model.metrics.total_rows:,}, {finished}; a backtest saves "
        "nothing: run it again. With --log FILE each finished period is a line of the log"
    )


def _result(run: BacktestRun, by: str, gap: float, seconds: float) -> dict[str, Any]:
    model = run.model
    if not run.periods:
        raise DataError(_no_period(model, by))
    periods, sums = [*([run.earlier] if run.earlier else []), *run.periods], np.zeros(3)
    calibrated = _calibrated_together(periods)
    for one in periods:
        sums += one.pop("sums")
    timed = model.metrics.by_time
    assert timed is not None
    return {
        "by": by,
        "gap": gap,
        "rows": sum(one["rows"] for one in periods),
        **model.metrics.figures(sums),
        **calibrated,
        "periods": periods,
        "rows_before": run.before,
        "late": timed.late,
        "ties": timed.ties,
        "skipped": model.metrics.skipped,
        "seconds": seconds,
        "rows_per_second": model.metrics.total_rows / max(seconds, 1e-9),
        "compile_seconds": model.engine.compile_seconds,
    }


def _no_period(model: Model, by: str) -> str:
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
