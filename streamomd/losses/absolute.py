"""The absolute difference, abs(y - p)."""

from __future__ import annotations

from streamomd.losses.contract import Loss


def value(margin: float, y: float, p: object) -> float:
    return abs(margin - y)


def slope(margin: float, y: float, p: object) -> float:
    if margin > y:
        return 1.0
    if margin < y:
        return -1.0
    return margin - y  # 0, or NaN when there is no margin to compare


def lipschitz(p: object) -> float:
    return 1.0


LOSS = Loss(
    name="absolute",
    title="the absolute difference; regression to the median",
    value=value,
    slope=slope,
    classifies=False,
    kinked=True,
    degree=1,
    lipschitz=lipschitz,
    aliases=("absolute_error", "mae", "mean_absolute_error"),
)
