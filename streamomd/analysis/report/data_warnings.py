"""Data warnings: valid features and metrics that are often a mistake."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.charts import brief
from streamomd.analysis.report.feature_weights import FeatureScales, Weights
from streamomd.analysis.report.verdict import compare_with_constant
from streamomd.core.wording import counted, worded
from streamomd.features import Plan, name_of
from streamomd.sources.column_facts import APART
from streamomd.training.drift_alerts import worded_alert
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import result_of
from streamomd.training.row_checks import FAR as FAR_FROM_0
from streamomd.training.row_checks import centres, is_far, remedies

ALERTS = 5
"""How many of a run's alerts, the last ones, are named."""
FAR = 30.0
"""Ratio that raises a warning: of a feature's largest to its typical value, or of its typical value
to the other features'."""
ONE_ROW = 0.03  # share of the sum of squares that the largest value alone has
STEADY = 4.0  # largest over typical: below this it is as large in most rows
DOMINATES = 0.5  # share of all moves of predictions
REVEALS = 0.5  # share of the constant's loss that a model with a leak removes at least
SIZES = "all weights times the features' typical values"
SMALLEST = float(np.finfo(np.float64).tiny)
SAME = {"float64": 1e-9, "float32": 1e-4}
"""Relative accuracy of sums in slots of these dtypes."""
WEIGHTY = re.compile(r"(?<![a-z])(weights?|wts?|wgts?|importance)(?![a-z])|wgt$|[a-z]wt$")
IDS = re.compile(r"(?<![a-z])(ids?|uuid|guid|key|row ?(id|num|number)|serial)(?![a-z])")


class DataWarning(NamedTuple):
    """A name, what was found, and what to do."""

    name: str
    title: str
    text: str


def find_data_warnings(
    model: ModelData, sizes: FeatureScales, weights: Weights
) -> list[DataWarning]:
    """All warnings, the most severe first."""
    found = [*_run(model, weights), *_dominant(model, weights), *_offsets(model, sizes)]
    for at in _columns(model.plan):
        found += _column(model, sizes, at)
    return [*_group(found), *_shared(weights)]


def _group(found: list[DataWarning]) -> list[DataWarning]:
    """Warnings with the same text as one."""
    names: dict[tuple[str, str], list[str]] = {}
    for one in found:
        names.setdefault((one.title, one.text), []).append(one.name)
    return [DataWarning(", ".join(all_of), *warning) for warning, all_of in names.items()]


def _columns(plan: Plan) -> range:
    """Coordinates of numeric columns."""
    return range(int(plan.bias), plan.vector_offset)


def _run(model: ModelData, weights: Weights) -> Iterator[DataWarning]:
    metrics = model.metrics
    if not metrics.total_rows:  # it diverged before its first commit with rows
        yield DataWarning("the run", "no row was learned yet", "There is only the first commit.")
    elif not metrics.total[0]:
        text = f"Every row of column {model.plan.weight!r} has importance 0: nothing was learned."
        yield DataWarning("the weights", "all importances are 0", text)
    elif metrics.figures(metrics.total)["loss"] is None:
        text = "It is not a finite number: try a smaller eta, or a scale-free rule (nag)."
        yield DataWarning("the loss", "diverged", text)
    if weights.broken:
        text = f"{weights.broken:,} of them are not finite numbers: try a smaller eta."
        yield DataWarning("the weights", "some diverged", text)
    if metrics.drift is not None and metrics.drift.alerts:
        alerts = [worded_alert(alert, model.plan) for alert in metrics.drift.alerts[-ALERTS:]]
        title = f"{counted(metrics.drift.count, 'alert')}"
        yield DataWarning("the rows", title, f"The last: {'; '.join(alerts)}.")
    left_out = sum(metrics.skipped.values())
    if left_out:
        share = left_out / (left_out + metrics.total_rows)
        text = f"{left_out:,} of them, {share:.2%} ({worded(metrics.skipped)}), were skipped."
        yield DataWarning("the rows", "bad rows", text)


def _dominant(model: ModelData, weights: Weights) -> Iterator[DataWarning]:
    """Only where the loss supports it. That without the column is not stored; it is about the
    constant's at most, so a column reveals the label only if the model is far below that."""
    comparison = compare_with_constant(model, result_of(model))
    if comparison is None or comparison.removed < REVEALS or not weights.by_unit:
        return
    total = sum(weights.importances.values())
    shares = [(one / total, name) for name, one in weights.importances.items() if total > 0.0]
    shares = shares or [(one.share, one.name) for one in weights.top]
    share, name = max(shares, default=(0.0, ""))
    grown = model.plan.trees is not None and name.partition("[")[0] == "trees"  # of many columns
    if share > DOMINATES and not grown:
        yield DataWarning(
            name,
            "it outweighs all others together",
            f"It is {share:.0%} of {'what all features move' if weights.centred else SIZES}. Is it "
            "known before the label? A column that was filled in afterwards leaks the label.",
        )


def _offsets(model: ModelData, sizes: FeatureScales) -> Iterator[DataWarning]:
    """Yields warnings of columns far from 0. They need rows: the slots of a rule that does not
    centre do not know the mean."""
    columns = _columns(model.plan)
    if centres(model.spec) or not len(sizes.mean):
        return
    places = np.array(columns, dtype=np.int64)
    mean, typical = sizes.mean[places], sizes.typical[places]
    deviation = np.sqrt(np.maximum((typical - np.abs(mean)) * (typical + np.abs(mean)), 0.0))
    deviation = np.where(
        sizes.high[places] > sizes.low[places], np.maximum(deviation, SMALLEST), 0.0
    )
    for j in places[is_far(mean, deviation)]:
        yield DataWarning(
            name_of(model.plan, model.names, int(j)),
            f"its mean is more than {FAR_FROM_0:g} standard deviations from 0",
            f"Rule {model.spec.model.rule} does not centre columns, and learns slowly from such "
            f"a column: {remedies(model.spec)}.",
        )


