"""The sets OGD can keep its weights in: a box, an L2 ball, an L1 ball of one radius.

Functions take ``h.ball`` and ``h.radius``, and totals with ``size`` and ``c``, w = c v.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from streamomd.core.errors import UsageError
from streamomd.rules.common import sets
from streamomd.rules.contract import PROJECTED
from streamomd.rules.params import Choice

Ball = Annotated[float, Choice(("none", "box", "l2", "l1"))]
NONE, BOX, L2, L1 = 0.0, 1.0, 2.0, 3.0
ROUNDING = 1e-12  # a sum this little above the radius is on it
TINY = 1e-300  # c where weights have run away to infinity
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
