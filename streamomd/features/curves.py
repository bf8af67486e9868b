"""Knots of numbers, and bins of those in pairs of columns: decided once, by the first rows, without
labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.scalars import FEWEST, LARGEST, Curve
from streamomd.features.grow_trees import Gone, known_numbers
from streamomd.features.numeric import Numbers
from streamomd.features.plan import Plan, number_name

ROWS = 8192
"""First rows that knots are chosen from."""
MOST_READ = 64 * ROWS
"""Rows that are read for them, of which a filter may drop most."""
MOST_NUMBERS = 1024
"""Numbers that may have curves: of more, none is looked at."""
MOST, MOST_BINS = 8, 8
"""Knots of a number, and bins of one in pairs of columns."""
TAIL = 0.02
"""The share of the weight below the first and above the last quantile: with less, hats of large
values are rarely seen, with more, tails are lines."""
BUDGET = 192
"""Knots of all numbers together."""
WIDE = 255
"""Numbers and their hats together, where the budget allows: of up to 255 columns rule ``auto`` has
one full matrix."""
EXACT = 1.0 - 1e-9
"""Sums of weights are compared up to rounding, which the unit of weights changes."""


def equal_curves(values: Floats, weights: Floats) -> tuple[Curve, ...]:
    """Curves of all numbers (rows, numbers), NaN where one is missing. Their knots do not depend on
    the unit of the weights, which are 0 or more.

    None for a number with fewer than three values, and none at all where all together would have
    more than the budget with three each.
    """
    counted = [_masses(column, weights) for column in values.T]
    sizes = np.array([len(found) for found, _ in counted])
    room = room_of(len(sizes))
    fitting = [most for most in range(FEWEST, MOST + 1) if _sum_of_knots(sizes, most) <= room]
    return _curves(counted, fitting[-1]) if fitting else ()


def candidates_of(values: Floats, weights: Floats) -> tuple[Curve, ...]:
    """The same with ``MOST`` knots each, however many they are."""
    return _curves([_masses(column, weights) for column in values.T], MOST)


def best_curves(curves: Sequence[Curve], worth: Sequence[float], numbers: int) -> tuple[Curve, ...]:
    """Of candidates worth more than 0 the best ones that the budget has room for."""
    room, kept = room_of(numbers), []
    for value, curve in sorted(zip(worth, curves, strict=False), key=lambda one: -one[0]):
        if value > 0.0 and len(curve.knots) <= room:
            kept.append(curve)
            room -= len(curve.knots)
    return tuple(sorted(kept))


def room_of(numbers: int) -> int:
    """How many knots all curves of these numbers may have together."""
    return BUDGET if numbers > WIDE else min(BUDGET, WIDE - numbers)


def _curves(counted: Sequence[tuple[Floats, Floats]], most: int) -> tuple[Curve, ...]:
    made = (
        Curve(place, float(found[0]), float(found[-1]), knots_of(found, mass, most))
        for place, (found, mass) in enumerate(counted)
        if len(found) >= FEWEST
    )
    return tuple(curve for curve in made if len(curve.knots) >= FEWEST)


def _sum_of_knots(sizes: NDArray[np.int64], most: int) -> int:
    """Knots of all numbers. sizes: values of each. most: knots of one."""
    return int(np.minimum(sizes[sizes >= FEWEST], most).sum())


def _masses(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Distinct values, ascending, and the weight of each."""
    known = (np.abs(values) <= LARGEST) & (weights > 0.0)
    found, of = np.unique(values[known] + 0.0, return_inverse=True)  # -0.0 is 0.0
    return found, np.bincount(of, weights[known], len(found)).astype(np.float64)


def knots_of(values: Floats, mass: Floats, most: int) -> tuple[float, ...]:
    """At most ``most`` knots: all values, if they are as few; else each value with a share of
    1 / most of the weight, and quantiles of the others, from ``TAIL`` on. values: ascending."""
    if len(values) <= most:
        return tuple(values.tolist())
    heavy = mass >= EXACT * mass.sum() / most
    found, rest = [*values[heavy]], np.flatnonzero(~heavy)
    count = most - len(found)
    if count and len(rest):
        summed = np.cumsum(mass[rest])
        shares = np.linspace(TAIL, 1.0 - TAIL, count) if count > 1 else np.array([0.5])
        wanted = EXACT * summed[-1] * shares
        found += [*values[rest[np.searchsorted(summed, wanted)]]]
    return tuple(sorted({float(knot) for knot in found}))


class PackedCurves(NamedTuple):
    """Curves as compiled code takes them. begins: of each curve's knots, and where all end."""

    places: NDArray[np.int64]
    begins: NDArray[np.int64]
    knots: Floats

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> PackedCurves:
        """The curves, side by side."""
        begins = np.cumsum([0, *(len(curve.knots) for curve in curves)], dtype=np.int64)
        knots = [knot for curve in curves for knot in curve.knots]
        return cls(np.array([c.place for c in curves], np.int64), begins, np.array(knots, float))


def edges_of(values: Floats, weights: Floats) -> tuple[float, ...]:
    """Where bins of about equal weight begin, but for the first one; a value each, if they are
    few. () of a number with one value. values: NaN where one is missing."""
    found, mass = _masses(values, weights)
    if len(found) <= MOST_BINS:
        return tuple(found[1:].tolist())
    summed = np.cumsum(mass)
    at = np.searchsorted(summed, EXACT * summed[-1] * np.arange(1, MOST_BINS) / MOST_BINS)
    return tuple(sorted({*found[np.maximum(at, 1)].tolist()}))


def codes_of(values: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
    """The number of each value's bin, one more than the last of a missing one."""
    codes = np.searchsorted(np.array(edges), values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, codes)


def binned(plan: Plan, table: Numbers, gone: Gone) -> dict[str, pa.Array]:
    """Numbers of rows as categories, by name; null where one is missing. table: numeric and vector
    coordinates, first. gone: where a value is missing, for each column with an indicator."""
    if not plan.bins:
        return {}
    numbers, found = known_numbers(plan, table, gone), {}
    for bins in plan.bins:
        codes = codes_of(numbers[:, bins.place], bins.edges)
        indices = pa.array(codes.astype(np.int32), mask=codes > len(bins.edges))
        names = pa.array(bins.names, pa.large_string())
        name = number_name(plan, bins.place)
        found[name] = pa.DictionaryArray.from_arrays(indices, names)
    return found
