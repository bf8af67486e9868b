"""Ranges of feature values, by the dtype of the slots: where a rule works as documented.

A value outside its rule's range makes a bad row with the reason ``out_of_range``; 0 is always
inside. Each bound follows from what the rule computes of a value x, with a margin of some 10^10 for
slopes, importances and the number of rows, or for float32 slots as much as there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

FLOAT32_MAX = 3.4028234663852886e38


class Limits(NamedTuple):
    """The least and the largest legal abs(x) that is not 0."""

    least: float
    most: float


def narrowest(limits: Iterable[Limits]) -> Limits:
    """What is inside all of them.

    >>> narrowest([Limits(0.0, 10.0), Limits(0.5, 100.0)])
    Limits(least=0.5, most=10.0)
    """
    known = list(limits)
    return Limits(max(one.least for one in known), min(one.most for one in known))


class Range(NamedTuple):
    """Limits for float64 and for float32 slots."""

    float64: Limits
    float32: Limits

    def of(self, dtype: str) -> Limits:
        """The limits for slots of a dtype.

        >>> SQUARES.of("float32").most
        100000000000000.0
        """
        return self.float32 if dtype == "float32" else self.float64


ANY = Range(Limits(0.0, math.inf), Limits(0.0, FLOAT32_MAX))
"""Every finite number that the slots can hold."""

SQUARES = Range(Limits(1e-140, 1e140), Limits(1e-18, 1e14))
"""Slots hold sums of (g x)^2 or x^2: float64 squares reach 1e-308 … 1e308, float32 1e-38 … 3e38."""

RATIOS = Range(Limits(1e-290, 1e290), Limits(1e-28, 1e28))
"""Slots hold x, 1/x and sums of g x, and only ratios are squared."""

NORMS = Range(Limits(0.0, 1e100), Limits(0.0, FLOAT32_MAX))
"""A row's squared norm divides the step: if it were infinite, the step would silently be 0."""
