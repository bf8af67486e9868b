"""The set of projected NAG: sum s_i abs(w_i) <= C, or sum (s_i w_i)^2 <= C^2, in the norm of A."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common import sets
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.common.weighted_balls import L1, beyond, drawn, limit, size
from streamomd.rules.contract import PROJECTED, Constraint, CoordinateSums, Coords, Rule

ETA = math.sqrt(2.0)


class Size(NamedTuple):
    size: Coords = 0.0


def ball(h: Any) -> float:
    return float(L1 + h.norm)


def align(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
    return own  # the engine recomputes what the coordinate adds to ``size``


def mass(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (size(own.w * shared.s, ball(h)),)


def outside(totals: Size, clock: float, h: Any) -> bool:
    return beyond(totals.size, ball(h), h.C) and bool(clock % h.project_every == 0.0)


def inside(own: Any, shared: Any, mu: float, h: Any) -> float:
    """The coordinate of the nearest point in the set: s w weighs A / s^2, C eta goes into mu."""
    if own.G == 0.0:
        return 0.0
    span = drawn(own.w * shared.s, math.sqrt(own.G) / shared.s, ball(h), mu)
    return span / float(shared.s)


def reach(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> float:
    return size(inside(own, shared, mu, h) * shared.s, ball(h))


def radius(h: Any) -> float:
    return limit(ball(h), h.C)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["project_every"] == 1 else None


def feasible(slots: Any, h: Any) -> ComparatorSet:
    """The weighted ball of the scales at the end; a coordinate that was never seen is free."""
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
