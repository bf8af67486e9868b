"""The sets that OGD can constrain its weights to: a box, an L2 ball, an L1 ball of one radius.

Functions take ``h.ball`` and ``h.radius``, and totals with ``size`` and ``c``, w = c v.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.rules.common import sets
from streamomd.rules.common.schedules import rate
from streamomd.rules.common.sets import soft
from streamomd.rules.contract import (
    PROJECTED,
    Constraint,
    CoordinateSums,
    Coords,
    Max,
    Nothing,
    Row,
    Rule,
)
from streamomd.rules.params import Choice

Ball = Annotated[float, Choice(("none", "box", "l2", "l1"))]
NONE, BOX, L2, L1 = 0.0, 1.0, 2.0, 3.0
ROUNDING = 1e-12  # a sum this little above the radius is on it
TINY = 1e-300  # c where weights have diverged
SMALL = 1e-20  # of c; float32 holds v = w / c down to it


def legal(h: Any) -> None:
    """Raises UsageError for a ball without a radius."""
    if h.ball != NONE and h.radius == 0.0:
        raise UsageError("a ball needs a radius: give one above 0")


def bound(h: Any) -> float:
    """What abs(w) is clipped to."""
    if h.ball == BOX:
        return float(h.radius)
    return math.inf


def size(v: float, h: Any) -> float:
    """What a coordinate adds to the total that is compared with the radius."""
    if h.ball == L2:
        return v * v
    if h.ball == L1:
        return abs(v)
    return 0.0


def shrunk(totals: Any, h: Any) -> float:
    """The factor c that brings the L2 norm to the radius, where it is beyond."""
    if h.ball == L2:
        norm = math.sqrt(totals.size)
        if totals.c * norm > h.radius:
            return max(float(h.radius / norm), TINY)
    return float(totals.c)


def stale(totals: Any, clock: float, h: Any) -> bool:
    return bool(totals.c < SMALL)


def outside(totals: Any, clock: float, h: Any) -> bool:
    if h.ball != L1 or totals.size <= h.radius * (1.0 + ROUNDING):
        return False
    return bool(clock % h.project_every == 0.0)


def reach(own: Any, shared: object, mu: float, totals: object, clock: float, h: Any) -> float:
    drawn: float = abs(own.v) - mu
    return max(drawn, 0.0)


def radius(h: Any) -> float:
    return float(h.radius)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["ball"] == "l1" and params["project_every"] == 1 else None


def feasible(slots: Any, h: Any) -> sets.ComparatorSet:
    """The set of these parameters."""
    if h.ball < L2:
        return sets.box(h.radius if h.ball == BOX else 0.0)
    return sets.L2(1.0, h.radius) if h.ball == L2 else sets.L1(1.0, h.radius)


def free_begin(d: float, h: Any) -> Nothing:
    legal(h)
    return Nothing()


class Scale(NamedTuple):
    size: Coords = 0.0  # of v, as the ball measures it
    c: Max = 1.0
    fold: Max = 1.0  # what c was when it was last multiplied into v


def begin(d: float, h: Any) -> Scale:
    legal(h)
    return Scale()


def scaled_weight(own: Any, shared: object, totals: Scale, clock: float, h: Any) -> Any:
    return totals.c * own.v


def mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (size(own.v, h),)


def rebase(totals: Scale, peak: float, clock: float, h: Any) -> Scale:
    return Scale(size=totals.size, c=1.0, fold=totals.c)


def settle(totals: Scale, mu: float, h: Any) -> Scale:
    return Scale(size=totals.size, c=shrunk(totals, h), fold=totals.fold)


def in_ball(rule: Rule) -> Rule:
    """Gradient descent, w = v, projected onto its ball after each row: w = c v."""
    Own: Any = rule.state.own
    Move: Any = rule.state.move

    def step(row: Row, totals: Scale, clock: float, h: Any) -> tuple[bool, Any, Scale]:
        pace = rate(h.eta, h.schedule, clock) / totals.c
        step = pace * row.importance * row.slope
        return step != 0.0, Move(step, bound(h)), totals

    def refresh(own: Any, shared: object, totals: Scale, clock: float, h: Any) -> Any:
        return Own(totals.fold * own.v)

    def project(own: Any, shared: object, mu: float, totals: Scale, clock: float, h: Any) -> Any:
        return Own(soft(own.v, mu))

    return replace(
        rule,
        state=replace(rule.state, totals=Scale, begin=begin),
        weight=scaled_weight,
        step=step,
        sums=CoordinateSums(mass, stale, rebase=rebase, refresh=refresh),
        constraint=Constraint(outside, reach, radius, project, settle, largest=largest),
        certificate=replace(rule.certificate, feasible=feasible),
    )
