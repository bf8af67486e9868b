"""Hinge loss with margin ``gamma``, [gamma - y p]_+; gamma = 0 is the Perceptron's loss."""

from __future__ import annotations

from typing import NamedTuple

from streamomd.losses.contract import Loss
from streamomd.rules.params import NotNegative


class Hyper(NamedTuple):
    gamma: NotNegative = 1.0


def value(margin: float, y: float, p: Hyper) -> float:
    gap = p.gamma - y * margin
    return 0.0 if gap <= 0.0 else gap


def slope(margin: float, y: float, p: Hyper) -> float:
    return 0.0 if y * margin >= p.gamma else -y


def lipschitz(p: Hyper) -> float:
    return 1.0


LOSS = Loss(
    name="gamma_hinge",
    title="the margin's shortfall below gamma",
    value=value,
    slope=slope,
    classifies=True,
    kinked=True,
    hyper=Hyper,
    lipschitz=lipschitz,
)
