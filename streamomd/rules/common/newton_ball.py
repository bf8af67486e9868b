"""The ball of the diagonal Newton step: the nearest point in the norm of D = epsilon + S."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common import weighted_balls
from streamomd.rules.common.balls import legal
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import PROJECTED, Constraint, CoordinateSums, Coords, Rule

NONE, L1 = 0.0, 1.0


class Size(NamedTuple):
    size: Coords = 0.0


def begin(d: float, h: Any) -> Size:
    legal(h)
    return Size()


def measure(w: float, h: Any) -> float:
    """What a weight adds to the size that the ball bounds."""
    if h.ball == NONE:
        return 0.0
    return abs(w) if h.ball == L1 else w * w


def nearer(own: Any, mu: float, h: Any) -> Any:
    """The weight shrunk by mu."""
    D = h.epsilon + own.S
    if h.ball == L1:
        left = max(abs(own.w) - mu / D, 0.0)
        return left if own.w > 0.0 else -left
    return own.w * (D / (D + mu))


def mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (measure(own.w, h),)


def radius(h: Any) -> Any:
    return h.radius if h.ball == L1 else h.radius * h.radius


def outside(totals: Any, clock: float, h: Any) -> Any:
    return h.ball != NONE and totals.size > radius(h) and clock % h.project_every == 0.0


def reach(own: Any, shared: object, mu: float, totals: Any, clock: float, h: Any) -> float:
    return measure(nearer(own, mu, h), h)


def feasible(slots: Any, h: Any) -> ComparatorSet:
    return weighted_balls.feasible(h.ball, h.radius)


def largest(params: Mapping[str, Any]) -> int | None:
    if params["ball"] == "none" or params["project_every"] > 1:
        return None
    return PROJECTED


def in_newton_ball(rule: Rule) -> Rule:
    """The rule, projected onto its ball after each row."""
    Own: Any = rule.state.own

    def project(own: Any, shared: object, mu: float, totals: Any, clock: float, h: Any) -> Any:
        return Own(nearer(own, mu, h), own.S)

    return replace(
        rule,
        state=replace(rule.state, totals=Size, begin=begin),
        sums=CoordinateSums(mass),
        constraint=Constraint(outside, reach, radius, project, largest=largest),
        certificate=replace(rule.certificate, feasible=feasible),
    )
