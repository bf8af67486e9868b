"""Poisson loss with the log link, exp(p) - y p: its mean predicts a count's expectation."""

from __future__ import annotations

import math

from streamomd.losses.contract import Loss

LARGEST = 709.0


def rate(margin: float) -> float:
    """exp(margin); infinity where that overflows."""
    return math.inf if margin > LARGEST else math.exp(margin)


def value(margin: float, y: float, p: object) -> float:
    return rate(margin) - y * margin


def slope(margin: float, y: float, p: object) -> float:
    return rate(margin) - y


LOSS = Loss(
    name="poisson",
    title="log link; regression of counts",
    value=value,
    slope=slope,
    mean=rate,
    classifies=False,
    least=0.0,
)
