"""Hinge loss, [1 - y p]_+."""

from __future__ import annotations

from streamomd.losses.contract import Loss


def value(margin: float, y: float, p: object) -> float:
    gap = 1.0 - y * margin
    return 0.0 if gap <= 0.0 else gap


def slope(margin: float, y: float, p: object) -> float:
    return 0.0 if y * margin >= 1.0 else -y


def along(margin: float, y: float, change: float, p: object) -> float:
    """The slope is constant until the margin reaches 1."""
    gap = 1.0 - y * margin
    return min(1.0, gap / abs(change))


def lipschitz(p: object) -> float:
    return 1.0


LOSS = Loss(
    name="hinge",
    title="the margin's shortfall below 1; classification without probabilities",
    value=value,
    slope=slope,
    along=along,
    classifies=True,
    kinked=True,
    lipschitz=lipschitz,
)
