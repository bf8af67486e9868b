"""Huber's loss: square near 0, absolute with slope ``threshold`` beyond it."""

from __future__ import annotations

from typing import NamedTuple

from streamomd.losses.contract import Loss
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    threshold: Positive = 1.0


def value(margin: float, y: float, p: Hyper) -> float:
    r = abs(margin - y)
    if r > p.threshold:
        return p.threshold * (r - 0.5 * p.threshold)
    return 0.5 * r * r


def slope(margin: float, y: float, p: Hyper) -> float:
    r = margin - y
    if r > p.threshold:
        return p.threshold
    if r < -p.threshold:
        return -p.threshold
    return r


def lipschitz(p: Hyper) -> float:
    return p.threshold


LOSS = Loss(
    name="huber",
    title="square near 0, absolute beyond a threshold; regression with outliers",
    value=value,
    slope=slope,
    classifies=False,
    degree=2,
    lengths=("threshold",),
    hyper=Hyper,
    lipschitz=lipschitz,
)
