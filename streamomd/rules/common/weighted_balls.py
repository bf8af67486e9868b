"""Balls and projections in a weighted norm: the nearest point when coordinate i weighs H_i.

argmin of sum H_i (w_i - v_i)^2 / 2 over sum s_i abs(w_i) <= radius is soft(v_i, mu s_i / H_i), over
sum (s_i w_i)^2 <= radius^2 it is v_i H_i / (H_i + mu s_i^2), at the mu >= 0 that meets the radius:
the engine finds it. A coordinate with H = 0 has not been updated: its v is 0.

>>> drawn(3.0, 2.0, L1, 4.0), drawn(3.0, 2.0, L2, 4.0), drawn(0.0, 0.0, L2, 4.0)
(1.0, 1.0, 0.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from streamomd.core.errors import UsageError
from streamomd.rules.common import sets
from streamomd.rules.common.balls import ROUNDING
from streamomd.rules.common.sets import soft
from streamomd.rules.contract import PROJECTED
from streamomd.rules.params import Choice

Ball = Annotated[float, Choice(("none", "l1", "l2"))]
NONE, L1, L2 = 0.0, 1.0, 2.0


def legal(h: Any) -> None:
    """Raises UsageError for a ball without a radius, or with another regularizer."""
    if h.ball != NONE and h.radius == 0.0:
        raise UsageError("a ball needs a radius: give one above 0")
    if h.ball != NONE and (h.l1 > 0.0 or h.l2 > 0.0 or h.box > 0.0):
        raise UsageError("a ball is a regularizer by itself: leave l1, l2 and box at 0")


def drawn(v: float, H: float, ball: float, mu: float) -> float:
    """The coordinate of the nearest point in the ball, at multiplier mu."""
    if ball == NONE or mu == 0.0 or H == 0.0:
        return v
    if ball == L1:
        return soft(v, mu / H)
    return v / (1.0 + mu / H)


def size(w: float, ball: float) -> float:
    """What a coordinate adds to the total that is compared with ``limit``."""
    if ball == L1:
        return abs(w)
    if ball == L2:
        return w * w
    return 0.0


def limit(ball: float, radius: float) -> float:
    """The largest legal total."""
    return radius * radius if ball == L2 else radius


def beyond(total: float, ball: float, radius: float) -> bool:
    """Whether the total is larger than that by more than rounding."""
    return ball != NONE and total > limit(ball, radius) * (1.0 + ROUNDING)


def outside(totals: Any, clock: float, h: Any) -> bool:
    """``Constraint.outside`` of a total ``size``, checked after every ``project_every``-th row."""
    return beyond(totals.size, h.ball, h.radius) and bool(clock % h.project_every == 0.0)


def radius(h: Any) -> float:
    """``Constraint.radius``."""
    return limit(h.ball, h.radius)


def largest(params: Mapping[str, Any]) -> int | None:
    """The most coordinates, where a projection costs O(d) a row."""
    return PROJECTED if params["ball"] != "none" and params["project_every"] == 1 else None


def ball_or_box(slots: Any, h: Any) -> sets.ComparatorSet:
    """The set of the weights of rules with both."""
    return feasible(h.ball, h.radius) if h.ball != NONE else sets.box(h.box)


def feasible(ball: float, radius: float) -> sets.ComparatorSet:
    """The ball of these parameters."""
    if ball == NONE:
        return sets.Free()
    return sets.L1(1.0, radius) if ball == L1 else sets.L2(1.0, radius)
