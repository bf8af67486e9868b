"""The set of projected NAG: the norm of s_i w_i, l1, l2 or lq, at most C; nearest in that of A."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common import sets
from streamomd.rules.common.balls import ROUNDING
from streamomd.rules.common.sets import ComparatorSet, power_drawn
from streamomd.rules.common.weighted_balls import L1, drawn, limit, size
from streamomd.rules.contract import PROJECTED, Constraint, CoordinateSums, Coords, Rule

ETA = math.sqrt(2.0)
LQ = 2.0  # of ``norm``


class Size(NamedTuple):
    size: Coords = 0.0


def ball(h: Any) -> float:
    return float(L1 + h.norm)


def dual(h: Any) -> float:
    """q, 1 / p + 1 / q = 1."""
    return float(h.p / (h.p - 1.0))


def extent(span: float, h: Any) -> float:
    """What s_i w_i adds to the total."""
    if h.norm == LQ:
        return math.exp(dual(h) * math.log(abs(span))) if span != 0.0 else 0.0
    return size(span, ball(h))


def align(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
    return own  # the engine recomputes what the coordinate adds to ``size``


def mass(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (extent(own.w * shared.s, h),)


def outside(totals: Size, clock: float, h: Any) -> bool:
    return totals.size > radius(h) * (1.0 + ROUNDING) and bool(clock % h.project_every == 0.0)


def inside(own: Any, shared: Any, mu: float, h: Any) -> float:
    """The coordinate of the nearest point in the set: s w weighs A / s^2, C eta goes into mu."""
    if own.G == 0.0:
        return 0.0
    v, H = own.w * shared.s, math.sqrt(own.G) / shared.s
    if h.norm == LQ:
        return power_drawn(v, mu / H, dual(h)) / float(shared.s)
    return drawn(v, H, ball(h), mu) / float(shared.s)


def reach(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> float:
    return extent(inside(own, shared, mu, h) * shared.s, h)


def radius(h: Any) -> float:
    """The largest legal total."""
    if h.norm == LQ:
        return math.exp(dual(h) * math.log(h.C))
    return limit(ball(h), h.C)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["project_every"] == 1 else None


def feasible(slots: Any, h: Any) -> ComparatorSet:
    """The weighted ball of the scales at the end; a coordinate that was never seen is free."""
    if h.norm == LQ:
        return sets.Lq(slots["s"], h.C, dual(h))
    make = sets.L1 if ball(h) == L1 else sets.L2
    return make(slots["s"], h.C)


def in_scaled_ball(rule: Rule) -> Rule:
    """The rule, projected onto the set after each row."""
    Own: Any = rule.state.own

    def project(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> Any:
        return Own(inside(own, shared, mu, h), own.G)

    return replace(
        rule,
        state=replace(rule.state, totals=Size),
        align=align,
        sums=CoordinateSums(mass),
        constraint=Constraint(outside, reach, radius, project, largest=largest),
        certificate=replace(rule.certificate, feasible=feasible),
    )
