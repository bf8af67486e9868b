r"""Online Newton step (Hazan, Agarwal & Kale 2007): gradient steps in the metric of past gradients.

f_t(w) = gamma <w, A_t w> / 2 with A_0 = epsilon I. With g the loss's slope (times importance),

    A <- A + (g x)(g x)',    w <- w - A^-1 g x / gamma,

and, with ball = "l2", the nearest point of abs(w) <= radius in the norm of A, by a bisection after
one eigendecomposition, O(d^3), on the rows that leave the ball. Certificate: regret is at most
gamma epsilon |u|^2 / 2 plus the sum of g^2 <x, A_t^-1 x> / (2 gamma), and so of order d ln T, while
gamma h (y - yhat)^2 <= 1 (square loss) or gamma h <= exp(-B) (logistic), h the importance and B the
largest abs(yhat) and abs(<u, x>) of the run. With the logistic loss and without a ball the default
gamma has no claim: `streamomd certify` then names a radius and a gamma that have one on these rows,
as B <= radius max ||x||. O(d^2) a row. For curved losses on correlated features; choose gamma as
large as that allows, and epsilon = 1 / (gamma |u|)^2, Hazan's; the default is that of |u| = 1.

With the square loss a step moves the prediction by chi / (gamma (1 + g^2 chi)) times the residual
g, chi = <x, A^-1 x>: more than twice it, and so a larger error, where chi is above 2 gamma and g^2
below 1 / (2 gamma). Set ``implicit`` = true where features or targets are in raw units, and rows
longer than sqrt(epsilon): its steps never overshoot, but have no certificate.

>>> from streamomd.training.demo import score
>>> score("ons"), score("ons", "square"), score("ons", "square", implicit=True)
(0.175, 0.579, 0.501)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.matrix_bounds import NONE, ons_certified, ons_set
from streamomd.rules.common.full_matrix import LIMIT, Limit, largest
from streamomd.rules.contract import (
    Certificate,
    Constraint,
    Losses,
    Matrix,
    Mean,
    Row,
    RowHooks,
    Rule,
    Slots,
)
from streamomd.rules.params import RAW_UNITS, Choice, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    epsilon: Positive = 100.0
    gamma: Positive = 0.1
    ball: Annotated[float, Choice(("none", "l2"))] = NONE
    radius: NotNegative = 0.0
    implicit: Annotated[YesNo, RAW_UNITS] = 0.0
    limit: Limit = LIMIT


class Own(NamedTuple):
    w: Mean = 0.0


class Move(NamedTuple):
    s: float
    c: float


def start_scale(h: Hyper) -> float:
    return h.epsilon


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    c, chi = g * g, row.r[1]
    return g != 0.0, Move(-g / h.gamma / (1.0 + c * chi), c), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.s * factor, move.c)


def update(own: Own, shared: object, v: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.w + move.s * v)


def outside(totals: object, clock: float, h: Hyper) -> bool:
    return h.ball != NONE


def reach(own: Own, shared: object, mu: float, totals: object, clock: float, h: Hyper) -> float:
    return own.w * own.w


def radius(h: Hyper) -> float:
    return h.radius


RULE = ons_certified(
    Rule(
        name="ons",
        title="online Newton step: curved losses, correlated features",
        source="Hazan, Agarwal & Kale 2007",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="w"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("logistic", "square")),
        row=RowHooks(stretch=stretch, implicit="implicit"),
        constraint=Constraint(outside, reach, radius),
        storage=Matrix(largest, start_scale=start_scale),
        certificate=Certificate(feasible=ons_set),
    )
)
