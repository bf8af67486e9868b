"""Two classes by threshold: precision, recall and share flagged, the ROC and precision-recall
curves. From the binned margins of rows that were predicted before they were learned."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.charts import Series, lines
from streamomd.analysis.report.markup import element, grid, paragraph, table
from streamomd.analysis.report.verdict import likelihood
from streamomd.training.metrics.bins import centres
from streamomd.training.metrics.detail import BinaryDetail
from streamomd.training.model import Model

Floats = NDArray[np.float64]
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Of rows flagged; the thresholds nearest to them are listed."""
POINTS = 200  # of each curve


def thresholds(model: Model) -> list[Element]:
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
        (brief(float(levels[at])), *(f"{one[at]:.1%}" for one in (precision, recall, flagged)))
        for at in sorted(places)
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
