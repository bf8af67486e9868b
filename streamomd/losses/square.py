"""Half the squared difference, (y - p)^2 / 2."""

from __future__ import annotations

import math

from streamomd.losses.contract import Loss


def value(margin: float, y: float, p: object) -> float:
    r = margin - y
    return 0.5 * r * r


def slope(margin: float, y: float, p: object) -> float:
    return margin - y


def along(margin: float, y: float, change: float, p: object) -> float:
    """The flow dm/ds = -R (m - y) ends at (1 - exp(-R)) of the way to y."""
    rate = change / (y - margin)
    return -math.expm1(-rate) / rate if rate > 0.0 else 1.0


def solve(m: float, chi: float, y: float, h: float, p: object, slope: float) -> tuple[float, float]:
    """The curvature is 1 everywhere."""
    return -h * (m - y) / (1.0 + h * chi), h


LOSS = Loss(
    name="square",
    title="half the squared difference; regression to the mean",
    value=value,
    slope=slope,
    along=along,
    solve=solve,
    classifies=False,
    degree=2,
    quadratic=True,
    aliases=("squared_error", "squared", "mse", "mean_squared_error"),
)
