"""The absolute difference beyond ``epsilon``, [abs(y - p) - epsilon]_+."""

from __future__ import annotations

from typing import NamedTuple

from streamomd.losses.contract import Loss
from streamomd.rules.params import NotNegative


class Hyper(NamedTuple):
    epsilon: NotNegative = 0.1


def value(margin: float, y: float, p: Hyper) -> float:
    excess = abs(margin - y) - p.epsilon
    return 0.0 if excess <= 0.0 else excess


def slope(margin: float, y: float, p: Hyper) -> float:
    r = margin - y
    if r > p.epsilon:
        return 1.0
    if r < -p.epsilon:
        return -1.0
    return 0.0 * r  # 0, or NaN when there is no margin to compare


def lipschitz(p: Hyper) -> float:
    return 1.0


LOSS = Loss(
    name="epsilon_insensitive",
    title="the absolute difference beyond epsilon; support vector regression",
    value=value,
    slope=slope,
    classifies=False,
    kinked=True,
    degree=1,
    lengths=("epsilon",),
    hyper=Hyper,
    lipschitz=lipschitz,
)
