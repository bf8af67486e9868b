"""Half the squared hinge loss, [1 - y p]_+^2 / 2."""

from __future__ import annotations

from streamomd.losses.contract import Loss


def value(margin: float, y: float, p: object) -> float:
    gap = 1.0 - y * margin
    return 0.0 if gap <= 0.0 else 0.5 * gap * gap


def slope(margin: float, y: float, p: object) -> float:
    gap = 1.0 - y * margin
    return 0.0 if gap <= 0.0 else -y * gap


LOSS = Loss(
    name="squared_hinge",
    title="half the square of the hinge; classification that dwells on the worst rows",
    value=value,
    slope=slope,
    classifies=True,
)
