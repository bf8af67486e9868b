"""Curves as they are defined: hats by interpolation, knots by exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np


def hats(x: float, knots: Sequence[float]) -> list[float]:
    """The hat of knot k is the interpolation of 1 at k and 0 at the others, constant outside."""
    return [float(np.interp(x, knots, row)) for row in np.eye(len(knots))]


def knots(values: Sequence[float], weights: Sequence[int], most: int) -> list[float]:
    """All values, if at most ``most``; else those with 1 / most of the weight, and of the others
    as many quantiles as are left, evenly from 2 % to 98 %. Weights are whole numbers."""
    mass: dict[float, Fraction] = {}
    for value, weight in zip(values, weights, strict=True):
        if weight > 0 and np.isfinite(value):
            mass[value] = mass.get(value, Fraction(0)) + weight
    if len(mass) <= most:
        return sorted(mass)
    total = sum(mass.values())
    found = {value for value in mass if mass[value] * most >= total}
    rest = sorted(set(mass) - found)
    count, all_of_rest = most - len(found), sum(mass[value] for value in rest)
    for k in range(count if rest else 0):
        share = (
            Fraction(1, 50) + Fraction(48 * k, 50 * (count - 1)) if count > 1 else Fraction(1, 2)
        )
        summed = Fraction(0)
        for value in rest:
            summed += mass[value]
            if summed >= all_of_rest * share:
                found.add(value)
                break
    return sorted(found)


def score(slopes: np.ndarray, number: np.ndarray, hats: np.ndarray) -> tuple[float, int]:
    """Of one learner: how much of the sum of ones the hats' scores explain beyond those of the
    intercept and the number: the fall of the residual sum of squares, and of free directions."""
    line = np.column_stack([np.ones(len(number)), number]) * slopes[:, None]
    both = np.column_stack([line, hats * slopes[:, None]])
    ones = np.ones(len(number))

    def left(design: np.ndarray) -> tuple[float, int]:
        found, _, rank, _ = np.linalg.lstsq(design, ones, rcond=1e-9)
        return float(((ones - design @ found) ** 2).sum()), int(rank)

    (before, few), (after, many) = left(line), left(both)
    return before - after, many - few


def pair_score(slopes: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[float, int]:
    """Of one learner: the same of cells of two columns beyond the columns alone. rows, columns: a
    column of 0 and 1 for each value."""
    cells = (rows[:, :, None] * columns[:, None, :]).reshape(len(slopes), -1)
    ones = np.ones(len(slopes))

    def left(design: np.ndarray) -> tuple[float, int]:
        found, _, rank, _ = np.linalg.lstsq(design * slopes[:, None], ones, rcond=1e-9)
        return float(((ones - design * slopes[:, None] @ found) ** 2).sum()), int(rank)

    (before, few), (after, many) = left(np.hstack([rows, columns])), left(cells)
    return before - after, many - few
