"""FTRL-Proximal in a ball: the nearest point to the free minimizer in the norm of h.

The multiplier is found after each row while the free minimizer lies outside, and stored as a total.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common.adagrad_forms import SizeAndMultiplier, settle
from streamomd.rules.common.schedules import first, pace
from streamomd.rules.common.weighted_balls import (
    L1,
    NONE,
    ball_or_box,
    beyond,
    drawn,
    legal,
    radius,
    size,
)
from streamomd.rules.contract import PROJECTED, Constraint, CoordinateSums, Nothing, Row, Rule


class Inside(NamedTuple):
    g: float
    mu: float


def free_begin(d: float, h: Any) -> Nothing:
    legal(h)
    return Nothing()


def begin(d: float, h: Any) -> SizeAndMultiplier:
    legal(h)
    return SizeAndMultiplier()


def curvature(G: float, h: Any) -> float:
    """h_i, 0 before the first gradient."""
    return (first(h) + math.sqrt(G)) / pace(h) if G > 0.0 else 0.0


def outside(totals: SizeAndMultiplier, clock: float, h: Any) -> bool:
    return beyond(totals.size, h.ball, h.radius)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["ball"] != "none" else None


def in_ball(rule: Rule) -> Rule:
    """FTRL-Proximal in its ball."""
    Own: Any = rule.state.own
    free = rule.weight
    restore: Any = rule.state.rejoin

    def inside(own: Any, mu: float, clock: float, h: Any) -> Any:
        return drawn(free(own, (), (), clock, h), curvature(own.G, h), h.ball, mu)

    def weight(own: Any, shared: object, totals: Any, clock: float, h: Any) -> Any:
        return inside(own, totals.mu, clock, h)

    def step(row: Row, totals: Any, clock: float, h: Any) -> tuple[bool, Inside, Any]:
        g = row.importance * row.slope
        return g != 0.0, Inside(g, totals.mu), totals

    def update(own: Any, shared: object, x: float, move: Inside, clock: float, h: Any) -> Any:
        gradient = move.g * x
        G = own.G + gradient * gradient
        growth = (math.sqrt(G) - math.sqrt(own.G)) / pace(h)
        return Own(own.z + gradient - growth * inside(own, move.mu, clock, h), G)

    def mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
        return (size(free(own, (), (), clock, h), h.ball),)

    def reach(own: Any, shared: object, mu: float, totals: Any, clock: float, h: Any) -> float:
        return size(inside(own, mu, clock, h), h.ball)

    def rejoin(own: Any, w: float, shared: object, totals: Any, clock: float, h: Any) -> Any:
        """Slots whose weight is w at the merged multiplier."""
        if h.ball == NONE:
            return restore(own, w, shared, totals, clock, h)
        H, mu = curvature(own.G, h), totals.mu
        if h.ball == L1:
            more = math.copysign(mu, w) if w != 0.0 else max(-mu, min(mu, -own.z))
        else:
            more = mu * w
        return Own(-(H * w + more), own.G)

    return replace(
        rule,
        state=replace(
            rule.state,
            totals=SizeAndMultiplier,
            move=Inside,
            begin=begin,
            rejoin=rejoin,
        ),
        weight=weight,
        step=step,
        update=update,
        sums=CoordinateSums(mass),
        constraint=Constraint(outside, reach, radius, None, settle, largest=largest),
        certificate=replace(rule.certificate, feasible=ball_or_box),
    )
