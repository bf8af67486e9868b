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
>>> score("ogd"), score("ogd", "square", eta=0.001, schedule="constant")
(0.225, 0.785)
>>> score("ogd", ball="l2", radius=0.3), score("ogd", ball="l1", radius=1.0)
(0.243, 0.234)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

from streamomd.rules import balls
from streamomd.rules.balls import NONE, SMALL, Ball, bound, shrunk, size
from streamomd.rules.contract import (
    Between,
    Claim,
    Coords,
    Max,
    Mean,
    NotNegative,
    Positive,
    Row,
    Rule,
    Run,
    Set,
    Sum,
    YesNo,
)
from streamomd.rules.prox import soft
from streamomd.rules.schedule import SQRT, Schedule, rate


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


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[Move, Totals]:
    pace = rate(h.eta, h.schedule, clock) / totals.c
    return Move(pace * row.importance * row.slope, bound(h)), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.step * factor, move.bound)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(max(min(own.v - move.step * x, move.bound), -move.bound))


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (size(own.v, h),)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return totals.c < SMALL


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    return Totals(totals.size, 1.0, totals.c)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(totals.fold * own.v)


def project(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(soft(own.v, mu))


def settle(totals: Totals, mu: float, h: Hyper) -> Totals:
    return Totals(totals.size, shrunk(totals, h), totals.fold)


class Accounts(NamedTuple):
    """s = sum over the rows of A_t (w_{t+1} - w_t), but for what c did since ``mark``."""

    v: Mean = 0.0
    s: Sum = 0.0
    mark: Sum = 0.0


class Sums(NamedTuple):
    size: Coords = 0.0
    square: Coords = 0.0  # sum of v^2
    c: Max = 1.0
    fold: Max = 1.0
    A: Max = 0.0  # A_t of the last row
    turned: Sum = 0.0  # sum of A_t (c_{t+1} - c_t) since c was last multiplied into v
    settled: Sum = 0.0  # what ``turned`` was then
    q: Sum = 0.0  # sum of (A_t - A_{t-1}) ||w_t||^2
    steps: Sum = 0.0  # sum of eta_t ||g x||^2


class Tally(NamedTuple):
    step: float
    bound: float
    Ac: float
    turned: float


def sums_begin(d: float, h: Hyper) -> Sums:
    balls.legal(h)
    return Sums()


def sums_terms(
    own: Accounts, shared: object, x: float, totals: Sums, clock: float, h: Hyper
) -> tuple[float]:
    return (x * x,)


def sums_step(row: Row, totals: Sums, clock: float, h: Hyper) -> tuple[Tally, Sums]:
    t, g, eta = totals, row.importance * row.slope, rate(h.eta, h.schedule, clock)
    A = 1.0 / eta
    q = t.q + (A - t.A) * t.c * t.c * t.square
    paid = t.steps + eta * g * g * row.r[0]
    move = Tally(eta / t.c * row.importance * row.slope, bound(h), A * t.c, t.turned)
    return move, Sums(t.size, t.square, t.c, t.fold, A, t.turned, t.settled, q, paid)


def sums_stretch(move: Tally, factor: float) -> Tally:
    return Tally(move.step * factor, move.bound, move.Ac, move.turned)


def sums_update(
    own: Accounts, shared: object, x: float, move: Tally, clock: float, h: Hyper
) -> Accounts:
    v = max(min(own.v - move.step * x, move.bound), -move.bound)
    s = own.s + own.v * (move.turned - own.mark) + move.Ac * (v - own.v)
    return Accounts(v, s, move.turned)


def sums_mass(
    own: Accounts, shared: object, totals: Sums, clock: float, h: Hyper
) -> tuple[float, float]:
    return size(own.v, h), own.v * own.v


def sums_rebase(totals: Sums, peak: float, clock: float, h: Hyper) -> Sums:
    t = totals
    return Sums(t.size, t.square, 1.0, t.c, t.A, 0.0, t.turned, t.q, t.steps)


def sums_refresh(own: Accounts, shared: object, totals: Sums, clock: float, h: Hyper) -> Accounts:
    s = own.s + own.v * (totals.settled - own.mark)
    return Accounts(totals.fold * own.v, s, 0.0)


def sums_project(
    own: Accounts, shared: object, mu: float, totals: Sums, clock: float, h: Hyper
) -> Accounts:
    v = soft(own.v, mu)
    return Accounts(v, own.s + totals.A * (v - own.v), own.mark)


def sums_settle(totals: Sums, mu: float, h: Hyper) -> Sums:
    t, c = totals, shrunk(totals, h)
    turned = t.turned + t.A * (c - t.c)
    return Sums(t.size, t.square, c, t.fold, t.A, turned, t.settled, t.q, t.steps)


def certificate(run: Run) -> list[Claim]:
    if run.h.implicit:
        raise ValueError("lemma 1 is about explicit steps; this run took implicit ones")
    if run.h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    own, t, u = run.own, run.totals, run.u
    s = t["A"] * run.w - (own["s"] + own["v"] * (t["turned"] - own["mark"]))
    center = t["A"] * float(u @ u) - 2.0 * float(u @ s) + t["q"]
    bound = 0.5 * center + 0.5 * t["steps"]
    return [Claim("regret", run.loss - run.loss_u, bound, "Ross et al., lemma 1")]


PLAIN = Rule(
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
    kept_in=Set(balls.outside, balls.reach, balls.radius, project, settle),
    largest=balls.largest,
    fit=balls.fit,
)
RULE = replace(
    PLAIN,
    certificate=certificate,
    accounted=replace(
        PLAIN, own=Accounts, totals=Sums, move=Tally, begin=sums_begin, gathers=1,
        terms=sums_terms, step=sums_step, stretch=sums_stretch, update=sums_update, mass=sums_mass,
        rebase=sums_rebase, refresh=sums_refresh,
        kept_in=Set(balls.outside, balls.reach, balls.radius, sums_project, sums_settle),
        certificate=certificate,
    ),
)  # fmt: skip
