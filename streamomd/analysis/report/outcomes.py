"""Predictions against labels: metrics of each set of rows, confusion, calibration, each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.charts import Axis, Series, brief, heat, lines
from streamomd.analysis.report.learning import charts_by_day, day_column
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.analysis.report.verdict import likelihood, percent
from streamomd.core.wording import counted
from streamomd.training.metrics.detail import BinaryDetail
from streamomd.training.metrics.ranking import centres
from streamomd.training.model_data import ModelData

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


def outcomes(model: ModelData, learned: Result, tried: Result | None) -> Element:
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


def _charts(model: ModelData, sets: Sequence[Rows]) -> list[Element]:
    charts, names = [], [str(name) for name in model.plan.classes]
    for index, subset in enumerate(sets):
        confusion = subset.result["confusion"]
        if confusion is not None and len(names) <= MOST_DRAWN:
            note = "Weight of rows; the colour shows the share of the true class."
            title = f"Confusion of {subset.name}" if index else "Confusion"
            charts.append(heat(title, names, np.array(confusion), note=note))
    before = [
        (subset.name, subset.result["calibration"])
        for subset in sets
        if subset.result["calibration"]
    ]
    after = [
        (subset.name, figures["calibration"])
        for subset in sets
        if (figures := subset.result.get("calibrated"))
    ]
    charts += [_calibration("Calibration", before)] if before else []
    kind = model.spec.model.calibrate
    title = "Calibration without class weights" if kind == "none" else f"Calibration after {kind}"
    return [*charts, *([_calibration(title, after)] if after else [])]


def _missing(model: ModelData, sets: Sequence[Rows]) -> list[Element]:
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


def _by_day(model: ModelData, tried: Result | None) -> list[Element]:
    column = day_column(model.plan)
    slices = tried["slices"].get(column) if tried is not None else None
    return charts_by_day(model, column, slices) if slices else []


def _by_class(sets: Sequence[Rows]) -> list[Element]:
    """Each class of each set; without a column of sets if there is one."""
    several = sum(bool(subset.result["per_class"]) for subset in sets) > 1
    rows = [
        (
            str(figures["class"]),
            *([subset.name] if several else []),
            count(figures["weight"]),
            *(_share(figures.get(key)) for key in ("precision", "recall")),
            *(
                "" if figures.get(key) is None else brief(figures[key])
                for key in ("auc", "average_precision")
            ),
        )
        for subset in sets
        for figures in subset.result["per_class"] or []
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


SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Shares of rows flagged; the thresholds nearest to them are listed."""
POINTS = 200  # of each curve


def thresholds(model: ModelData) -> list[Element]:
    """The table and both curves; nothing of other tasks, or of a class without rows. Hold-out rows
    if there are any, as the verdict."""
    held = model.metrics.held
    learned = held is None or held.detail is None
    detail = model.metrics.detail if held is None or learned else held.detail
    if not isinstance(detail, BinaryDetail):
        return []
    weights = detail.weights.sum(axis=1)
    seen = np.flatnonzero(detail.weights.any(axis=0))[::-1]
    if not (weights > 0.0).all() or seen[0] == detail.weights.shape[1] - 1:  # there is a NaN
        return []
    wrong, right = np.cumsum(detail.weights[:, seen], axis=1)
    flagged, recall, precision = (
        (wrong + right) / weights.sum(), right / weights[1], right / (wrong + right)
    )  # fmt: skip
    margins = centres(detail.digits)[seen]
    likely = likelihood(model, margins)
    levels = margins if likely is None else likely
    middle = int(np.count_nonzero(levels >= (0.0 if likely is None else 0.5))) - 1
    places = {int(np.abs(flagged - share).argmin()) for share in SHARES} | {max(middle, 0)}
    listed = [
        (
            brief(float(levels[place])),
            *(f"{measure[place]:.1%}" for measure in (precision, recall, flagged)),
        )
        for place in sorted(places)
    ]
    heads = ["threshold", "precision", "recall", "share flagged"]
    of = "learned rows, before they were learned" if learned else "hold-out rows"
    unit = "margin" if likely is None else "probability"
    text = f"Rows with at least this {unit} of {model.plan.classes[1]!r}; of {of}."
    rate, found, correct = (
        Axis(name, 0.0, 1.0) for name in ("false positive rate", "recall", "precision")
    )
    name = "this model"
    drawn = np.unique(np.searchsorted(flagged[:-1], np.linspace(0.0, 1.0, POINTS)))
    alarms = np.append(0.0, (wrong / weights[0])[drawn])
    roc = [Series(name, alarms, np.append(0.0, recall[drawn]), thin=True)]
    curve = [Series(name, recall[drawn], precision[drawn], thin=True)]
    return [
        element("h3", "By threshold"),
        paragraph(text),
        table(heads, listed, numbers=range(len(heads)), label="Metrics by threshold"),
        grid(
            lines("ROC curve", roc, rate, found, diagonal=True),
            lines("Precision-recall curve", curve, found, correct),
        ),
    ]