def _column(model: ModelData, sizes: FeatureScales, at: int) -> Iterator[DataWarning]:
    """Yields the warnings of the numeric column at this coordinate."""
    name = name_of(model.plan, model.names, at)
    largest, typical = float(sizes.largest[at]), float(sizes.typical[at])
    yield from _code(name, sizes, at)
    broken = list(_broken(name, sizes, at, SAME[model.spec.model.dtype]))
    yield from broken
    if broken:
        return
    size = f" A typical value is {brief(typical)}." if math.isfinite(typical) else (
        f" Its largest value is {brief(largest)}." if math.isfinite(largest) else ""
    )  # fmt: skip
    ratio = _relative_size(model.plan, sizes, at)
    comparison = f" That is {ratio:,.0f} times the typical column's." if ratio >= FAR else ""
    if WEIGHTY.search(name.lower()):
        yield DataWarning(
            name,
            "named like a weight of rows",
            f"It is learned as a feature.{size}{comparison} If it says how many rows or people "
            "a row represents, like a sampling weight, it does not predict the label: add it to "
            "data.ignore, or name it in data.weight to weight the rows.",
        )
    elif IDS.search(_words(name)):
        yield DataWarning(
            name,
            "named like an id",
            f"It is learned as a number.{size}{comparison} A number that only identifies a row "
            "or an entity has no slope: add it to data.ignore, or hash it if entities recur.",
        )
    elif ratio >= FAR and not _flag(sizes)[at] and _steady(sizes, at):
        yield DataWarning(
            name,
            "much larger than other columns, in all rows",
            f"{size[1:]}{comparison} Ids, sampling weights, years and times look like this: should "
            "they be numbers? If so, subtract the offset.",
        )


def _code(name: str, sizes: FeatureScales, at: int) -> Iterator[DataWarning]:
    """Yields a warning of a column with a code for missing values. It needs rows: the extremes of
    others are not stored."""
    if not sizes.rest.size:
        return
    (low, high), (least, greatest) = sizes.rest[:, at], sizes.codes[:, at]
    if not low < high:
        return
    signs = least == -1.0 and low >= -1.0 and high <= 1.0  # or correlations
    codes = [least] if low - least > APART * (high - low) and not signs else []
    codes += [greatest] if greatest - high > APART * (high - low) else []
    for code in codes:
        if math.isfinite(code):
            yield DataWarning(
                name,
                f"{code:g} looks like a code for a missing value",
                f"All other values are from {brief(float(low))} to {brief(float(high))}, and it is "
                "learned as a number: write null instead, and choose data.nulls.",
            )


def _broken(name: str, sizes: FeatureScales, at: int, near: float) -> Iterator[DataWarning]:
    largest, typical = float(sizes.largest[at]), float(sizes.typical[at])
    low, high = float(sizes.low[at]), float(sizes.high[at])
    if largest == 0.0 or (math.isnan(largest) and typical == 0.0):
        yield DataWarning(name, "empty", f"It was null or 0 in every row{sizes.of}.")
    elif low == high:
        text = f"It is {brief(low)} in every row: the bias already covers it."
        yield DataWarning(name, "constant", text)
    elif math.isnan(low) and abs(largest - typical) <= near * largest:
        text = f"Its absolute value is {brief(largest)} in every row; unless its sign changes, "
        yield DataWarning(name, "constant", text + "the bias already covers it.")
    elif _flag(sizes)[at]:
        return
    elif largest >= FAR * typical and largest * largest >= ONE_ROW * sizes.rows * typical * typical:
        yield DataWarning(
            name,
            "one value is far larger than the others",
            f"Its largest absolute value, {brief(largest)}, is {largest / typical:,.0f} times a "
            f"typical one ({brief(typical)}): a mistake, a code for missing, or a unit that "
            "changed? Rules that store the maximum never forget it: fix the row, or use snag.",
        )


def _relative_size(plan: Plan, sizes: FeatureScales, at: int) -> float:
    """A column's typical size relative to the median column that is not a flag; NaN if unknown."""
    columns = slice(int(plan.bias), plan.vector_offset)
    typical = sizes.size[columns]
    there = typical[np.isfinite(typical) & (typical > 0.0) & ~_flag(sizes)[columns]]
    middle = float(np.median(there)) if len(there) > 2 else math.nan
    return float(sizes.size[at]) / middle


def _flag(sizes: FeatureScales) -> NDArray[np.bool_]:
    """Columns of 0 and 1, judged by their largest value: a rare 1 is not a mistake."""
    return np.asarray(sizes.largest == 1.0)


def _steady(sizes: FeatureScales, at: int) -> bool:
    present = float(sizes.present[at])
    if not math.isnan(present):
        return present > 0.99
    return bool(sizes.largest[at] <= STEADY * sizes.typical[at])


def _words(name: str) -> str:
    """Camel case and underscores as words.

    >>> _words("customerId"), _words("ROW_NUM"), _words("paid")
    ('customer id', 'row num', 'paid')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_\W]+", " ", name).lower()


def _shared(weights: Weights) -> Iterator[DataWarning]:
    shared = [one.name for one in weights.top if " | " in one.name]
    if shared:
        yield DataWarning(
            shared[0],
            "values that share a coordinate",
            f"{len(shared)} of the {len(weights.top)} heaviest coordinates are shared by several "
            "values, which cannot be distinguished: increase data.bits.",
        )
