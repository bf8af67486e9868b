"""Progress of training: loss, error and speed over rows, epochs, and skipped rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.history import Commit, History, speeds
from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.charts import Series, lines
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.analysis.report.over_time import charts_by_time, charts_by_update
from streamomd.analysis.report.verdict import percent
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData

Floats = NDArray[np.float64]
NOTE = "Each row was predicted before it was learned."
OCTAVES = 11  # of rows are drawn, the last ones: earlier points are noise
STEEP = 50.0  # greatest over least, above which a linear axis shows only the greatest


def learning(
    model: ModelData, run_history: History, learned: Mapping[str, Any], by: str = "day"
) -> Element:
    """Charts over rows, then the epochs. learned: of ``Model.result``. by: length of the periods of
    rows with times."""
    metrics, curve = model.metrics, curve_points(model.metrics)
    charts: list[Element] = []
    missing: list[Element] = []
    if len(curve) > 1:
        charts += _over_rows(curve, model.spec.model.loss, classifies=metrics.classifies)
    else:
        missing.append(paragraph(
            "No chart of the loss over rows: this checkpoint has no history: it was written "
            "by an earlier version, or the run has just started."
        ))  # fmt: skip
    charts += charts_by_update(model, run_history)
    charts += charts_by_time(model, learned, by)
    pace = speeds(run_history.commits)
    if len(pace) > 1:
        charts.append(_speed(pace))
    elif pace:
        missing.append(
            paragraph(f"Between its commits it learned {pace[0][1]:,.0f} rows per second.")
        )
    texts = [*missing, *_epochs(learned, metrics.classifies), _skipped(metrics)]
    return section("Training progress", grid(*charts), *texts)


def curve_points(metrics: Metrics) -> Floats:
    """(points, 4): total rows learned, and the sums of importance, loss and mistakes up to then;
    the last point is the current one."""
    rows = metrics.total_rows
    before = metrics.curve[metrics.curve[:, 0] < rows]
    return np.vstack([before, [[rows, *metrics.total]]]) if len(before) else before


def _over_rows(curve: Floats, loss: str, *, classifies: bool) -> list[Element]:
    since = np.diff(curve, axis=0, prepend=np.zeros((1, 4)))
    late = curve[:, 0] * 2.0**OCTAVES >= curve[-1, 0]
    curve, since = curve[late], since[late]
    rows = curve[:, 0]
    losses = _chart(f"{loss.capitalize()} loss", rows, means(curve, 2), means(since, 2))
    wrong = [means(sums, 3) for sums in (curve, since)]
    if classifies:
        return [losses, _chart("Error", rows, *wrong)]
    return [losses, _chart("RMSE", rows, *map(np.sqrt, wrong))]


def _chart(name: str, rows: Floats, so_far: Floats, since: Floats) -> Element:
    """A metric over rows: of all rows, and of those since the previous point."""
    both = np.concatenate([so_far, since])
    legal = both[both > 0.0]
    steep = len(legal) > 0 and bool(legal.max() > STEEP * legal.min())
    series = [
        Series("of all rows so far", rows, so_far),
        Series("since the previous point", rows, since, thin=True),
    ]
    x = Axis.of("rows learned", rows, log=True)
    return lines(f"{name} over rows", series, x, Axis.of(name, both, log=steep), note=NOTE)


def means(sums: Floats, column: int) -> Floats:
    """A column's sums by the importance's; NaN where there is none.

    >>> means(np.array([[1, 2.0, 1.0, 0.5], [2, 0.0, 0.0, 0.0]]), 2)
    array([0.5, nan])
    """
    none = np.full(len(sums), np.nan)
    found: Floats = np.divide(sums[:, column], sums[:, 1], out=none, where=sums[:, 1] > 0.0)
    return found


def _speed(pace: list[tuple[Commit, float]]) -> Element:
    rows = np.array([float(commit.rows) for commit, _ in pace])
    rate = np.array([speed for _, speed in pace])
    series = [Series("rows per second since the previous commit", rows, rate)]
    x = Axis.of("rows learned", rows)
    note = "From the times of the commits; a pause between two commits counts as time."
    return lines("Throughput", series, x, Axis.of("rows / s", rate, zero=True), note=note)


def _epochs(learned: Mapping[str, Any], classifies: bool) -> list[Element]:
    """A line for each epoch, if there are several, also for the hold-out rows."""
    wrong = "error" if classifies else "rmse"
    held = learned["holdout"]
    lines: list[tuple[str, ...]] = [
        (f"{number}", f"{epoch['rows']:,}", _loss(epoch), _wrong(epoch, wrong))
        for number, epoch in enumerate(learned["epochs"], 1)
    ]
    heads = ["epoch", "rows", "loss", wrong]
    if held is not None:
        heads += ["held out: rows", "loss", wrong]
        holdout_columns = [
            (f"{epoch['rows']:,}", _loss(epoch), _wrong(epoch, wrong)) for epoch in held["epochs"]
        ]
        lines = [(*line, *more) for line, more in zip(lines, holdout_columns, strict=False)]
    made = table(heads, lines, numbers=range(len(heads)), label="Metrics by epoch")
    return [element("h3", "By epoch"), made] if len(lines) > 1 else []


def _loss(one: Mapping[str, Any]) -> str:
    return "nan" if one["loss"] is None else brief(one["loss"])


def _wrong(one: Mapping[str, Any], key: str) -> str:
    if one[key] is None:
        return "nan"
    return percent(one[key]) if key == "error" else brief(one[key])


def _skipped(metrics: Metrics) -> Element:
    skipped = metrics.skipped
    if not skipped:
        return paragraph("No row was skipped.")
    rows = [(reason, f"{count:,}") for reason, count in skipped.items()]
    return element(
        "div",
        element("h3", "Skipped rows by reason"),
        table(["reason", "rows"], rows, numbers=(1,)),
    )
