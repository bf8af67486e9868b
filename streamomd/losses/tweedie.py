"""Tweedie loss with the log link, exp((2 - k) p) / (2 - k) + y exp((1 - k) p) / (k - 1), of power k
between 1 (Poisson) and 2 (gamma): its mean predicts the expectation of amounts, many of them 0."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.losses.contract import Loss
from streamomd.losses.poisson import rate
from streamomd.rules.params import Between


class Hyper(NamedTuple):
    power: Annotated[float, Between(1.0, 2.0, closed=False)] = 1.5


def value(margin: float, y: float, p: Hyper) -> float:
    low, high = 1.0 - p.power, 2.0 - p.power
    return rate(high * margin) / high - y * rate(low * margin) / low


def slope(margin: float, y: float, p: Hyper) -> float:
    return rate((2.0 - p.power) * margin) - y * rate((1.0 - p.power) * margin)


LOSS = Loss(
    name="tweedie",
    title="log link; regression of amounts of which many are 0, such as claims",
    value=value,
    slope=slope,
    mean=rate,
    classifies=False,
    least=0.0,
    hyper=Hyper,
)
