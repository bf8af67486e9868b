"""Whether a model predicts better than a constant does, by how much, and how certain that is.

Hold-out rows are compared if there are any, else the rows of the first epoch, each predicted before
it was learned: of later epochs the model knows the rows. The constant is the one that is best on
these rows: the classes' shares, where the model gives probabilities, else the most common class; in
regression the mean label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.charts import brief
from streamomd.analysis.report.markup import element
from streamomd.core.batch import Floats
from streamomd.core.wording import counted
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.detail import BinaryDetail
from streamomd.training.metrics.ranking import baseline_of, centres
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import natural_mean

Figures = Mapping[str, Any]
NORMAL = 1.96
"""Standard errors on each side of an interval of 95 %."""
FEWEST_WINDOWS = 5
ROUNDED = 1e-12
"""A difference of errors that is rounding."""
RANKS = 0.6  # an AUC that is clearly above chance
ADVICE = (
    "Check the label and the warnings below, add features, or compare rules with streamomd sweep."
)
DIVERGED = (
    "Fix extreme values in the shards, or train again with a smaller learning rate, or with a rule "
    "that has none to choose (auto)."
)
LOG_LOSS = "log loss"
UNKNOWN, BETTER, UNCLEAR, WORSE = "unknown", "better", "unclear", "worse"


@dataclass(frozen=True)
class Comparison:
    """A metric of the model and of the best constant, on the same rows.

    gain: by how much the model is better: a difference of log losses or errors, or R². margin: half
    the width of its 95 % interval; None if unknown. constant: what is predicted, in words. rows: a
    text that says which rows. error: the comparison of errors, of a comparison of log losses.
    thresholds: whether the page has a table of them: of two classes.
    """

    metric: str
    ours: float
    theirs: float
    gain: float
    margin: float | None
    constant: str
    rows: str
    error: Comparison | None = None
    auc: float | None = None
    thresholds: bool = False

    @property
    def removed(self) -> float:
        """The share of the constant's loss, error or squared error that the model removes."""
        if self.metric == "RMSE":
            return self.gain
        return self.gain / self.theirs if self.theirs > 0.0 else 0.0

    @property
    def level(self) -> str:
        """BETTER, UNCLEAR if the interval includes 0, or WORSE; errors and R² are worse from a gain
        of 0 on, for a model without a signal has exactly the constant's."""
        if self.gain <= (-(self.margin or 0.0) if self.metric == LOG_LOSS else 0.0):
            return WORSE
        return UNCLEAR if self.margin is not None and self.gain <= self.margin else BETTER


def compare_with_constant(model: ModelData, result: Figures) -> Comparison | None:
    """The comparison of a model; None if it has none of the metrics that this takes."""
    held, metrics = result["holdout"], model.metrics
    if held is not None and held["rows"] and metrics.held is not None:
        rows = f"{counted(held['rows'], 'hold-out row')}, never learned"
        return _compare(model, held, metrics.held, rows, alone=True)
    if not metrics.rows:
        return None
    one = len(metrics.rows) == 1
    where = "" if one else " of the first epoch"
    rows = f"{counted(metrics.rows[0], 'row')}{where}, each predicted before it was learned"
    return _compare(model, result, metrics, rows, alone=one)


def _compare(
    model: ModelData, result: Figures, metrics: Metrics, rows: str, *, alone: bool
) -> Comparison | None:
    """alone: whether all figures of the result are of the rows that are compared."""
    if model.plan.classes:
        found = _by_error(model, result, rows, alone=alone)
        by_loss = found and _by_log_loss(model, result, metrics, found, alone=alone)
        return by_loss or found
    return _by_r2(result, metrics, rows, alone=alone)


def _by_error(model: ModelData, result: Figures, rows: str, *, alone: bool) -> Comparison | None:
    own, constant = result if alone else result["epochs"][0], baseline_of(result)
    if constant is None or own["error"] is None:
        return None
    theirs, ours = constant["error"], float(own["error"])
    confusion = np.array(result["confusion"], dtype=np.float64)
    common = int(np.argmax(confusion.sum(axis=1)))
    # After several epochs the confusion counts rows that were learned before: an upper bound then.
    chance = _discordant(confusion, common) if alone else ours + theirs
    gain = theirs - ours if abs(theirs - ours) > ROUNDED else 0.0
    spread = math.sqrt(max(chance - gain * gain, 0.0) / own["rows"])
    name = model.plan.classes[common]
    return Comparison(
        "error", ours, theirs, gain, NORMAL * spread, f"always predicting {name!r}", rows,
        auc=result["auc"],
    )  # fmt: skip


