"""Alerts while rows are learned: the loss rises, or columns change. See docs/alerts.md.

They see rows as they are learned for the first time, in their order, each once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.config.run_tables import Alert
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats, taken
from streamomd.core.errors import AlertError, UnsupportedError
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.engine import Engine
from streamomd.features import Plan
from streamomd.features.encode import category_columns
from streamomd.training.column_statistics import (
    MOST_BYTES,
    Change,
    ColumnStatistics,
    ColumnWindows,
    Drift,
    Fired,
    PartRows,
    PartWatcher,
    SeenCategories,
    block_of,
)
from streamomd.training.metrics import Metrics
from streamomd.training.progress import note

if TYPE_CHECKING:
    from streamomd.training.checkpoint_manager import CheckpointManager
    from streamomd.training.model_data import ModelData


def plan_to_read(alert: Alert | None, plan: Plan) -> Plan:
    """The plan by which rows are encoded to learn them: with the values of columns if statistics
    need them.

    alert: None if rows are not watched.
    """
    plan = plan.learning
    return replace(plan, column_values=True) if alert and alert.of_columns else plan


def learned_rows(batch: Batch, held: NDArray[np.bool_] | None) -> Batch:
    """The rows that are no hold-out rows."""
    return batch if held is None else taken(batch, np.flatnonzero(~held))


def part_watcher(engine: Engine, alert: Alert | None, plan: Plan, rows: int) -> PartWatcher | None:
    """Returns the watcher of a part of at most this many rows; None if rows are not watched."""
    if alert is None:
        return None
    return PartWatcher(engine, alert, new_windows(alert, plan), block_of(rows))


def watch_rows(model: ModelData, batch: Batch, margins: Floats) -> None:
    """Compare rows that were just learned with those before, and report alerts.

    margins: of before learning.
    """
    before = model.engine.rows_learned(model.state) - float((batch.weight > 0.0).sum())
    given = model.engine, model.spec.alert, model.plan, model.metrics
    report_alerts(model, alerts_of_rows(*given, batch, margins, max(before, 0.0)))


def alerts_of_rows(
    engine: Engine, job: Alert, plan: Plan, metrics: Metrics, batch: Batch, margins: Floats,
    learned: float = 0.0,
) -> list[Fired]:  # fmt: skip
    """The alerts of rows that were just learned and counted. margins: of before learning.

    learned: ``Engine.rows_learned`` before them.
    """
    metrics.drift = drift = metrics.drift or Drift()
    first, alerts = metrics.total_rows - len(batch), []
    if job.loss:
        losses = engine.row_losses(learned, margins, batch.y, batch.weight)[:, 0]
        alerts += [_rise(first + at + 1, value, job) for at, value in _rises(drift, job, losses)]
    if job.of_columns and batch.columns is not None:
        windows = _windows(drift, job, plan)
        for after in windows.add(batch.columns, job.rows):
            alerts += _changed(first + after, windows.changes(), job)
            windows.end()
        _save(drift, windows)
    return _fired(drift, alerts)


def watch_parts(model: ModelData, parts: Iterable[PartRows]) -> None:
    """Compare the rows of a round's parts, in their order, with those before them, and report
    alerts. The metrics have counted the rows."""
    parts, job, alerts = [*parts], model.spec.alert, []
    if not parts:
        return
    model.metrics.drift = drift = model.metrics.drift or Drift()
    first = model.metrics.total_rows - sum(part.rows for part in parts)
    for part in parts:
        if job.loss:
            ends = np.minimum((np.arange(len(part.losses)) + 1) * part.block, part.rows).tolist()
            rises = _rises(drift, job, part.losses, part.counts)
            alerts += [_rise(first + ends[at], value, job) for at, value in rises]
        if part.windows:
            windows, after = _windows(drift, job, model.plan), first
            for some in part.windows:
                windows.merge(some)
                after += some.rows
                if windows.window.rows >= job.rows:
                    alerts += _changed(after, windows.changes(), job)
                    windows.end()
            _save(drift, windows)
        first += part.rows
    report_alerts(model, _fired(drift, alerts))


def report_alerts(model: ModelData, found: Iterable[Fired]) -> None:
    """Report alerts in the order of rows; ``Model.alert`` is the last one."""
    for one in found:
        model.alert = worded_alert(one, model.plan)
        note(f"alert: {model.alert}", "alert", "warning", **alert_json(one, model.plan))


def alert_json(one: Fired, plan: Plan) -> dict[str, Any]:
    """An alert's fields."""
    limited = {"value": min(one.value, 1e308), "limit": one.limit}
    return {"row": one.row, "kind": one.kind, "column": _column(one, plan), **limited}


