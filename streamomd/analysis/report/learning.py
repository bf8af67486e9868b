"""Progress of training over rows, epochs and time: loss, error, speed, skipped rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.history import Commit, History, Update, speeds
from streamomd.analysis.report.charts import EPOCH, Axis, Series, brief, lines
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.analysis.report.verdict import error_or_figure
from streamomd.core.batch import Floats
from streamomd.features import Plan
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.by_time import EARLIER_TEXT
from streamomd.training.model_data import ModelData

Slice = Mapping[str, Any]
DAY = re.compile(r"\d{4}-\d\d-\d\d")
OTHER = "(other)"
FEWEST = 2  # points of a line


def charts_by_update(model: ModelData, run_history: History) -> list[Element]:
    """The loss, and error or RMSE, of the rows of each update whose commits are retained."""
    updates = [*_finished(model, run_history.updates)]
    if len(updates) < FEWEST:
        return []
    number = np.array([one.number for one, _ in updates], dtype=np.float64)
    x = Axis.of_integers("update (0: the first run)", number)
    note = (
        f"Rows of each update, each predicted before it was learned; written from "
        f"{updates[0][0].written:%Y-%m-%d %H:%M} to {updates[-1][0].written:%Y-%m-%d %H:%M} UTC."
    )
    return [
        lines(f"{name} by update", [Series(name, number, y)], x, Axis.of(name, y), note=note)
        for name, y in _measures(model, [figures for _, figures in updates])
    ]


def charts_by_time(model: ModelData, learned: Mapping[str, Any], by: str) -> list[Element]:
    """Loss, and error or RMSE, of learned rows by day or hour of their time, and of hold-out rows.

    learned: of ``Model.result``. by: "day" or "hour".
    """
    sets = [("learned rows", learned.get("by_time"))]
    sets += [("hold-out rows", (learned["holdout"] or {}).get("by_time"))]
    known = [(name, _periods(timed[by])) for name, timed in sets if timed]
    known = [(name, periods) for name, periods in known if periods]
    if not known or max(len(periods) for _, periods in known) < FEWEST:
        return []
    starts = [np.array([days for days, _ in periods]) for _, periods in known]
    x = Axis.of_integers(f"{by} (UTC)", np.concatenate(starts), dates=True)
    note = "Rows by their own time; learned rows were predicted before they were learned."
    charts = []
    for name, _ in _measures(model, [one for _, periods in known for _, one in periods]):
        key = {"Error": "error", "RMSE": "rmse"}.get(name, "loss")
        series = [
            Series(which, when, np.array([_number(one[key]) for _, one in periods]))
            for (which, periods), when in zip(known, starts, strict=True)
        ]
        y = Axis.of(name, np.concatenate([one.y for one in series]))
        charts.append(lines(f"{name} by {by}", series, x, y, note=note))
    return charts


def _periods(figures: Sequence[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
    """Days since 1970, and the figures, of each period that has its own."""
    found = []
    for one in figures:
        if one["period"] != EARLIER_TEXT and one["rows"]:
            moment = datetime.fromisoformat(one["period"].replace("Z", ""))
            found.append(((moment - datetime(1970, 1, 1)) / timedelta(days=1), one))
    return found


def _finished(
    model: ModelData, updates: Sequence[Update]
) -> Iterator[tuple[Update, dict[str, float | None]]]:
    """Each update with its figures: what the next one started from, less what it started from."""
    metrics = model.metrics
    ends = [(one.number, one.rows, one.sums) for one in updates]
    importance, loss, wrong = metrics.total.tolist()
    if ends:
        ends.append((ends[-1][0] + 1, metrics.total_rows, (importance, loss, wrong)))
    for one, (number, rows, sums) in zip(updates, ends[1:], strict=True):
        if number == one.number + 1 and rows > one.rows:
            yield one, metrics.figures(np.array(sums) - np.array(one.sums))


def _measures(
    model: ModelData, figures: Sequence[Mapping[str, float | None]]
) -> Iterator[tuple[str, Any]]:
    loss = f"{model.spec.model.loss.capitalize()} loss"
    wrong = ("Error", "error") if model.metrics.classifies else ("RMSE", "rmse")
    for name, key in ((loss, "loss"), wrong):
        y = np.array([_number(one[key]) for one in figures], dtype=np.float64)
        if not np.isnan(y).all():
            yield name, y


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def day_column(plan: Plan) -> str:
    """A column whose values are dates or times; "" if there is none."""
    if plan.dates:
        return plan.dates[0].column
    return next((name for name, _ in plan.partitions if name in ("day", "date", "dt")), "")


def charts_by_day(model: ModelData, column: str, slices: Sequence[Slice]) -> list[Element]:
    """Loss, and error or RMSE, of the given rows by day; none of values that are not days."""
    days = _days(slices)
    if len(days) < FEWEST:
        return []
    at = np.array([(day - EPOCH).days for day in days], dtype=np.float64)
    x = Axis.of_integers(column, at, dates=True)
    note = "The current model on the given rows of each day."
    return [
        lines(f"{name} by day", [Series(name, at, y)], x, Axis.of(name, y), note=note)
        for name, y in _measures(model, [*days.values()])
    ]


def _days(slices: Sequence[Slice]) -> dict[date, dict[str, float | None]]:
    """Figures by day, in order. Empty if a value is not a date, or there are too many of them."""
    found: dict[date, list[Slice]] = {}
    for one in slices:
        if one["value"] is None:
            continue
        if one["value"] == OTHER or not DAY.match(str(one["value"])):
            return {}
        try:
            found.setdefault(date.fromisoformat(str(one["value"])[:10]), []).append(one)
        except ValueError:
            return {}
    return {day: _together(found[day]) for day in sorted(found)}


def _together(slices: Sequence[Slice]) -> dict[str, float | None]:
    """The weighted means of a day's times."""
    weight = sum(one["weight"] for one in slices)
    if not weight or any(one["loss"] is None for one in slices):
        return {"loss": None, "error": None, "rmse": None}
    known: dict[str, float | None] = {
        key: None
        if slices[0][key] is None
        else sum(one["weight"] * one[key] for one in slices) / weight
        for key in ("loss", "error")
    }
    squares = [one["weight"] * (one["rmse"] or 0.0) ** 2 for one in slices]
    rmse = None if slices[0]["rmse"] is None else math.sqrt(sum(squares) / weight)
    return {**known, "rmse": rmse}


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
        (f"{number}", f"{epoch['rows']:,}", _loss(epoch), error_or_figure(epoch, wrong))
        for number, epoch in enumerate(learned["epochs"], 1)
    ]
    heads = ["epoch", "rows", "loss", wrong]
    if held is not None:
        heads += ["held out: rows", "loss", wrong]
        holdout_columns = [
            (f"{epoch['rows']:,}", _loss(epoch), error_or_figure(epoch, wrong))
            for epoch in held["epochs"]
        ]
        lines = [(*line, *more) for line, more in zip(lines, holdout_columns, strict=False)]
    made = table(heads, lines, numbers=range(len(heads)), label="Metrics by epoch")
    return [element("h3", "By epoch"), made] if len(lines) > 1 else []


def _loss(one: Mapping[str, Any]) -> str:
    return "nan" if one["loss"] is None else brief(one["loss"])


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
