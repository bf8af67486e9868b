"""The logistic function, where neither losses nor numba are loaded.

A hat is 1 at its knot and falls linearly to 0 at the next knots; the first one stays 1 below its
knot, the last one above. So the hats of a number sum to 1, a weighted sum of them is any piecewise
linear function with these knots, and beyond the knots the slope is that of the linear term alone.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


def sigmoid(margin: float) -> float:
    """1 / (1 + exp(-margin)), without overflow on either side.

    >>> sigmoid(0.0), sigmoid(-800.0), sigmoid(800.0)
    (0.5, 0.0, 1.0)
    """
    e = math.exp(-abs(margin))  # without a branch: the sign is not predictable
    return (1.0 if margin >= 0.0 else e) / (1.0 + e)


FEWEST = 3
"""Knots of a curve: two hats and a linear term are no curve."""
LARGEST = 1e300
"""Differences of knots are finite."""
LEAST = 1e-12
"""A share below it is 0: rules that divide by the largest value so far need no smaller ones."""


class Curve(NamedTuple):
    """A number with hats: its place among numeric and vector coordinates, its knots, ascending, and
    its least and largest value in the rows that they were chosen from."""

    place: int
    least: float
    most: float
    knots: tuple[float, ...]


def hat_at(x: float, knots: Any, low: int, last: int) -> tuple[int, float]:
    """(k, share): of the hats at knots low … last, hat k is 1 - share, hat k + 1 is share, and the
    others are 0.

    >>> hat_at(0.5, [0.0, 1.0, 3.0], 0, 2), hat_at(2.5, [0.0, 1.0, 3.0], 0, 2)
    ((0, 0.5), (1, 0.75))
    >>> hat_at(-9.0, [0.0, 1.0, 3.0], 0, 2), hat_at(9.0, [0.0, 1.0, 3.0], 0, 2)
    ((0, 0.0), (1, 1.0))
    """
    k = low
    for j in range(low + 1, last):  # no branch, which processors would predict badly
        k += x >= knots[j]
    share = (x - knots[k]) / (knots[k + 1] - knots[k])
    if share < LEAST:
        share = 0.0
    elif share > 1.0 - LEAST:
        share = 1.0
    return k, share


def hat_of(x: float, knots: Sequence[float]) -> tuple[int, float]:
    """``hat_at`` of all knots, by bisection, which is faster in Python."""
    k = bisect_right(knots, x, 1, len(knots) - 1) - 1
    return hat_at(x, knots, k, k + 1)


def hat_names(knots: Sequence[float]) -> Iterator[str]:
    """Names of hats: the knots between which each is not 0.

    >>> [*hat_names((18.0, 30.0, 42.5, 90.0))]
    ['..30', '18..42.5', '30..90', '42.5..']
    """
    texts = _texts(knots)
    for low, high in zip(["", *texts[:-1]], [*texts[1:], ""], strict=True):
        yield f"{low}..{high}"


def hats_of(curves: Sequence[Curve], first: int) -> Iterator[tuple[Curve, slice]]:
    """Curves, each with the coordinates of its hats; first: the first one of all."""
    for curve in curves:
        yield curve, slice(first, first + len(curve.knots))
        first += len(curve.knots)


class Bins(NamedTuple):
    """A number as a category, in pairs of columns: its place among numeric and vector coordinates,
    and the least number of each bin but the first, ascending."""

    place: int
    edges: tuple[float, ...]

    @property
    def names(self) -> list[str]:
        """The bins, from their least number to below the next one's.

        >>> Bins(0, (30.0, 42.5)).names
        ['..30', '30..42.5', '42.5..']
        """
        texts = ["", *_texts(self.edges, 3), ""]
        return [f"{low}..{high}" for low, high in itertools.pairwise(texts)]


def _texts(numbers: Sequence[float], digits: int = 6) -> list[str]:
    """Numbers as texts of as few digits, these or more, as tell them apart."""
    for count in range(digits, 7):
        texts = [f"{number:.{count}g}" for number in numbers]
        if len({*texts}) == len(texts):
            return texts
    return [repr(number) for number in numbers]


def check_curves(curves: Sequence[Any], numbers: int) -> tuple[Curve, ...]:
    """Curves of that many numbers, as they are saved. Raises TypeError or ValueError for others."""
    made = [Curve(place, least, most, tuple(knots)) for place, least, most, knots in curves]
    for place, least, most, knots in made:
        if any(type(one) not in (int, float) or not abs(one) <= LARGEST for one in knots):
            raise TypeError(f"knots are {knots!r}, expected numbers")
        if len(knots) < FEWEST or any(a >= b for a, b in itertools.pairwise(knots)):
            raise ValueError(f"knots are {knots!r}, expected {FEWEST} or more that ascend")
        if type(place) is not int or not 0 <= place < numbers:
            raise ValueError(f"a curve of number {place!r}")
        if type(least) is not float or type(most) is not float or not least <= most:
            raise TypeError(f"a curve of numbers from {least!r} to {most!r}")
    places = [curve.place for curve in made]
    if any(a >= b for a, b in itertools.pairwise(places)):
        raise ValueError(f"curves of numbers {places}, expected ascending ones")
    return tuple(made)


def check_bins(bins: Sequence[Any], numbers: int) -> tuple[Bins, ...]:
    """Bins of that many numbers, as they are saved. Raises TypeError or ValueError for others."""
    made = [Bins(place, tuple(edges)) for place, edges in bins]
    for place, edges in made:
        if any(type(one) not in (int, float) or not abs(one) <= LARGEST for one in edges):
            raise TypeError(f"edges are {edges!r}, expected numbers")
        if not edges or any(a >= b for a, b in itertools.pairwise(edges)):
            raise ValueError(f"edges are {edges!r}, expected ascending ones")
        if type(place) is not int or not 0 <= place < numbers:
            raise ValueError(f"bins of number {place!r}")
    return tuple(made)
