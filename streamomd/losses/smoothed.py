"""A loss without its kinks: its Moreau envelope, min over q of l(q) + (p - q)^2 / (2 s).

It is at most s L^2 / 2 below the loss l, and its slope is (p - q) / s.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_type_hints

from streamomd.losses.contract import Loss
from streamomd.rules.contract import Nothing
from streamomd.rules.params import Positive

HALVINGS = 60


@functools.cache
def smoothed(loss: Loss) -> Loss:
    """The loss's Moreau envelope, with its own parameters and ``smoothing``."""
    value, slope = loss.value, loss.slope

    def foot(margin: float, y: float, p: Any) -> float:
        """The q of the minimum: q - p + s l'(q) rises through 0 between p - s l'(p) and p."""
        end = margin - p.smoothing * slope(margin, y, p)
        low, high = min(margin, end), max(margin, end)
        for _ in range(HALVINGS):
            half = 0.5 * (low + high)
            if half <= low or half >= high:
                break
            if half - margin + p.smoothing * slope(half, y, p) > 0.0:
                high = half
            else:
                low = half
        middle: float = 0.5 * (low + high)
        return middle

    def smooth_value(margin: float, y: float, p: Any) -> float:
        q = foot(margin, y, p)
        below: float = value(q, y, p) + (margin - q) * (margin - q) / (2.0 * p.smoothing)
        return below

    def smooth_slope(margin: float, y: float, p: Any) -> float:
        rise: float = (margin - foot(margin, y, p)) / p.smoothing
        return rise

    return replace(
        loss, name=f"smooth_{loss.name}", value=smooth_value, slope=smooth_slope, along=None,
        solve=None, hyper=_with_smoothing(loss.hyper), aliases=(), quadratic=False, kinked=False,
    )  # fmt: skip


def _with_smoothing(hyper: type[tuple[float, ...]]) -> type[tuple[float, ...]]:
    kinds = {} if hyper is Nothing else get_type_hints(hyper, include_extras=True)
    defaults = [*getattr(hyper, "_field_defaults", {}).values(), 1.0]
    make: Callable[..., Any] = namedtuple
    made: type[tuple[float, ...]] = make("Smoothed", [*kinds, "smoothing"], defaults=defaults)
    made.__annotations__ = {**kinds, "smoothing": Positive}
    return made
