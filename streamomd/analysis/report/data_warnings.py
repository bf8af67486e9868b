"""Things to look at: features and figures that are legal, and often a mistake."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.axes import brief
from streamomd.analysis.report.feature_scales import FeatureScales
from streamomd.analysis.report.largest_weights import Weights
from streamomd.features import Plan, name_of
from streamomd.training.metrics import worded
from streamomd.training.model import Model

FAR = 30.0
"""How often its typical size a feature's largest value, or the others' typical size a feature's
own, has to be, to be told."""
ONE_ROW = 0.03  # of the sum of squares over all rows, that the largest value alone has
STEADY = 4.0  # largest over typical: it is as large in most rows, not in rare ones
DOMINATES = 0.5  # of all that weights move
SAME = {"float64": 1e-9, "float32": 1e-4}
"""How near sums of these slots come to what they are sums of."""
WEIGHTY = re.compile(r"(?<![a-z])(weights?|wts?|wgts?|importance)(?![a-z])|wgt$|[a-z]wt$")
IDS = re.compile(r"(?<![a-z])(ids?|uuid|guid|key|row ?(id|num|number)|serial)(?![a-z])")


class DataWarning(NamedTuple):
    """What to look at, what was seen, and what to do."""

    name: str
    title: str
    text: str


def suspects(model: Model, sizes: FeatureScales, weights: Weights) -> list[DataWarning]:
    """All there are, the gravest first."""
    found = [*_run(model, weights), *_dominant(weights)]
    for at in _columns(model.plan):
        found += _column(model, sizes, at)
    return [*_together(found), *_shared(weights)]


def _together(found: list[DataWarning]) -> list[DataWarning]:
    """Those of which the same is to be said, in one."""
    names: dict[tuple[str, str], list[str]] = {}
    for one in found:
        names.setdefault((one.title, one.text), []).append(one.name)
    return [DataWarning(", ".join(all_of), *said) for said, all_of in names.items()]


def _columns(plan: Plan) -> range:
    """Coordinates of numeric columns."""
    return range(int(plan.bias), plan.vector_offset)


def _run(model: Model, weights: Weights) -> Iterator[DataWarning]:
    metrics = model.metrics
    if not metrics.total_rows:
        yield DataWarning("the run", "no row was learned yet", "There is only the first commit.")
    elif metrics.figures(metrics.total)["loss"] is None:
        text = "It is no finite number: try a smaller eta, or a rule that minds no scales (nag)."
        yield DataWarning("the loss", "it broke", text)
    if weights.broken:
        text = f"{weights.broken:,} of them are no finite number: try a smaller eta."
        yield DataWarning("the weights", "some broke", text)
    left_out = sum(metrics.skipped.values())
    if left_out:
        share = left_out / (left_out + metrics.total_rows)
        text = f"{left_out:,} of them, {share:.2%} ({worded(metrics.skipped)}), were left out."
        yield DataWarning("the rows", "bad ones", text)


def _dominant(weights: Weights) -> Iterator[DataWarning]:
    for one in weights.top[:1]:
        if one.share > DOMINATES and weights.by_unit:
            yield DataWarning(
                one.name,
                "it outweighs all others together",
                f"Its weight, {brief(one.heaviest)}, times a typical value is {one.share:.0%} of "
                "what all features move. Is it known before the label is? A column that was "
                "filled in afterwards gives the label away.",
            )


def _column(model: Model, sizes: FeatureScales, at: int) -> Iterator[DataWarning]:
    name = name_of(model.plan, model.names, at)
    largest, typical = float(sizes.largest[at]), float(sizes.typical[at])
    broken = list(_broken(name, sizes, at, SAME[model.spec.model.dtype]))
    yield from broken
    if broken:
        return
    size = f" A typical value is {brief(typical)}." if math.isfinite(typical) else (
        f" Its largest value is {brief(largest)}." if math.isfinite(largest) else ""
    )  # fmt: skip
    ratio = _beside_others(model.plan, sizes, at)
    beside = f" That is {ratio:,.0f} times the typical column's." if ratio >= FAR else ""
    if WEIGHTY.search(name.lower()):
        yield DataWarning(
            name,
            "named like a weight of rows",
            f"It is learned as a feature.{size}{beside} If it says how many rows or people a row "
            "stands for, as a sampling weight does, it tells nothing of the label: add it to "
            "data.ignore, or name it in data.weight to let it weigh the rows.",
        )
    elif IDS.search(_words(name)):
        yield DataWarning(
            name,
            "named like an id",
            f"It is learned as a number.{size}{beside} A number that only names a row or a thing "
            "has no slope: add it to data.ignore, or hash it if things come again.",
        )
    elif ratio >= FAR and not _flag(sizes)[at] and _steady(sizes, at):
        yield DataWarning(
            name,
            "much larger than other columns, in all rows",
            f"{size[1:]}{beside} Ids, sampling weights, years and times look like this: are they "
            "meant as numbers? Its offset is better taken off, if so.",
        )


def _broken(name: str, sizes: FeatureScales, at: int, near: float) -> Iterator[DataWarning]:
    largest, typical = float(sizes.largest[at]), float(sizes.typical[at])
    low, high = float(sizes.low[at]), float(sizes.high[at])
    if largest == 0.0 or (math.isnan(largest) and typical == 0.0):
        yield DataWarning(name, "nothing in it", f"It was null or 0 in every row{sizes.of}.")
    elif low == high:
        text = f"It is {brief(low)} in every row: the bias says as much."
        yield DataWarning(name, "constant", text)
    elif math.isnan(low) and abs(largest - typical) <= near * largest:
        text = f"Its absolute value is {brief(largest)} in every row; unless its sign changes, "
        yield DataWarning(name, "constant", text + "the bias says as much.")
    elif _flag(sizes)[at]:
        return
    elif largest >= FAR * typical and largest * largest >= ONE_ROW * sizes.rows * typical * typical:
        yield DataWarning(
            name,
            "one huge value",
            f"Its largest absolute value, {brief(largest)}, is {largest / typical:,.0f} times a "
            f"typical one ({brief(typical)}): a mistake, a code for missing, or a unit that "
            "changed? Rules that keep the maximum never forget it: mend the row, or take snag.",
        )


def _beside_others(plan: Plan, sizes: FeatureScales, at: int) -> float:
    """A column's typical size in those of the median column that is no flag; NaN if unknown."""
    columns = slice(int(plan.bias), plan.vector_offset)
    typical = sizes.unit[columns]
    there = typical[np.isfinite(typical) & (typical > 0.0) & ~_flag(sizes)[columns]]
    middle = float(np.median(there)) if len(there) > 2 else math.nan
    return float(sizes.unit[at]) / middle


def _flag(sizes: FeatureScales) -> NDArray[np.bool_]:
    """Columns of 0 and 1, as far as their largest value tells: a rare 1 is no mistake."""
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
            f"{len(shared)} of the {len(weights.top)} heaviest coordinates stand for several "
            "values, which cannot be told apart: raise data.bits.",
        )
