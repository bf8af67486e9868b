"""Ranking and calibration from histograms of scores, each with how far off it may be.

negatives, positives: the weight of either class in bins of ascending scores. Within a bin nothing
is known of the order: the best and the worst one bound what the rows themselves would give, and
the reported value is their mid-point, and its error half their distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bounded = tuple[float | None, float | None]
"""A figure and its error; nothing where one of the classes has no weight."""

LEVELS = 20


def auc(negatives: Floats, positives: Floats) -> Bounded:
    """The area under the ROC curve: how likely a positive is above a negative, ties counting half.

    >>> auc(np.array([2.0, 1.0, 1.0]), np.array([0.0, 1.0, 3.0]))
    (0.8125, 0.125)
    """
    pairs = float(negatives.sum()) * float(positives.sum())
    if not pairs > 0.0:
        return None, None
    below = np.cumsum(negatives) - negatives
    surely, unknown = float(positives @ below) / pairs, float(positives @ negatives) / pairs
    return surely + unknown / 2.0, unknown / 2.0


def average_precision(negatives: Floats, positives: Floats) -> Bounded:
    """The mean over positives of the share of positives among all scores as high or higher.

    At best a bin's positives stand above its negatives, as one. At worst they stand below, and
    each is so small that their sum is an integral: of (t + x) / (t + x + f) over x from 0 to the
    bin's positives, t and f being what is above.

    >>> [round(figure, 3) for figure in average_precision(np.array([2.0, 1.0]), np.array([1.0, 3]))]
    [0.744, 0.206]
    """
    weight = float(positives.sum())
    if not (weight > 0.0 and negatives.sum() > 0.0):
        return None, None
    here = np.flatnonzero(positives)[::-1]
    hits, above = positives[here], (np.cumsum(positives[::-1])[::-1] - positives)[here]
    wrong = np.cumsum(negatives[::-1])[::-1]
    before, until = (wrong - negatives)[here], wrong[here]
    best = hits @ ((above + hits) / (above + hits + before))
    with np.errstate(divide="ignore", invalid="ignore"):
        less = until * np.log1p(hits / (above + until))
    worst = (hits - np.where(until > 0.0, less, 0.0)).sum()
    high, low = float(best) / weight, float(worst) / weight
    return (high + low) / 2.0, (high - low) / 2.0


def calibration_error(levels: Sequence[dict[str, Any]]) -> float:
    """The expected calibration error: the mean of |predicted - observed| by weight of the levels.

    >>> calibration_error([{"predicted": 0.2, "observed": 0.3, "weight": 1.0}])
    0.09999999999999998
    """
    weight = sum(one["weight"] for one in levels)
    off = sum(one["weight"] * abs(one["predicted"] - one["observed"]) for one in levels)
    return float(off / weight)


def calibration(negatives: Floats, positives: Floats, predicted: Floats) -> list[dict[str, Any]]:
    """Predicted and observed shares of positives, in up to 20 levels of equal width.

    predicted: the probability in the middle of each bin; a bin is of the level that this is of.

    >>> calibration(np.array([3.0, 1.0]), np.array([1.0, 3.0]), np.array([0.21, 0.78]))[0]
    {'low': 0.2, 'high': 0.25, 'predicted': 0.21, 'observed': 0.25, 'weight': 4.0}
    """
    level = np.minimum((predicted * LEVELS).astype(np.int64), LEVELS - 1)
    both = negatives + positives
    weight, hits, mean = (
        np.bincount(level, weights, LEVELS) for weights in (both, positives, both * predicted)
    )
    return [
        {
            "low": at / LEVELS,
            "high": (at + 1) / LEVELS,
            "predicted": float(mean[at] / weight[at]),
            "observed": float(hits[at] / weight[at]),
            "weight": float(weight[at]),
        }
        for at in np.flatnonzero(weight > 0.0).tolist()
    ]
