"""Alerts while rows are learned: the loss rises, or columns change. See docs/monitoring.md.

They see rows as they are learned for the first time, in their order, each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, taken
from streamomd.core.errors import AlertError
from streamomd.core.urls import printable
from streamomd.training.column_statistics import Change, ColumnStatistics, columns_of
from streamomd.training.metrics.drift import Drift, Fired
from streamomd.training.page_hinkley import PageHinkley
from streamomd.training.progress import note

if TYPE_CHECKING:
    from streamomd.training.checkpoint_manager import CheckpointManager
    from streamomd.training.model import Model

Floats = NDArray[np.float64]
COLUMNS = ("c", "before", "window", "seen", "rows")
"""The arrays of ``ColumnStatistics``, in its order."""


def watch_rows(model: Model, batch: Batch, margins: Floats, held: Any) -> None:
    """Compare rows that were just learned with those before, and report alerts.

    margins: of before learning. held: hold-out rows, which do not count.
    """
    if held is not None:
        at = np.flatnonzero(~held)
        batch, margins = taken(batch, at), margins[at]
    metrics, job, columns = model.metrics, model.spec.alert, model.plan.numeric
    metrics.drift = drift = metrics.drift or Drift()
    first = metrics.total_rows - len(batch)
    found = _rises(model, drift, batch, margins, first) if job.loss else []
    found += _changes(model, drift, batch, first) if job.of_columns else []
    for one in sorted(found, key=lambda one: one.row):
        drift.fire(one)
        model.alert = worded_alert(one, columns)
        note(f"alert: {model.alert}", "alert", "warning", **alert_json(one, columns))


def alert_json(one: Fired, columns: tuple[str, ...]) -> dict[str, Any]:
    """An alert's fields. columns: the numeric ones."""
    column = columns[one.column] if one.column >= 0 else None
    limited = {"value": min(one.value, 1e308), "limit": one.limit}
    return {"row": one.row, "kind": one.kind, "column": column, **limited}


def worded_alert(one: Fired, columns: tuple[str, ...]) -> str:
    """An alert as a person reads it."""
    name = printable(repr(columns[one.column])) if one.column >= 0 else ""
    what, key = {
        "loss": (f"the loss rises: its sum of rises is {one.value:.4g}", "threshold"),
        "mean": (f"the mean of column {name} moved by {one.value:.3g} standard deviations", "mean"),
        "null_rate": (f"missing values of column {name} rose by {one.value:.2%}", "null_rate"),
        "new_categories": (
            f"{one.value:.2%} of rows have a category not seen before", "new_categories"
        ),
    }[one.kind]  # fmt: skip
    return f"{what}, above alert.{key} = {one.limit:g}, after row {one.row:,}"


def alerts_of(model: Model) -> list[dict[str, Any]] | None:
    """The last alerts of a run; None if it has no [alert]."""
    drift = model.metrics.drift
    if not model.spec.alert.watches and drift is None:
        return None
    return [alert_json(one, model.plan.numeric) for one in (drift.alerts if drift else ())]


def fails_on_alert(model: Model) -> bool:
    """Whether an alert ends the run."""
    asked = model.fail_on_alert
    return model.spec.update.fail_on_alert if asked is None else asked


def raise_alert(model: Model, manager: CheckpointManager | None) -> NoReturn:
    """Commit, and raise AlertError. Called between batches."""
    saved = f"commit {manager.commit(hurry=True).sequence}" if manager else "nothing was saved"
    text, model.alert = model.alert, ""
    raise AlertError(f"{text}; {saved}")


def check_counters(model: Model) -> None:
    """Raise ValueError unless what a commit saved for class weights, calibration and alerts has the
    shapes of this model's."""
    metrics, plan = model.metrics, model.plan
    columns, classes = len(plan.numeric), len(plan.classes)
    for name, array in (("classes", metrics.classes), ("margins", metrics.margins)):
        if array is not None and not (np.isfinite(array).all() and (array >= 0.0).all()):
            raise ValueError(f"metrics.{name} holds a number that is not a weight of rows")
    if metrics.classes is not None and metrics.classes.shape != (classes + 1,):
        raise ValueError(f"metrics.classes of {metrics.classes.shape} for {classes} classes")
    if metrics.drift is None:
        return
    shapes: dict[str, tuple[int, ...]] = {
        "loss": (5,), "c": (columns,), "before": (3, columns), "window": (3, columns), "rows": (4,),
    }  # fmt: skip
    for name, array in metrics.drift.arrays.items():
        sizes = [shapes[name]] if name != "seen" else [(0,), (1 << plan.bits,)]
        if array.shape not in sizes:
            raise ValueError(f"metrics.drift{name} of {array.shape}")
    if not all(-1 <= one.column < columns for one in metrics.drift.alerts):
        raise ValueError(f"an alert of another column than the {columns} numeric ones")


def _rises(model: Model, drift: Drift, batch: Batch, margins: Floats, first: int) -> list[Fired]:
    job, engine = model.spec.alert, model.engine
    before = engine.rows_learned(model.state) - float((batch.weight > 0.0).sum())
    losses = engine.row_losses(max(before, 0.0), margins, batch.y, batch.weight)[:, 0]
    saved = drift.arrays.get("loss")
    test = PageHinkley() if saved is None else PageHinkley.from_array(saved)
    found = test.add(losses, job)
    drift.arrays["loss"] = test.array()
    return [Fired(first + at + 1, "loss", -1, value, job.threshold) for at, value in found]


def _changes(model: Model, drift: Drift, batch: Batch, first: int) -> list[Fired]:
    job, plan, statistics = model.spec.alert, model.plan, _statistics(model, drift)
    found, low = [], 0
    while low < len(batch):
        high = min(len(batch), low + max(job.rows - int(statistics.rows[1]), 1))
        values, coordinates, row = columns_of(plan, batch.rows(low, high))
        used = slice(None) if len(statistics.seen) else slice(0)
        statistics.add(values, coordinates[used], row[used])
        low = high
        if statistics.rows[1] >= job.rows:
            for change in statistics.changes():
                limit = _limit(model, change)
                if limit is not None and change.value > limit:
                    found.append(Fired(first + high, *change, limit))
            statistics.next_window()
    drift.arrays |= {name: getattr(statistics, name) for name in COLUMNS}
    return found


def _statistics(model: Model, drift: Drift) -> ColumnStatistics:
    """Those of the rows so far."""
    if all(name in drift.arrays for name in COLUMNS):
        return ColumnStatistics(*(drift.arrays[name] for name in COLUMNS))
    hashed = model.plan.hashes and model.spec.alert.new_categories is not None
    return ColumnStatistics.none(len(model.plan.numeric), 1 << model.plan.bits if hashed else 0)


def _limit(model: Model, change: Change) -> float | None:
    found: float | None = getattr(model.spec.alert, change.kind)
    return found
