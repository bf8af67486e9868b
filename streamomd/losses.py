"""Losses: value, slope and mean of each, each formula once, module ``math`` only.

``margin`` is the prediction <w, x>, ``y`` the target: any number in regression, -1 or +1 in
classification. ``slope`` is the derivative of ``value`` by the margin; at a kink it is the
subgradient nearest 0. ``mean`` maps a margin to what is predicted: a probability of the second
class for logistic, the margin itself otherwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from streamomd._plugins import find, load

Scalar = Callable[[float, float], float]


@dataclass(frozen=True)
class Loss:
    """A loss's description and functions; ``lipschitz`` bounds abs(slope), None: unbounded."""

    name: str
    title: str
    value: Scalar
    slope: Scalar
    mean: Callable[[float], float]
    classifies: bool
    probabilistic: bool
    lipschitz: float | None
    aliases: tuple[str, ...] = ()


def identity(margin: float) -> float:
    return margin


def sigmoid(margin: float) -> float:
    """1 / (1 + exp(-margin)), without overflow on either side.

    >>> sigmoid(0.0), sigmoid(-800.0), sigmoid(800.0)
    (0.5, 0.0, 1.0)
    """
    if margin >= 0.0:
        return 1.0 / (1.0 + math.exp(-margin))
    e = math.exp(margin)
    return e / (1.0 + e)


def square_value(margin: float, y: float) -> float:
    r = margin - y
    return 0.5 * r * r


def square_slope(margin: float, y: float) -> float:
    return margin - y


def absolute_value(margin: float, y: float) -> float:
    return abs(margin - y)


def absolute_slope(margin: float, y: float) -> float:
    if margin > y:
        return 1.0
    if margin < y:
        return -1.0
    return margin - y  # 0, or NaN when there is no margin to compare


def hinge_value(margin: float, y: float) -> float:
    gap = 1.0 - y * margin
    return 0.0 if gap <= 0.0 else gap


def hinge_slope(margin: float, y: float) -> float:
    return 0.0 if y * margin >= 1.0 else -y


def logistic_value(margin: float, y: float) -> float:
    """ln(1 + exp(-y margin)).

    >>> logistic_value(-700.0, 1.0), logistic_value(700.0, 1.0) > 0.0
    (700.0, True)
    """
    z = y * margin
    if z > 0.0:
        return math.log1p(math.exp(-z))
    return math.log1p(math.exp(z)) - z


def logistic_slope(margin: float, y: float) -> float:
    z = y * margin
    if z > 0.0:
        e = math.exp(-z)
        return -y * (e / (1.0 + e))
    return -y / (1.0 + math.exp(z))


BUILT_IN = (
    Loss(
        name="square",
        title="half the squared difference; regression to the mean",
        value=square_value,
        slope=square_slope,
        mean=identity,
        classifies=False,
        probabilistic=False,
        lipschitz=None,
        aliases=("squared_error",),
    ),
    Loss(
        name="absolute",
        title="the absolute difference; regression to the median",
        value=absolute_value,
        slope=absolute_slope,
        mean=identity,
        classifies=False,
        probabilistic=False,
        lipschitz=1.0,
        aliases=("absolute_error",),
    ),
    Loss(
        name="hinge",
        title="the margin's shortfall below 1; classification without probabilities",
        value=hinge_value,
        slope=hinge_slope,
        mean=identity,
        classifies=True,
        probabilistic=False,
        lipschitz=1.0,
    ),
    Loss(
        name="logistic",
        title="log loss; classification with probabilities",
        value=logistic_value,
        slope=logistic_slope,
        mean=sigmoid,
        classifies=True,
        probabilistic=True,
        lipschitz=1.0,
        aliases=("log_loss", "log"),
    ),
)


@functools.cache
def all_losses() -> dict[str, Loss]:
    """Every loss by name; more come by entry points of group ``streamomd.losses``."""
    return {loss.name: loss for loss in (*BUILT_IN, *load("streamomd.losses"))}


def find_loss(name: str) -> Loss:
    """The loss of that name or alias. Raises UsageError with the nearest name.

    >>> find_loss("log_loss").name
    'logistic'
    """
    known = all_losses()
    aliases = {alias: loss for loss in known.values() for alias in loss.aliases}
    return find("loss", name, {**known, **aliases})
