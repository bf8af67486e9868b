"""Calibration from a histogram of margins: Platt's sigmoid, and isotonic regression.

negatives, positives: the weight of rows of either class, in bins of ascending scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamomd.training.metrics.ranking import FINE, centres
from streamomd.training.scoring.link import Calibration

Floats = NDArray[np.float64]
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
