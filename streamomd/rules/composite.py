r"""Composite online mirror descent, the three schedules of P0's corollary 1.

f_t(w) = c_t ||w||^2 / 2 + eta t phi(w), t this row, phi(w) = l1 sum abs(w) + l2 sum w^2 / 2 with
abs(w) <= box (0: any). With theta = - eta sum of g x over the rows finished,

    w = grad f_t*(theta) = clip(soft(theta, eta t l1) / (c_t + eta t l2), +-box),

    theta <- theta - eta g x.

``schedule``: "constant", c_t = 1; "sqrt", c_t = sqrt(t); "strong", c_t = 0 and eta = 1 whatever is
given, for l2 > 0: phi alone is convex enough. phi is charged once more than RDA charges it.

Certificates (P0, 5 to 7), u inside the box, the regret counting phi(w_t) and phi(u) every row
(measured without phi(w_t) >= 0, which only makes it smaller):

    (5)  c_T ||u||^2 / (2 eta) + (eta / 2) sum ||g x||^2 / c_t    where c_t > 0,
    (6)  sqrt(T) (||u||^2 / (2 eta) + eta max ||g x||^2)          for "sqrt",
    (7)  max ||g x||^2 (1 + ln T) / (2 l2)                        for "strong";

(7) also in its sharper form, sum ||g x||^2 / (2 l2 t).

Cost: O(nnz); no weight is stored, so untouched ones shrink by themselves. Use "strong" with an L2
term that is part of the problem: no step size to choose, and regret of order ln T.

>>> from streamomd.training.demo import score
>>> score("composite"), score("composite", schedule="strong", l2=0.1)
(0.228, 0.232)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.prox import lead, phi
from streamomd.rules.common.sets import ComparatorSet, box
from streamomd.rules.contract import Certificate, Max, Nothing, Row, Rule, Slots, Sum
from streamomd.rules.params import Choice, NotNegative, Positive

CONSTANT, SQRT, STRONG = 0.0, 1.0, 2.0


class Hyper(NamedTuple):
    schedule: Annotated[float, Choice(("constant", "sqrt", "strong"))] = SQRT
    eta: Positive = 0.1
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0


class Move(NamedTuple):
    a: float


class Accounts(NamedTuple):
    steps: Sum = 0.0  # of ||g x||^2 / c_t, or / t
    top: Max = 0.0  # of ||g x||^2


def legal(h: Hyper) -> None:
    if h.schedule == STRONG and h.l2 == 0.0:
        raise UsageError('composite with schedule = "strong" needs l2 above 0')


def begin(d: float, h: Hyper) -> Nothing:
    legal(h)
    return Nothing()


def begin_accounts(d: float, h: Hyper) -> Accounts:
    legal(h)
    return Accounts()


def eta_of(h: Hyper) -> float:
    return 1.0 if h.schedule == STRONG else h.eta


def curvature(clock: float, h: Hyper) -> float:
    """c_t."""
    if h.schedule == SQRT:
        return math.sqrt(clock)
    return 1.0 if h.schedule == CONSTANT else 0.0


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return lead(own.theta, curvature(clock, h), eta_of(h) * clock, h.l1, h.l2, h.box)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    a = -eta_of(h) * row.importance * row.slope
    return a != 0.0, Move(a), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


def terms(
    own: Own, shared: object, x: float, totals: Accounts, clock: float, h: Hyper
) -> tuple[float]:
    return (x * x,)


def accounted_step(
    row: Row, totals: Accounts, clock: float, h: Hyper
) -> tuple[bool, Move, Accounts]:
    g = row.importance * row.slope
    square = g * g * row.r[0]
    share = clock if h.schedule == STRONG else curvature(clock, h)
    more = Accounts(totals.steps + square / share, max(totals.top, square))
    a = -eta_of(h) * row.importance * row.slope
    return a != 0.0, Move(a), more


def certificate(run: Run) -> list[Claim]:
    h, rows, norm = run.h, float(run.rows), float(run.u @ run.u)
    steps, top = run.totals["steps"], run.totals["top"]
    measured = run.loss - run.loss_u - rows * phi(run.u, h.l1, h.l2)

    def claim(bound: float, equation: str) -> Claim:
        return Claim("regret with phi", measured, bound, f"Orabona et al., {equation}")

    if h.schedule == STRONG:
        return [
            claim(0.5 * steps / h.l2, "equation 7, sharper"),
            claim(0.5 * top * (1.0 + math.log(max(rows, 1.0))) / h.l2, "equation 7"),
        ]
    five = 0.5 * curvature(rows, h) * norm / h.eta + 0.5 * h.eta * steps
    claims = [claim(five, "equation 5")]
    if h.schedule == SQRT:
        six = math.sqrt(rows) * (0.5 * norm / h.eta + h.eta * top)
        claims.append(claim(six, "equation 6"))
    return claims


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return box(h.box)


PLAIN = Rule(
    name="composite",
    title="composite mirror descent: a loss plus L1, L2 or a box, features on one scale",
    source="Orabona, Crammer & Cesa-Bianchi 2015, corollary 1",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, begin=begin),
    weight=weight,
    step=step,
    update=update,
    certificate=Certificate(feasible=feasible),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        claims=certificate,
        accounted=replace(
            PLAIN,
            state=replace(PLAIN.state, totals=Accounts, begin=begin_accounts),
            step=accounted_step,
            row=replace(PLAIN.row, gathers=1, terms=terms),
            certificate=replace(PLAIN.certificate, claims=certificate),
        ),
    ),
)