def _by_log_loss(
    model: ModelData, result: Figures, metrics: Metrics, error: Comparison, *, alone: bool
) -> Comparison | None:
    """None where the model gives no probabilities, or those of other shares of the classes."""
    own = result if alone else result["epochs"][0]
    weights = np.array(result["confusion"], dtype=np.float64).sum(axis=1)
    shares = weights / weights.sum()
    ours, theirs, spread = own["loss"], _entropy(shares), None
    if isinstance(metrics.detail, BinaryDetail):
        # Margins of the first epoch, if they are saved, are those of the rows that are compared.
        bins = metrics.detail.weights if metrics.margins is None else metrics.margins
        seen = np.flatnonzero(bins.any(axis=0))
        if not len(seen) or seen[-1] == bins.shape[1] - 1:  # there is a NaN
            return None
        likely = likelihood(model, centres(metrics.detail.digits)[seen])
        if likely is None or not (shares > 0.0).all():
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            both = -np.log(np.stack([1.0 - likely, likely]))
            less = -np.log(shares)[:, None] - both
            rows = bins[:, seen]
            there = rows > 0.0
            mean = float((rows * both)[there].sum() / rows.sum())
            gain = float((rows * less)[there].sum() / rows.sum())
            squares = float((rows * (less - gain) ** 2)[there].sum() / rows.sum())
        spread = math.sqrt(squares / own["rows"])
        ours = mean if adjusted(model) else ours
    elif model.spec.model.loss != "softmax" or model.spec.model.class_weight:
        return None
    else:
        spread = _spread_of_mean(_windows(metrics, last=alone), 1.0, column=1)
    if ours is None or not math.isfinite(ours):
        return None
    return Comparison(
        LOG_LOSS, float(ours), theirs, theirs - float(ours),
        None if spread is None else NORMAL * spread, "the classes' shares as probabilities",
        error.rows, error=error, auc=result["auc"], thresholds=len(shares) == 2,
    )  # fmt: skip


def adjusted(model: ModelData) -> bool:
    """Whether probabilities are not those of the margins: calibrated, or of weighted classes."""
    return model.calibration is not None or bool(model.spec.model.class_weight)


def likelihood(model: ModelData, margins: Floats) -> Floats | None:
    """The probabilities of the second of two classes: calibrated ones, or without the effect of
    class weights; None of a loss that gives none."""
    mean = model.calibration or natural_mean(model)
    return None if mean is None else np.array([mean(one) for one in margins.tolist()])


def _discordant(confusion: Floats, common: int) -> float:
    """The share of rows where exactly one of model and constant is right (McNemar 1947): the
    variance of the difference of errors on the same rows is this less the difference squared."""
    right = float(np.trace(confusion) - confusion[common, common])
    wrong = float(confusion[common].sum() - confusion[common, common])
    return (right + wrong) / float(confusion.sum())


def _entropy(shares: Floats) -> float:
    """The log loss of predicting each class with its share of the rows."""
    some = shares[shares > 0.0]
    return float(-(some * np.log(some)).sum())


def _by_r2(result: Figures, metrics: Metrics, rows: str, *, alone: bool) -> Comparison | None:
    own, constant = result if alone else result["epochs"][0], baseline_of(result)
    if constant is None or own["rmse"] is None:
        return None
    variance = constant["rmse"] ** 2
    if not (math.isfinite(variance) and variance > 0.0):
        return None
    gain = 1.0 - float(own["rmse"]) ** 2 / variance
    spread = _spread_of_mean(_windows(metrics, last=alone), variance)
    return Comparison(
        "RMSE", float(own["rmse"]), constant["rmse"], gain,
        None if spread is None else NORMAL * spread, "always predicting the mean label", rows,
    )  # fmt: skip


def _windows(metrics: Metrics, *, last: bool) -> Floats:
    """Sums between the points of the curve: of the last epoch, or of the first."""
    first, end = (sum(metrics.rows[:-1]), metrics.total_rows) if last else (0, metrics.rows[0])
    points = metrics.curve[(metrics.curve[:, 0] >= first) & (metrics.curve[:, 0] <= end)]
    windows: Floats = np.diff(points[:, 1:], axis=0)
    return windows[windows[:, 0] > 0.0] if len(points) else windows


def _spread_of_mean(windows: Floats, unit: float, column: int = 2) -> float | None:
    """The standard error of a column's mean, in units, from windows of rows: 1, loss; 2, squared
    error."""
    count = len(windows)
    if count < FEWEST_WINDOWS:
        return None
    weight, squares = windows[:, 0], windows[:, column]
    mean, share = squares.sum() / weight.sum(), weight / weight.sum()
    with np.errstate(all="ignore"):
        off = share * (squares / weight - mean)
        spread = math.sqrt(float((off * off).sum()) * count / (count - 1)) / unit
    return spread if math.isfinite(spread) else None


def verdict_box(model: ModelData, result: Figures, *, diverged: str) -> Element:
    """The first lines of the page: a heading in a coloured box, and the reason."""
    level, heading, text = _judge(model, result, diverged=diverged)
    lines = [element("p", one) for one in text]
    title = element("p", element("strong", heading))
    return element("div", title, *lines, class_=f"verdict {level}")


