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

>>> from streamomd.training.demo import score
>>> score("ogd"), score("ogd", "square", eta=0.001, schedule="constant")
(0.225, 0.785)
>>> score("ogd", ball="l2", radius=0.3), score("ogd", ball="l1", radius=1.0)
(0.243, 0.234)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.ogd_bounds import accounted, certificate
from streamomd.rules.common import balls
from streamomd.rules.common.balls import NONE, Ball, bound, shrunk, size
from streamomd.rules.common.prox import soft
from streamomd.rules.common.schedule import SQRT, Schedule, rate
from streamomd.rules.contract import (
    Certificate,
    Constraint,
    Coordinates,
    CoordinateSums,
    Coords,
    Max,
    Mean,
    Nothing,
    Row,
    RowHooks,
    Rule,
    Slots,
)
from streamomd.rules.params import Between, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: Schedule = SQRT
    ball: Ball = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: YesNo = 0.0


class Own(NamedTuple):
    v: Mean = 0.0


class Totals(NamedTuple):
    size: Coords = 0.0  # of v, as the ball measures it
    c: Max = 1.0
    fold: Max = 1.0  # what c was when it was last multiplied into v


class Move(NamedTuple):
    step: float
    bound: float


def begin(d: float, h: Hyper) -> Totals:
    balls.legal(h)
    return Totals()


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return totals.c * own.v


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    pace = rate(h.eta, h.schedule, clock) / totals.c
    step = pace * row.importance * row.slope
    return step != 0.0, Move(step, bound(h)), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.step * factor, move.bound)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(max(min(own.v - move.step * x, move.bound), -move.bound))


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (size(own.v, h),)


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    return Totals(totals.size, 1.0, totals.c)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(totals.fold * own.v)


def project(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(soft(own.v, mu))


def settle(totals: Totals, mu: float, h: Hyper) -> Totals:
    return Totals(totals.size, shrunk(totals, h), totals.fold)


def free_begin(d: float, h: Hyper) -> Nothing:
    balls.legal(h)
    return Nothing()


def free_weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.v


def free_step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    pace = rate(h.eta, h.schedule, clock)
    step = pace * row.importance * row.slope
    return step != 0.0, Move(step, bound(h)), totals


PLAIN = Rule(
    name="ogd",
    title="online gradient descent: the baseline, for features on one scale",
    source="Orabona, Crammer & Cesa-Bianchi 2015, section 3",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, begin=begin, weight="v"),
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(stretch=stretch, implicit="implicit"),
    sums=CoordinateSums(mass=mass, stale=balls.stale, rebase=rebase, refresh=refresh),
    constraint=Constraint(
        balls.outside, balls.reach, balls.radius, project, settle, largest=balls.largest
    ),
    certificate=Certificate(feasible=balls.feasible),
)
RULE = replace(
    PLAIN,
    certificate=replace(PLAIN.certificate, claims=certificate, accounted=accounted(PLAIN)),
)
FREE = replace(
    RULE,
    state=replace(RULE.state, totals=Nothing, begin=free_begin),
    weight=free_weight,
    step=free_step,
    sums=None,
    constraint=None,
)


def simplest(params: Mapping[str, Any]) -> Rule:
    """The same rule without what these parameters do not use: no ball, no sums for one."""
    return FREE if params["ball"] in ("none", "box") else RULE


RULE = replace(
    RULE,
    storage=Coordinates(reduced=simplest),
)
