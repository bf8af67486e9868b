"""The exact implicit step of any loss, from its slope alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streamomd.losses.contract import Loss

Scalar = Callable[..., float]
STEPS = 100
"""1 … 2^-1075 narrows to a factor of 2 in 22 steps at most, and to a digit in 54 more."""
DIGIT = 2.0**-52


def make_solve(loss: Loss) -> Callable[..., tuple[float, float]]:
    """solve(m, chi, y, h, p, start) -> (s, a): the loss's own, see ``contract``, or one with a = 0.

    At a kink the margin stops. The loss is not coupled; its slope never falls, and its minimum is
    less than 1e300 away.
    """
    if loss.solve is not None:
        return loss.solve
    slope = loss.slope
    bracket, narrow = _make_bracket(slope), _make_narrow(slope)

    def solve(
        m: float, chi: float, y: float, h: float, p: Any, start: float
    ) -> tuple[float, float]:
        """In d = chi |s|, by which the margin moves: d / X + sign slope(m + sign d), X = h chi,
        rises through 0."""
        m, chi, y, h = float(m), float(chi), float(y), float(h)
        start = float(start)
        X = h * chi
        high = X * abs(start)
        if not high > 1e-290:  # the margin does not move, or is NaN
            return -h * start, 0.0
        sign = 1.0 if start < 0.0 else -1.0
        high = min(high, 1e300)
        if high / X + sign * slope(m + sign * high, y, p) <= 0.0:  # the slope is constant so far
            return -h * start, 0.0
        low, high = bracket(m, X, sign, y, p, high)
        return sign * (narrow(m, X, sign, y, p, low, high) / chi), 0.0

    return solve


def _make_bracket(slope: Scalar) -> Callable[..., tuple[float, float]]:
    def bracket(
        m: float, X: float, sign: float, y: float, p: Any, high: float
    ) -> tuple[float, float]:
        """(low, high) with high <= 2 low, if there is one: the order of magnitude of d."""
        low, factor = 0.0, 0.5
        for _ in range(STEPS):
            if high <= 2.0 * low:
                break
            if low > 0.0:
                d = math.sqrt(low) * math.sqrt(high)
            else:
                d, factor = factor * high, factor * factor
            if not low < d < high:
                break
            if d / X + sign * slope(m + sign * d, y, p) < 0.0:
                low = d
            else:
                high = d
        return low, high

    return bracket


def _make_narrow(slope: Scalar) -> Scalar:
    def narrow(m: float, X: float, sign: float, y: float, p: Any, low: float, high: float) -> float:
        """d by ITP (Oliveira & Takahashi 2020): false position, moved toward the middle as far as
        the bracket needs in order to end as narrow as one halving less would leave it."""
        below = low / X + sign * slope(m + sign * low, y, p)
        above = high / X + sign * slope(m + sign * high, y, p)
        room = high - low  # the half-width that is due
        pull = 0.2 / room if room > 1e-290 else 0.0
        for _ in range(STEPS):
            width, least = high - low, DIGIT * high
            if width <= least or above <= 0.0:
                break
            half = low + 0.5 * width
            d = low + width * (below / (below - above))
            if not low <= d <= high:  # below is infinite
                d = half
            side = 1.0 if d < half else -1.0
            shift = max(pull * width * width, least)
            d = d + side * shift if shift <= abs(half - d) else half
            if abs(d - half) > room - 0.5 * width:
                d = half - side * (room - 0.5 * width)
            if not low < d < high:
                break
            room *= 0.5
            found = d / X + sign * slope(m + sign * d, y, p)
            if found < 0.0:
                low, below = d, found
            else:
                high, above = d, found
        return high

    return narrow