def printed_line(model: ModelData, result: Figures) -> str:
    """The line about a model that is not better than a constant prediction; "" of other models."""
    found = compare_with_constant(model, result)
    if found is None or found.level == BETTER:
        return ""
    return f"{HEADINGS[found.level].replace(' prediction', '').lower()}: {_difference(found)}"


def summarize(model: ModelData, result: Figures, *, diverged: str) -> dict[str, str]:
    """The verdict for JSON: its level and text."""
    level, heading, text = _judge(model, result, diverged=diverged)
    return {"level": level, "text": " ".join([f"{heading}.", *text])}


def _judge(model: ModelData, result: Figures, *, diverged: str) -> tuple[str, str, list[str]]:
    """The level, a heading, and sentences."""
    if diverged:
        what = diverged.removeprefix("the model diverged: ")
        return WORSE, "The model diverged", [f"{what[:1].upper()}{what[1:]}.", DIVERGED]
    found = compare_with_constant(model, result)
    if found is None:
        text = (
            "All labels are equal or have no weight, or the run did not save what this takes: it "
            "is saved in exact mode with train.detail, of up to 100 classes."
        )
        return UNKNOWN, "Not compared with a constant prediction", [text]
    more = [WEIGHTED] if model.spec.model.class_weight and found.level != BETTER else []
    return found.level, HEADINGS[found.level], [*sentences(found), *more]


WEIGHTED = (
    "With model.class_weight, rows count for more or less in learning than in this comparison: "
    "look at AUC and at precision and recall by class."
)


RANKS_WELL = (
    "It ranks rows well (AUC {}); its threshold is 0.5: choose one from the table of thresholds."
)


HEADINGS = {
    BETTER: "Better than a constant prediction",
    UNCLEAR: "Not clearly better than a constant prediction",
    WORSE: "No better than a constant prediction",
}


def sentences(found: Comparison) -> list[str]:
    """The comparison in words."""
    text = [f"{_difference(found)}, on {found.rows}."]
    if found.error is not None:
        text.append(f"{_difference(found.error)}.")
    if found.level == BETTER:
        flat = found.thresholds and found.error is not None and found.error.gain <= 0.0
        ranks = found.auc is not None and found.auc >= RANKS
        return [*text, RANKS_WELL.format(brief(found.auc or 0.0))] if flat and ranks else text
    if found.auc is not None and found.auc >= RANKS:
        text.append(
            f"It ranks rows better than chance (AUC {brief(found.auc)}): use its scores "
            "with a threshold of your own."
        )
    return [*text, ADVICE]


def _difference(comparison: Comparison) -> str:
    """Both metrics and their difference, with its uncertainty.

    >>> _difference(Comparison("error", 0.1, 0.12, 0.02, 0.004, "always predicting 'no'", "9 rows"))
    "Error 10.00% against 12.00% for always predicting 'no': 2.00 ± 0.40 percentage points fewer"
    """
    if comparison.metric == "error":
        by = "fewer" if comparison.gain > 0.0 else "more"
        points = percent(abs(comparison.gain), "")
        size = f"{points}{_margin(comparison, 100.0)} percentage points {by}"
        size = size if comparison.gain else "no difference"
        ours, theirs = percent(comparison.ours), percent(comparison.theirs)
    elif comparison.metric == LOG_LOSS:
        size = f"{brief(abs(comparison.gain))}{_margin(comparison, 1.0)} "
        size += "lower" if comparison.gain > 0.0 else "higher"
        ours, theirs = brief(comparison.ours), brief(comparison.theirs)
    else:
        unsure = _margin(comparison, 1.0) if comparison.gain > -1.0 else ""
        size = f"R² {brief(comparison.gain)}{unsure}"
        ours, theirs = brief(comparison.ours), brief(comparison.theirs)
    name = comparison.metric if comparison.metric.isupper() else comparison.metric.capitalize()
    return f"{name} {ours} against {theirs} for {comparison.constant}: {size}"


def _margin(found: Comparison, scale: float) -> str:
    return "" if found.margin is None else f" ± {scale * found.margin:#.2g}".rstrip(".")


def error_or_figure(one: Mapping[str, Any], key: str, none: str = "nan") -> str:
    """A figure of a result as text, an error as a percentage."""
    if one[key] is None:
        return none
    return percent(one[key]) if key == "error" else brief(one[key])


def percent(share: float, sign: str = "%") -> str:
    """A share as a percentage of at most four digits.

    >>> percent(0.10033), percent(0.5), percent(0.00012345), percent(1.0)
    ('10.03%', '50.00%', '0.0123%', '100%')
    """
    value = 100.0 * share
    return f"{value:.2f}{sign}" if 1.0 <= value < 99.995 else f"{value:.3g}{sign}"
