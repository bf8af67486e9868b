"""Predictions against labels: metrics of each set of rows, confusion, calibration, each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.charts import Series, heat, lines
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.analysis.report.over_time import charts_by_day, day_column
from streamomd.analysis.report.thresholds import thresholds
from streamomd.analysis.report.verdict import percent
from streamomd.core.counted import counted
from streamomd.training.model import Model

Result = Mapping[str, Any]
FIGURES = (
    ("loss", "loss"), ("error", "error"), ("auc", "AUC"),
    ("average_precision", "average precision"), ("rmse", "RMSE"), ("mae", "MAE"), ("r2", "R²"),
)  # fmt: skip
MOST_DRAWN = 30  # classes that fit into a confusion chart


class Rows(NamedTuple):
    """A set of rows that were predicted: a name, what it is, and its metrics."""

    name: str
    text: str
    result: Result


def outcomes(model: Model, learned: Result, tried: Result | None) -> Element:
    """``Model.result`` on rows before they were learned, and ``Model.evaluate`` on given rows."""
    title = "Predictions and labels"
    if not learned["rows"] and tried is None:
        return section(title, paragraph("No row was predicted yet."))
    sets = [*_sets(learned, tried)]
    return section(
        title,
        _metrics(sets),
        element("ul", *(element("li", f"{one.name}: {one.text}") for one in sets)),
        grid(*_charts(model, sets), *_by_day(model, tried)),
        *_missing(model, sets),
        *_by_class(sets),
        *thresholds(model),
    )


def _sets(learned: Result, tried: Result | None) -> list[Rows]:
    text = "each row was predicted before it was learned, while the model changed: metrics of rows "
    text += "that continue the stream."
    sets = [Rows("learned rows", text, learned)] if learned["rows"] else []
    held = learned["holdout"]
    if held is not None and held["rows"]:
        best = f" Epoch {held['best_epoch']} was the best." if len(held["epochs"]) > 1 else ""
        text = f"{held['rows']:,} rows per epoch were held out and never learned.{best}"
        sets.append(Rows("hold-out rows", text, held))
    if tried is not None:
        text = f"the current model on {counted(tried['rows'], 'row')}. "
        text += "If it learned these rows, the metrics are better than on new ones."
        sets.append(Rows("given rows", text, tried))
    return sets


def _metrics(sets: Sequence[Rows]) -> Element:
    known = [(key, name) for key, name in FIGURES if _known(sets, key)]
    heads = ["", "rows", *(name for _, name in known)]
    rows = [
        (one.name, f"{one.result['rows']:,}", *(_figure(one.result, key) for key, _ in known))
        for one in sets
    ]
    return table(heads, rows, numbers=range(1, len(heads)), label="Metrics by set of rows")


def _known(sets: Sequence[Rows], key: str) -> bool:
    return any(one.result.get(key) is not None for one in sets)


def _figure(result: Result, key: str) -> str:
    number, error = result.get(key), result.get(f"{key}_error")
    if number is None:
        return ""
    text = percent(number) if key == "error" else brief(number)
    return f"{text} ± {error:.1g}" if error else text


def _charts(model: Model, sets: Sequence[Rows]) -> list[Element]:
    charts, names = [], [str(name) for name in model.plan.classes]
    for index, one in enumerate(sets):
        confusion = one.result["confusion"]
        if confusion is not None and len(names) <= MOST_DRAWN:
            note = "Weight of rows; the colour shows the share of the true class."
            title = f"Confusion of {one.name}" if index else "Confusion"
            charts.append(heat(title, names, np.array(confusion), note=note))
    before = [(one.name, one.result["calibration"]) for one in sets if one.result["calibration"]]
    after = [
        (one.name, found["calibration"]) for one in sets if (found := one.result.get("calibrated"))
    ]
    charts += [_calibration("Calibration", before)] if before else []
    kind = model.spec.model.calibrate
    title = "Calibration without class weights" if kind == "none" else f"Calibration after {kind}"
    return [*charts, *([_calibration(title, after)] if after else [])]


def _missing(model: Model, sets: Sequence[Rows]) -> list[Element]:
    """Why a chart is missing, in a sentence; none if there are both."""
    result = sets[0].result
    if not model.plan.classes:
        return []
    if result["confusion"] is None:
        return [paragraph("No confusion matrix: it was not saved, or there are more than 100 "
                          "classes.")]  # fmt: skip
    if len(model.plan.classes) > MOST_DRAWN:
        return [paragraph(f"The confusion matrix is drawn of up to {MOST_DRAWN} classes.")]
    if not result["calibration"] and not result.get("calibrated"):
        return [paragraph("No calibration: it takes two classes, and a loss that gives "
                          "probabilities.")]  # fmt: skip
    return []


def _calibration(
    title: str, curves: Sequence[tuple[str, Sequence[Mapping[str, float]]]]
) -> Element:
    """Predicted probabilities against observed frequencies, a curve for each set of rows."""
    series, off = [], []
    for name, levels in curves:
        predicted, observed, weight = (
            np.array([level[key] for level in levels])
            for key in ("predicted", "observed", "weight")
        )
        series.append(Series(name, predicted, observed))
        mean = float(weight @ np.abs(predicted - observed) / weight.sum())
        off.append(f"{name} {mean:.3f}" if len(curves) > 1 else f"{mean:.3f}")
    x, y = Axis("predicted probability", 0.0, 1.0), Axis("observed frequency", 0.0, 1.0)
    note = "Of the second class; a calibrated model is on the diagonal. Mean distance: "
    return lines(title, series, x, y, note=f"{note}{', '.join(off)}.", diagonal=True)


def _by_day(model: Model, tried: Result | None) -> list[Element]:
    column = day_column(model.plan)
    slices = tried["slices"].get(column) if tried is not None else None
    return charts_by_day(model, column, slices) if slices else []


def _by_class(sets: Sequence[Rows]) -> list[Element]:
    """Each class of each set; without a column of sets if there is one."""
    several = sum(bool(one.result["per_class"]) for one in sets) > 1
    rows = [
        (
            str(found["class"]),
            *([one.name] if several else []),
            count(found["weight"]),
            *(_share(found.get(key)) for key in ("precision", "recall")),
            *(
                "" if found.get(key) is None else brief(found[key])
                for key in ("auc", "average_precision")
            ),
        )
        for one in sets
        for found in one.result["per_class"] or []
    ]
    heads = ["class", *(["of"] if several else []), "weight of rows", "precision", "recall", "AUC",
             "average precision"]  # fmt: skip
    made = table(heads, rows, numbers=range(1 + several, len(heads)), label="Metrics by class")
    return [element("h3", "By class"), made] if rows else []


def count(weight: float) -> str:
    """The weight of rows: all digits of a number of rows."""
    return f"{weight:,.0f}" if weight == round(weight) and weight < 1e12 else brief(weight)


def _share(number: float | None) -> str:
    return "" if number is None else f"{number:.1%}"
