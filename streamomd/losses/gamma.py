"""Gamma loss with the log link, y exp(-p) + p: its mean predicts a positive target's mean."""

from __future__ import annotations

import sys

from streamomd.losses.contract import Loss
from streamomd.losses.poisson import rate


def value(margin: float, y: float, p: object) -> float:
    return y * rate(-margin) + margin


def slope(margin: float, y: float, p: object) -> float:
    return 1.0 - y * rate(-margin)


LOSS = Loss(
    name="gamma",
    title="log link; regression of positive amounts, whose spread grows with their mean",
    value=value,
    slope=slope,
    mean=rate,
    classifies=False,
    least=sys.float_info.min,
)
