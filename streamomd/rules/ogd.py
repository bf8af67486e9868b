r"""OGD: online gradient descent (with the square loss: LMS, Widrow-Hoff), free or in a set.

f_t(w) = ||w||^2 / (2 eta_t). With g the loss's slope, eta_t one of eta, eta / sqrt(t), eta / t, and
P the projection onto the set, the nearest point in it,

    w <- P(w - eta_t g x).

``ball``: "none", P is nothing; "box", abs(w_i) <= radius, clips; "l2", ||w|| <= radius, one factor
for all weights, kept as the total c and used as w = c v; "l1", sum abs(w_i) <= radius, draws all
weights towards 0 by one multiplier, found by bisection after each row that leaves the ball.

Certificate (P1, lemma 1), A_t = 1 / eta_t, w_t the weights that predicted row t, u in the set:

    regret <= sum_t (A_t - A_{t-1}) ||w_t - u||^2 / 2 + sum_t eta_t ||g x||^2 / 2,    A_0 = 0.

Cost: O(nnz); the L1 ball O(d) times some 80 halvings on rows that leave it. ``project_every`` k > 1
looks at the L1 ball after every k-th row only: another algorithm, without certificate. ``implicit``
takes the exact step along the row, where nothing is clipped (and has no certificate).

One step size for all coordinates: features must be on one scale. The baseline to beat.

>>> from streamomd.demo import score
>>> score("ogd"), score("ogd", "square", eta=0.01, schedule="constant")
...
>>> score("ogd", ball="l2", radius=1.0), score("ogd", ball="l1", radius=2.0)
...
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from streamomd.errors import UsageError
from streamomd.rules.contract import (
    PROJECTED,
    Between,
    Choice,
    Coords,
    Max,
    Mean,
    NotNegative,
    Positive,
    Row,
    Rule,
    Set,
    YesNo,
)
from streamomd.rules.prox import into_box, soft
from streamomd.rules.schedule import SQRT, Schedule, rate

NONE, BOX, L2, L1 = 0.0, 1.0, 2.0, 3.0
ROUNDING = 1e-12  # a sum this little above the radius is on it
SMALL = 1e-20  # of c; float32 holds v = w / c down to it


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: Schedule = SQRT
    ball: Annotated[float, Choice(("none", "box", "l2", "l1"))] = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: YesNo = 0.0


class Own(NamedTuple):
    v: Mean = 0.0


class Totals(NamedTuple):
    size: Coords = 0.0  # sum of v^2 for the L2 ball, of abs(v) for the L1 ball
    c: Max = 1.0
    fold: Max = 1.0  # what c was when it was last multiplied into v


class Move(NamedTuple):
    step: float
    bound: float


def begin(d: float, h: Hyper) -> Totals:
    if h.ball != NONE and h.radius == 0.0:
        raise UsageError("ogd with a ball needs a radius above 0")
    return Totals()


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return totals.c * own.v


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[Move, Totals]:
    bound = h.radius if h.ball == BOX else math.inf
    pace = rate(h.eta, h.schedule, clock) / totals.c
    return Move(pace * row.importance * row.slope, bound), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.step * factor, move.bound)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(max(min(own.v - move.step * x, move.bound), -move.bound))


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    if h.ball < L2:
        return (0.0,)
    return (own.v * own.v if h.ball == L2 else abs(own.v),)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return totals.c < SMALL


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    return Totals(totals.size, 1.0, totals.c)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(totals.fold * own.v)


def outside(totals: Totals, clock: float, h: Hyper) -> bool:
    beyond = h.ball == L1 and totals.size > h.radius * (1.0 + ROUNDING)
    return beyond and clock % h.project_every == 0.0


def reach(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return max(abs(own.v) - mu, 0.0)


def radius(h: Hyper) -> float:
    return h.radius


def project(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(soft(own.v, mu))


def shrunk(c: float, size: float, h: Hyper) -> float:
    """The factor c that brings the L2 norm to the radius, where it is beyond."""
    norm = math.sqrt(size)
    if h.ball == L2 and c * norm > h.radius:
        return h.radius / norm
    return c


def settle(totals: Totals, mu: float, h: Hyper) -> Totals:
    return Totals(totals.size, shrunk(totals.c, totals.size, h), totals.fold)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["ball"] == "l1" and params["project_every"] == 1 else None


def fit(u: Any, slots: Any, h: Hyper) -> Any:
    if h.ball < L2:
        return into_box(u, h.radius if h.ball == BOX else 0.0)
    norm = float((u @ u) ** 0.5 if h.ball == L2 else abs(u).sum())
    return u * (h.radius / norm) if norm > h.radius else u


RULE = Rule(
    name="ogd",
    title="online gradient descent: the baseline, for features on one scale",
    source="Orabona, Crammer & Cesa-Bianchi 2015, section 3",
    hyper=Hyper,
    move=Move,
    own=Own,
    totals=Totals,
    begin=begin,
    weight=weight,
    step=step,
    stretch=stretch,
    update=update,
    mass=mass,
    stale=stale,
    rebase=rebase,
    refresh=refresh,
    kept_in=Set(outside, reach, radius, project, settle),
    largest=largest,
    fit=fit,
)
