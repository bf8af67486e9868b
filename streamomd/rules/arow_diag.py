r"""AROW, diagonal: adaptive regularization of weights (Crammer, Kulesza & Dredze 2009; P0, 6.3).

A Gaussian over weights, mean mu and variances 1 / D_i, D = 1 + S, D_0 = I. The weights are mu.
Where y <mu, x> < 1, with chi = sum x_i^2 / D_i:

    omega = 1 / (chi + r),  mu_i += omega (1 - y <mu, x>) y x_i / D_i,  then  D_i += x_i^2 / r.

This is f_t(w) = w'D_t w / 2 in mean form; for full matrices the dual form gives the same
numbers, here it does not, and no bound is proven for it (`aggressive_second_order_diag` has one). A
row of importance h has r / h in place of r: as h copies in the squared hinge loss that AROW
reduces. O(nnz) a row. Choose it for sparse data, word counts above all: a rare feature's weight
moves in large steps, a common one's in ever smaller ones.

>>> from streamomd.training.demo import score
>>> score("arow_diag")
0.098
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.contract import Certificate, Losses, Mean, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Positive
from streamomd.rules.ranges import NORMS


class Hyper(NamedTuple):
    r: Positive = 1.0


class Own(NamedTuple):
    mu: Mean = 0.0
    S: Sum = 0.0


class Move(NamedTuple):
    a: float
    c: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.mu


def terms(
    own: Own, shared: object, x: float, totals: object, clock: float, h: Hyper
) -> tuple[float]:
    return (x * x / (1.0 + own.S),)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    gap = 1.0 - row.y * row.margin
    if gap > 0.0 and row.importance > 0.0:
        r = h.r / row.importance
        a = gap * row.y / (row.r[0] + r)
        return a != 0.0, Move(a, 1.0 / r), totals
    return False, Move(0.0, 0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.mu + move.a * (x / (1.0 + own.S)), own.S + move.c * (x * x))


RULE = Rule(
    name="arow_diag",
    title="AROW, diagonal: sparse data with informative rare features, robust to noise",
    source="Crammer, Kulesza & Dredze 2009, diagonal",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, weight="mu", degrees=(("S", 2),)),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="noise", range=NORMS, gathers=1, terms=terms),
    certificate=Certificate(
        reason="the bounds are for the dual form; its diagonal is another learner"
    ),
)
