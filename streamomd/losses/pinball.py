"""Pinball loss: tau (y - p) where the target is above the prediction, (1 - tau) (p - y) below."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.losses.contract import Loss
from streamomd.rules.params import Between


class Hyper(NamedTuple):
    tau: Annotated[float, Between(0.0, 1.0, closed=False)] = 0.5


def value(margin: float, y: float, p: Hyper) -> float:
    r = y - margin
    return p.tau * r if r > 0.0 else (p.tau - 1.0) * r


def slope(margin: float, y: float, p: Hyper) -> float:
    if margin < y:
        return -p.tau
    if margin > y:
        return 1.0 - p.tau
    return margin - y  # 0, or NaN when there is no margin to compare


def lipschitz(p: Hyper) -> float:
    return max(p.tau, 1.0 - p.tau)


LOSS = Loss(
    name="pinball",
    title="tilted absolute difference; regression to the quantile tau",
    value=value,
    slope=slope,
    classifies=False,
    kinked=True,
    degree=1,
    hyper=Hyper,
    lipschitz=lipschitz,
    aliases=("quantile",),
)
