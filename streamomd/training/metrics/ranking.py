"""Ranking and calibration from histograms of scores in fixed bins, and the best constant.

A bin's number is looked up by the upper bits of the float64 itself: sign, exponent and the first
digits. That takes 2 ns a score, asinh alone 3.

negatives, positives: the weight of either class in bins of ascending scores. Within a bin nothing
is known of the order: the best and the worst one bound what the rows themselves would give, and
the reported value is their mid-point, and its error half their distance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.training.scoring.link import Calibration

FINE, COARSE = 7, 5
"""Binary digits that are distinguished: 128 and 32 bins a doubling."""
LEAST, MOST = -24, 40
"""Powers of two; what is nearer to 0, or farther, shares the outermost bins."""


def half(digits: int) -> int:
    """The bins above 0. Those of 0 and below come before them, that of NaN is the last of all."""
    return (MOST - LEAST) << digits


def bins(digits: int) -> int:
    """How many bins there are."""
    return 2 * half(digits) + 1


def binned(scores: NDArray[np.float64], digits: int) -> NDArray[np.int64]:
    """The number of each score's bin, of any shape; higher scores have higher numbers.

    >>> zero, low, high, none = binned(np.array([0.0, -1.5, 1.5, np.nan]), FINE)
    >>> bool(low < zero < half(FINE) <= high < none), int(none) == bins(FINE) - 1
    (True, True)
    """
    # Negative ones index the table's end, where the negative scores stand.
    found: NDArray[np.int64] = _table(digits)[
        np.ascontiguousarray(scores).view(np.int64) >> (52 - digits)
    ]
    return found


def centres(digits: int) -> NDArray[np.float64]:
    """The score in the middle of each bin but the last, ascending.

    >>> scores = np.array([-7.3, 0.11, 2.0])
    >>> np.abs(centres(FINE)[binned(scores, FINE)] / scores - 1.0).max() < 2.0**-FINE
    np.True_
    """
    place = np.arange(half(digits))
    digit = (place & ((1 << digits) - 1)) + 0.5
    above = np.ldexp(1.0 + digit / (1 << digits), LEAST + (place >> digits))
    return np.concatenate([-above[::-1], above])


@functools.cache
def _table(digits: int) -> NDArray[np.int64]:
    """Each bin by the upper bits: exponents of the positive numbers, then of the negative ones."""
    size, first, infinite = 1 << (11 + digits), (LEAST + 1023) << digits, 2047 << digits
    last = bins(digits) - 1  # of NaN; above 0 the bins end before it
    table = np.empty(2 * size, dtype=np.int64)
    above, below = table[:size], table[size:]
    above[:first] = half(digits)
    above[first : first + half(digits)] = np.arange(half(digits), last)
    above[first + half(digits) :] = last - 1
    np.subtract(last - 1, above, out=below)
    above[0] = below[0]  # +0 as -0: who is not above 0 is not predicted to be positive
    above[infinite + 1 :] = below[infinite + 1 :] = last
    return table


Result = Mapping[str, Any]


def baseline_of(result: Result) -> dict[str, float] | None:
    """What the best constant would have: {"error": …} or {"rmse": …}; None where it is unknown.

    result: metrics of a run, of an evaluation or of hold-out rows. The constant is the most common
    class, or the mean label; both are known only once all rows were seen.

    >>> baseline_of({"confusion": [[90, 0], [8, 2]], "error": 0.08, "rmse": None, "r2": None})
    {'error': 0.1}
    >>> baseline_of({"confusion": None, "error": None, "rmse": 3.0, "r2": 0.75})
    {'rmse': 6.0}
    """
    if result["confusion"]:
        shares = [sum(row) for row in result["confusion"]]
        total = float(sum(shares))
        return {"error": round(1.0 - max(shares) / total, 15)} if total > 0.0 else None
    rmse, r2 = result["rmse"], result["r2"]
    if rmse is None or r2 is None or r2 >= 1.0:
        return None
    return {"rmse": float(rmse) / math.sqrt(1.0 - r2)}


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


STEPS, HALVINGS = 100, 60
RIDGE = 1e-12
ENOUGH = 1e-10


def fit_calibration(kind: str, weights: Floats | None) -> Calibration:
    """The calibration of a histogram of margins, (2, bins), see ``Metrics.margins``.

    Without rows every probability is 0.5. The bin of NaN is not used.
    """
    scores = centres(FINE)
    if weights is None:
        weights = np.zeros((2, len(scores)))
    used = np.flatnonzero(weights[:, : len(scores)].any(axis=0))
    negatives, positives = weights[:, used]
    if kind == "sigmoid":
        return Calibration("sigmoid", fit_sigmoid(negatives, positives, scores[used]))
    return isotonic(negatives, positives, scores[used])


def fit_sigmoid(negatives: Floats, positives: Floats, scores: Floats) -> tuple[float, float]:
    """(a, b) of p = sigmoid(a s + b) with the least log loss, by Newton's method.

    Platt (1999), "Probabilistic outputs for support vector machines", with his targets
    (N+ + 1) / (N+ + 2) and 1 / (N- + 2) instead of 1 and 0, and the line search of Lin, Lin & Weng
    (2007), "A note on Platt's probabilistic outputs".
    """
    less, more = float(negatives.sum()), float(positives.sum())
    weight = negatives + positives
    if not weight.sum() > 0.0:
        return 0.0, 0.0
    aim = (positives * ((more + 1.0) / (more + 2.0)) + negatives / (less + 2.0)) / weight
    scale = float(np.abs(scores).max()) or 1.0  # the curvature of scores of 1e300 would overflow
    s = scores / scale
    at = np.array([0.0, np.log((more + 1.0) / (less + 1.0))])
    value = _log_loss(at, s, aim, weight)
    for _ in range(STEPS):
        p = _sigmoid(at[0] * s + at[1])
        first, second = weight * (p - aim), weight * p * (1.0 - p)
        slope = np.array([first @ s, first.sum()])
        if np.abs(slope).max() <= ENOUGH * weight.sum():
            break
        cross, total = second @ s, second.sum()
        ridge = RIDGE * weight.sum()
        curvature = np.array([[second @ (s * s) + ridge, cross], [cross, total + ridge]])
        move = np.linalg.solve(curvature, slope)
        better = _line_search(at, move, value, float(slope @ move), s, aim, weight)
        if better is None:
            break
        at, value = better
    return float(at[0]) / scale, float(at[1])


def isotonic(negatives: Floats, positives: Floats, scores: Floats) -> Calibration:
    """The non-decreasing probabilities of least squared error: pool adjacent violators.

    Each block of equal probabilities has a point at either end, between which it is linear, as in
    scikit-learn's IsotonicRegression. N the weight of all rows, no probability is below 1 / (N + 2)
    or above 1 - 1 / (N + 2): a log loss stays finite.
    """
    weight = negatives + positives
    if not len(weight):
        return Calibration("isotonic", (0.0,), (0.5,))
    blocks: list[tuple[float, float, int]] = []  # positives, weight, last bin
    for at, (hits, rows) in enumerate(zip(positives.tolist(), weight.tolist(), strict=True)):
        last = at
        while blocks and blocks[-1][0] * rows >= hits * blocks[-1][1]:
            above, more, _ = blocks.pop()
            hits, rows = hits + above, rows + more  # noqa: PLW2901  (the block grows)
        blocks.append((hits, rows, last))
    least = 1.0 / (float(weight.sum()) + 2.0)
    x, p, first = [], [], 0
    for hits, rows, last in blocks:
        likely = min(max(hits / rows, least), 1.0 - least)
        for end in dict.fromkeys((first, last)):
            x.append(float(scores[end]))
            p.append(likely)
        first = last + 1
    return Calibration("isotonic", tuple(x), tuple(p))


def _line_search(
    at: Floats, move: Floats, value: float, gain: float, s: Floats, aim: Floats, weight: Floats
) -> tuple[Floats, float] | None:
    """The first of Newton's step, its half, its quarter … that lowers the loss enough."""
    size = 1.0
    for _ in range(HALVINGS):
        tried = at - size * move
        found = _log_loss(tried, s, aim, weight)
        if found < value - 1e-4 * size * gain:
            return tried, found
        size /= 2.0
    return None


def _log_loss(at: Floats, s: Floats, aim: Floats, weight: Floats) -> float:
    z = at[0] * s + at[1]
    return float(weight @ (np.logaddexp(0.0, z) - aim * z))


def _sigmoid(z: Floats) -> Floats:
    e = np.exp(-np.abs(z))
    found: Floats = np.where(z >= 0.0, 1.0, e) / (1.0 + e)
    return found