def worded_alert(one: Fired, plan: Plan) -> str:
    """An alert as a person reads it."""
    name = f"column {printable(repr(_column(one, plan)))}"
    what, key = {
        "loss": (f"the loss rises: its sum of rises is {one.value:.4g}", "threshold"),
        "mean": (f"the mean of {name} moved by {one.value:.3g} standard deviations", "mean"),
        "null_rate": (f"missing values of {name} rose by {one.value:.2%}", "null_rate"),
        "new_categories": (
            f"new categories of {name}: {100.0 * one.value:.4g} in 100 rows", "new_categories"
        ),
    }[one.kind]  # fmt: skip
    return f"{what}, above alert.{key} = {one.limit:g}, after row {one.row:,}"


def alerts_of(model: ModelData) -> list[dict[str, Any]] | None:
    """The last alerts of a run; None if it has no [alert]."""
    drift = model.metrics.drift
    if not model.spec.alert.watches and drift is None:
        return None
    return [alert_json(one, model.plan) for one in (drift.alerts if drift else ())]


def fails_on_alert(model: ModelData) -> bool:
    """Whether an alert ends the run."""
    asked = model.fail_on_alert
    return model.spec.update.fail_on_alert if asked is None else asked


def raise_alert(model: ModelData, manager: CheckpointManager | None) -> NoReturn:
    """Commit, and raise AlertError. Called between batches."""
    saved = f"commit {manager.commit(hurry=True).sequence}" if manager else "nothing was saved"
    text, model.alert = model.alert, ""
    raise AlertError(f"{text}; {saved}")


def refuse_many_categories(spec: Spec, plan: Plan) -> None:
    """Raise UnsupportedError if the categories that columns have had do not fit into a commit."""
    columns, limit = category_columns(plan), spec.alert.new_categories
    nbytes = len(columns) * max(1 << plan.bits >> 3, 8)
    if limit is not None and nbytes > MOST_BYTES:
        raise UnsupportedError(
            f"alert.new_categories = {limit:g} with {counted(len(columns), 'column')} of "
            f"categories and data.bits = {plan.bits}: a commit has a bit for each coordinate of "
            f"each column, {nbytes >> 20:,} MiB, and at most {MOST_BYTES >> 20} MiB are saved; "
            "lower data.bits, or leave alert.new_categories out"
        )


def check_counters(model: ModelData) -> None:
    """Raise ValueError unless what a commit saved for class weights, calibration and alerts has the
    shapes of this model's."""
    metrics, plan = model.metrics, model.plan
    columns, classes = len(plan.numeric), len(plan.classes)
    for name, array in (("classes", metrics.classes), ("margins", metrics.margins)):
        if array is not None and not (np.isfinite(array).all() and (array >= 0.0).all()):
            raise ValueError(f"metrics.{name} holds a number that is not a weight of rows")
    if metrics.classes is not None and metrics.classes.shape != (classes + 1,):
        raise ValueError(f"metrics.classes of {metrics.classes.shape} for {classes} classes")
    if (drift := metrics.drift) is None:
        return
    categorical = len(category_columns(plan))
    words = SeenCategories.none(1, plan.bits).bits.shape[1]
    shapes: dict[str, list[tuple[int, ...]]] = {
        "loss": [(5,)], "before": [(4, columns)], "window": [(4, columns)], "rows": [(2,)],
        "seen": [(0, words), (categorical, words)],
    }  # fmt: skip
    for name, array in drift.arrays.items():
        if name != "categories" and array.shape not in shapes.get(name, ()):
            raise ValueError(f"metrics.drift{name} of {array.shape}")
    if "categories" in drift.arrays:
        keys, seen = drift.arrays["categories"], SeenCategories(drift.arrays["seen"])
        if not np.array_equal(keys, seen.valid(keys, plan.bits)):
            raise ValueError("metrics.driftcategories holds a number that is not a category")
    most = {"new_categories": categorical, "loss": 0}
    if not all(-1 <= one.column < most.get(one.kind, columns) for one in drift.alerts):
        raise ValueError(f"an alert of another column than the {columns} numeric ones")


