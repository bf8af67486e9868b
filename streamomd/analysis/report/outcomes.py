"""Predictions against labels: ranking, confusion, calibration, and each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.axes import Axis
from streamomd.analysis.report.charts import Series, heat, lines
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.training.model import Model
from streamomd.training.progress import show

Result = Mapping[str, Any]
FIGURES = (
    ("loss", "loss"), ("error", "error"), ("auc", "AUC"),
    ("average_precision", "average precision"), ("rmse", "RMSE"), ("mae", "MAE"), ("r2", "R²"),
)  # fmt: skip
MOST_DRAWN = 30  # classes that fit into a confusion chart


def outcomes(model: Model, learned: Result, tried: Result | None) -> Element:
    """``Model.result`` on rows before they were learned, and ``Model.evaluate`` on given rows."""
    before = (
        f"Each of the {learned['rows']:,} rows before it was learned: {_figures(learned)}. The "
        "model changed during the run."
    )
    parts = [paragraph(before), *_drawn(model, learned)]
    held = learned["holdout"]
    if held is not None:
        best = f" Epoch {held['best_epoch']} was the best." if len(held["epochs"]) > 1 else ""
        text = f"{held['rows']:,} rows per epoch were held out and never learned: {_figures(held)}."
        parts += [element("h3", "Hold-out"), paragraph(text + best), *_drawn(model, held)]
    if tried is not None:
        after = (
            f"The current model on the {tried['rows']:,} given rows: {_figures(tried)}. "
            "If it learned these rows, the metrics are better than on new ones."
        )
        parts += [element("h3", "On the given rows"), paragraph(after), *_drawn(model, tried)]
    return section("Predictions and labels", *parts)


def _figures(result: Result) -> str:
    known = [(name, key) for key, name in FIGURES if result.get(key) is not None]
    return ", ".join(f"{name} {show(result[key])}{_error(result, key)}" for name, key in known)


def _error(result: Result, key: str) -> str:
    error = result.get(f"{key}_error")
    return f" ± {error:.2g}" if error else ""


def _drawn(model: Model, result: Result) -> list[Element]:
    charts, names = [], [str(name) for name in model.plan.classes]
    confusion = result["confusion"]
    if confusion is not None and len(names) <= MOST_DRAWN:
        note = "Weight of rows; the colour shows the share of the true class."
        charts.append(heat("Confusion", names, np.array(confusion), note=note))
    if result["calibration"]:
        charts.append(_calibration(result["calibration"]))
    text = _missing(model, result) if names else ""
    return [grid(*charts), *([paragraph(text)] if text else []), *_by_class(result)]


def _missing(model: Model, result: Result) -> str:
    """Why a chart is missing, in a sentence; empty if there are both."""
    if result["confusion"] is None:
        return "No confusion matrix: it was not saved, or there are more than 100 classes."
    if len(model.plan.classes) > MOST_DRAWN:
        return f"The confusion matrix is drawn of up to {MOST_DRAWN} classes."
    if not result["calibration"]:
        return "No calibration: it takes two classes, and a loss that gives probabilities."
    return ""


def _calibration(levels: Sequence[Mapping[str, float]]) -> Element:
    """Predicted probabilities against observed frequencies."""
    predicted, observed, weight = (
        np.array([one[key] for one in levels]) for key in ("predicted", "observed", "weight")
    )
    off = float(weight @ np.abs(predicted - observed) / weight.sum())
    x, y = Axis("predicted probability", 0.0, 1.0), Axis("observed frequency", 0.0, 1.0)
    note = f"Of the second class; a calibrated model is on the diagonal. Mean distance: {off:.3f}."
    series = [Series("rows by probability", predicted, observed)]
    return lines("Calibration", series, x, y, note=note, diagonal=True)


def _by_class(result: Result) -> list[Element]:
    predicted = result["per_class"] or []
    rows = [
        (
            str(one["class"]),
            f"{one['weight']:,.6g}",
            *(_share(one.get(key)) for key in ("precision", "recall")),
            *(
                "" if one.get(key) is None else show(one[key])
                for key in ("auc", "average_precision")
            ),
        )
        for one in predicted
    ]
    heads = ["class", "weight of rows", "precision", "recall", "AUC", "average precision"]
    made = table(heads, rows, numbers=(1, 2, 3, 4, 5))
    return [element("h3", "By class"), made] if rows else []


def _share(number: float | None) -> str:
    return "" if number is None else f"{number:.1%}"
