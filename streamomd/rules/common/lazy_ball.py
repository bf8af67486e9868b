"""Dual averaging in an L2 ball: the nearest point is one factor for all weights, from ||theta||."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.rules.common import sets
from streamomd.rules.common.schedules import averaging_rate
from streamomd.rules.contract import CoordinateSums, Coords, Nothing, Rule
from streamomd.rules.params import Choice

L2Ball = Annotated[float, Choice(("none", "l2"))]
NONE, L2 = 0.0, 1.0


class Size(NamedTuple):
    size: Coords = 0.0  # ||theta||^2


def legal(h: Any) -> None:
    """Raises UsageError for a ball without a radius, or with implicit steps."""
    if h.ball != NONE and h.radius == 0.0:
        raise UsageError("a ball needs a radius: give one above 0")
    if h.ball != NONE and h.implicit != 0.0:
        raise UsageError("implicit steps are for weights without a ball: leave ball at none")


def free_begin(d: float, h: Any) -> Nothing:
    legal(h)
    return Nothing()


def begin(d: float, h: Any) -> Size:
    legal(h)
    return Size()


def weight(own: Any, shared: object, totals: Size, clock: float, h: Any) -> float:
    rate = averaging_rate(clock, h)
    length = math.sqrt(max(totals.size, 0.0))
    if h.ball == L2 and rate * length > h.radius:
        rate = h.radius / length
    return float(rate * own.theta)


def mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (own.theta * own.theta,)


def feasible(slots: Any, h: Any) -> sets.ComparatorSet:
    """The ball of these parameters."""
    return sets.L2(1.0, h.radius) if h.ball == L2 else sets.Free()


def in_l2_ball(rule: Rule) -> Rule:
    """Dual averaging, w = eta_T theta, in its ball."""
    return replace(
        rule,
        state=replace(rule.state, totals=Size, begin=begin),
        weight=weight,
        sums=CoordinateSums(mass),
        certificate=replace(rule.certificate, feasible=feasible),
    )