def _column(one: Fired, plan: Plan) -> str | None:
    names = category_columns(plan) if one.kind == "new_categories" else plan.numeric
    return names[one.column] if one.column >= 0 else None


def _rises(
    drift: Drift, job: Alert, losses: Floats, counts: Floats | None = None
) -> list[tuple[int, float]]:
    saved = drift.arrays.get("loss")
    test = PageHinkley() if saved is None else PageHinkley.from_array(saved)
    found = test.add(losses, job, counts)
    drift.arrays["loss"] = test.array()
    return found


def _rise(row: int, value: float, job: Alert) -> Fired:
    return Fired(row, "loss", -1, value, job.threshold)


def _changed(row: int, changes: Iterable[Change], job: Alert) -> list[Fired]:
    limits = {kind: getattr(job, kind) for kind in ("mean", "null_rate", "new_categories")}
    return [
        Fired(row, *change, limit)
        for change in changes
        if (limit := limits[change.kind]) is not None and change.value > limit
    ]


def _fired(drift: Drift, found: Iterable[Fired]) -> list[Fired]:
    """Alerts in the order of rows, recorded."""
    ordered = sorted(found, key=lambda one: one.row)
    for one in ordered:
        drift.fire(one)
    return ordered


def new_windows(job: Alert, plan: Plan) -> ColumnWindows:
    """Returns windows of no rows yet."""
    watched = len(category_columns(plan)) if job.new_categories is not None else 0
    return ColumnWindows.none(len(plan.numeric), watched, plan.bits)


def _windows(drift: Drift, job: Alert, plan: Plan) -> ColumnWindows:
    """Those of the rows so far. They begin again where categories were not watched before."""
    arrays, none = drift.arrays, new_windows(job, plan)
    if "window" not in arrays or len(arrays["seen"]) < len(none.seen.bits):
        return none
    before, window = arrays["rows"].tolist()
    return ColumnWindows(
        ColumnStatistics(before, arrays["before"]),
        ColumnStatistics(window, arrays["window"], arrays["categories"]),
        SeenCategories(arrays["seen"]),
    )


def _save(drift: Drift, windows: ColumnWindows) -> None:
    before, window = windows.before, windows.window
    drift.arrays |= {
        "before": before.sums, "window": window.sums, "seen": windows.seen.bits,
        "categories": window.categories, "rows": np.array([before.rows, window.rows]),
    }  # fmt: skip


@dataclass(eq=False)
class PageHinkley:
    """After n values x with mean m: U <- alpha U + x - m - delta, and the least U so far.

    An alert where U - least > threshold, after ``min_instances`` values; then it starts over.
    A mean of b values counts for all of them: U <- alpha^b U + b (x - m - delta).
    """

    n: float = 0.0
    mean: float = 0.0
    up: float = 0.0
    least: float = 0.0
    alerted: float = 0.0

    def add(
        self, values: Floats, job: Alert, counts: Floats | None = None
    ) -> list[tuple[int, float]]:
        """Take values in their order; the places of those that alert, with U - least.

        counts: of how many rows each is the mean; None: of one.
        """
        n, mean, up, least = self.n, self.mean, self.up, self.least
        alerted, places = self.alerted > 0.0, []
        alpha, delta, enough = job.alpha, job.delta, job.min_instances
        many = itertools.repeat(1.0) if counts is None else counts.tolist()
        for at, (x, b) in enumerate(zip(values.tolist(), many, strict=False)):
            if alerted:
                n = mean = up = 0.0
                alerted = False
            begins = n == 0.0
            n += b
            mean += (x - mean) * b / n
            fade = alpha if b == 1.0 else alpha**b
            up = fade * up + b * (x - mean) - b * delta
            if begins or up < least:
                least = up
            if up - least > job.threshold and n >= enough:
                places.append((at, up - least))
                alerted = True
        self.n, self.mean, self.up, self.least = n, mean, up, least
        self.alerted = float(alerted)
        return places

    def array(self) -> Floats:
        """What a checkpoint saves."""
        return np.array([self.n, self.mean, self.up, self.least, self.alerted])

    @classmethod
    def from_array(cls, saved: Floats) -> Self:
        """Back from ``array``."""
        return cls(*saved.tolist())
