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

from typing import Annotated, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.rules.certificates.ftrl_bounds import composite_certified
from streamomd.rules.common.schedules import SQRT, STRONG, composite_curvature, composite_rate
from streamomd.rules.common.sets import lead
from streamomd.rules.contract import Nothing, Row, Rule, Slots, Sum
from streamomd.rules.params import Choice, NotNegative, Positive


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


def begin(d: float, h: Hyper) -> Nothing:
    if h.schedule == STRONG and h.l2 == 0.0:
        raise UsageError('composite with schedule = "strong" needs l2 above 0')
    return Nothing()


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    c, k = composite_curvature(clock, h), composite_rate(h) * clock
    return lead(own.theta, c, k, h.l1, h.l2, h.box)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    a = -composite_rate(h) * row.importance * row.slope
    return a != 0.0, Move(a), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = composite_certified(
    Rule(
        name="composite",
        title="composite mirror descent: a loss plus L1, L2 or a box, features on one scale",
        source="Orabona, Crammer & Cesa-Bianchi 2015, corollary 1",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, begin=begin),
        weight=weight,
        step=step,
        update=update,
    )
)
