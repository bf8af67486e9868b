"""AdaGrad's forms: in a ball, and without the slots that parameters do not need.

Mirror descent has slots (w, G, seen), its form without phi (w, G). In a ball the engine finds the
multiplier of the nearest point in the norm of H = delta + sqrt(G).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.schedules import delta_of
from streamomd.rules.common.weighted_balls import (
    NONE,
    ball_or_box,
    beyond,
    drawn,
    largest,
    outside,
    radius,
    size,
)
from streamomd.rules.contract import (
    Certificate,
    Constraint,
    CoordinateSums,
    Coords,
    Max,
    Mean,
    Nothing,
    Rule,
    Sum,
)


class Size(NamedTuple):
    size: Coords = 0.0


class SizeAndMultiplier(NamedTuple):
    size: Coords = 0.0  # of the free minimizer
    mu: Max = 0.0


class Lean(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


def begin(d: float, h: Any) -> Size:
    weighted_balls.legal(h)
    return Size()


def mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (size(own.w, h.ball),)


def inside(own: Any, mu: float, h: Any) -> float:
    """The coordinate of the nearest point in the ball."""
    return drawn(own.w, h.delta + math.sqrt(own.G), h.ball, mu)


def reach(own: Any, shared: object, mu: float, totals: Any, clock: float, h: Any) -> float:
    return size(inside(own, mu, h), h.ball)


def in_ball(rule: Rule) -> Rule:
    """Mirror descent, projected onto its ball after each row."""
    Own: Any = rule.state.own

    def project(own: Any, shared: object, mu: float, totals: Any, clock: float, h: Any) -> Any:
        return Own(inside(own, mu, h), own.G, own.seen)

    return replace(
        rule,
        state=replace(rule.state, totals=Size, begin=begin),
        sums=CoordinateSums(mass),
        constraint=Constraint(outside, reach, radius, project, largest=largest),
        certificate=Certificate(feasible=ball_or_box),
    )


def free_begin(d: float, h: Any) -> Nothing:
    weighted_balls.legal(h)
    return Nothing()


def lean_weight(own: Lean, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.w


def lean_update(own: Lean, shared: object, x: float, move: Any, clock: float, h: Any) -> Lean:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    return Lean(own.w - move.step * x / H, G)


def reducer(whole: Rule) -> Callable[[Mapping[str, Any]], Rule | None]:
    """reduced(params) -> the form without slots these parameters ignore: a quarter of the time.

    Without a ball no sum is stored, without phi no round is missed.
    """
    Own: Any = whole.state.own
    weight = whole.weight

    def catch_up(own: Any, old: object, new: object, totals: object, clock: float, h: Any) -> Any:
        """Apply missed rounds once per touch: else prediction and update would each apply them."""
        return Own(weight(own, None, None, clock, h), own.G, clock - 1.0)

    free = replace(
        whole,
        state=replace(whole.state, totals=Nothing, begin=free_begin),
        row=replace(whole.row, catch_up=catch_up),
        sums=None,
        constraint=None,
    )
    lean = replace(
        free,
        state=replace(free.state, own=Lean, rejoin=None),
        row=whole.row,
        weight=lean_weight,
        update=lean_update,
    )

    def reduced(params: Mapping[str, Any]) -> Rule | None:
        if params["ball"] != "none":
            return None
        return free if params["l1"] or params["l2"] or params["box"] else lean

    return reduced


def free_minimizer(own: Any, shared: Any, h: Any) -> float:
    """eta theta_i / H_i."""
    H = delta_of(shared, h) + math.sqrt(own.G)
    return float(h.eta * own.theta / H) if H > 0.0 else 0.0


def averaged_inside(own: Any, shared: Any, mu: float, h: Any) -> float:
    """The coordinate of the nearest point in the ball."""
    H = delta_of(shared, h) + math.sqrt(own.G)
    return drawn(free_minimizer(own, shared, h), H, h.ball, mu)


def averaged_begin(d: float, h: Any) -> SizeAndMultiplier:
    weighted_balls.legal(h)
    if h.ball != NONE and h.delta == 0.0:
        # Else H grows between a row's multiplier and the next prediction.
        raise UsageError(
            "a ball needs a delta that stays the same: pass --set model.params.delta=…, above 0, "
            "for a certificate at least the largest abs(slope times feature value)"
        )
    return SizeAndMultiplier()


def averaged_mass(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> tuple[float]:
    if h.ball == NONE:
        return (0.0,)
    return (size(free_minimizer(own, shared, h), h.ball),)


def averaged_reach(own: Any, shared: Any, mu: float, totals: Any, clock: float, h: Any) -> float:
    return size(averaged_inside(own, shared, mu, h), h.ball)


def settle(totals: SizeAndMultiplier, mu: float, h: Any) -> SizeAndMultiplier:
    if mu == 0.0 and beyond(totals.size, h.ball, h.radius):  # outside, but not checked for this row
        return totals
    return SizeAndMultiplier(size=totals.size, mu=mu)


def align(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
    return own  # the engine recomputes what the coordinate adds to ``size``


def averaged_in_ball(rule: Rule) -> Rule:
    """Dual averaging whose weights are the nearest point in the ball: its multiplier is a total."""
    outer = rule.weight

    def weight(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> Any:
        if h.ball != NONE:
            return averaged_inside(own, shared, totals.mu, h)
        return outer(own, shared, totals, clock, h)

    return replace(
        rule,
        state=replace(rule.state, totals=SizeAndMultiplier, begin=averaged_begin),
        align=align,
        weight=weight,
        sums=CoordinateSums(averaged_mass),
        constraint=Constraint(outside, averaged_reach, radius, None, settle, largest=largest),
        certificate=replace(rule.certificate, feasible=ball_or_box),
    )
