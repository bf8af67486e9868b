r"""FTRL-Proximal, per coordinate (P3, sections 3 and 5): AdaGrad's steps, exact zeros by L1.

G_i = sum (g x_i)^2; h_i = (beta + sqrt(G_i)) / alpha, or if radius > 0 sqrt(G_i / 2) / radius, and
0 before the first gradient. phi(w) = l1 sum abs(w) + l2 sum w^2 / 2 with abs(w) <= box (0: any),

    f_T(w) = k phi(w) + sum_s sum_i (h_{s,i} - h_{s-1,i}) (w_i - w_{s,i})^2 / 2,

k = T, the rows finished, if phi is charged "every" row, k = 1 if "once"; or phi is a ``ball`` of
the same radius, "l1" sum abs(w_i), "l2" ||w||, alone and in place of the box. With z as stored:

    w_i = clip(-soft(z_i, k l1) / (h_i + k l2), +-box),
    z_i <- z_i + g x_i - (h_i^new - h_i^old) w_i.

In a ball w is nearest to -z_i / h_i in the norm of h; its multiplier, found again after each row
while that point lies outside, is a total.

Certificate (P3, theorems 6 and 7), u inside the box or ball, w_t the weights that predicted row t:

    regret <= sum_s sum_i (h_{s,i} - h_{s-1,i}) (u_i - w_{s,i})^2 / 2 + k phi(u)
              + sum_t sum_i (g x_i)^2 / (2 h_{t,i});

with radius R, box <= R or a ball, and no L1, L2: at most 2 sqrt(2) R sum_i sqrt(G_i).

Cost: O(nnz), a ball O(d) times some 80 halvings a row; no weight is stored, so untouched ones
shrink by themselves. The usual choice for sparse, wide data (hashed categories, text): a step for
each coordinate, and weights that are 0.
Without phi it is AdaGrad with eta = alpha, delta = beta (P3, lemma 8).

>>> from streamomd.training.demo import score
>>> score("ftrl_proximal"), score("ftrl_proximal", alpha=1.0, l1=1.0, charge="once")
(0.192, 0.152)
>>> score("ftrl_proximal", ball="l2", radius=1.0)
0.216
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from streamomd.rules.certificates.ftrl_bounds import proximal_certified
from streamomd.rules.common.proximal_ball import free_begin
from streamomd.rules.common.schedules import EVERY, first, pace
from streamomd.rules.common.sets import box_of, clip, lead
from streamomd.rules.common.weighted_balls import NONE, Ball
from streamomd.rules.contract import Certificate, Mean, Row, Rule, Slots, Sum
from streamomd.rules.params import Choice, NotNegative, Positive


class Hyper(NamedTuple):
    alpha: Positive = 0.1
    beta: NotNegative = 1.0
    radius: NotNegative = 0.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0
    charge: Annotated[float, Choice(("every", "once"))] = EVERY
    ball: Ball = NONE


class Own(NamedTuple):
    z: Mean = 0.0  # see rejoin
    G: Sum = 0.0


class Move(NamedTuple):
    g: float


def charged(clock: float, h: Hyper) -> float:
    """k: how often phi counts in addition to the rows before this one."""
    return clock - 1.0 if h.charge == EVERY else 1.0


def solved(z: float, G: float, clock: float, h: Hyper) -> float:
    """The weight, by one root and one division."""
    if G == 0.0:
        return 0.0
    a, k = pace(h), charged(clock, h)
    return clip(a * lead(-z, first(h) + math.sqrt(G), k, h.l1, a * h.l2, 0.0), h.box)


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return solved(own.z, own.G, clock, h)


def restored(z: float, G: float, w: float, clock: float, h: Hyper) -> float:
    """The z whose weight is w after ``clock`` rows; where w is 0, one near z."""
    k = charged(clock + 1.0, h)
    if w == 0.0:
        return max(-k * h.l1, min(k * h.l1, z))
    curvature = (first(h) + math.sqrt(G)) / pace(h)
    return -w * (curvature + k * h.l2) - math.copysign(k * h.l1, w)


def rejoin(own: Own, w: float, shared: object, totals: object, clock: float, h: Hyper) -> Own:
    return Own(restored(own.z, own.G, w, clock, h), own.G)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    gradient = move.g * x
    G = own.G + gradient * gradient
    growth = (math.sqrt(G) - math.sqrt(own.G)) / pace(h)  # b joins where w = 0
    return Own(own.z + gradient - growth * solved(own.z, own.G, clock, h), G)


RULE = proximal_certified(
    Rule(
        name="ftrl_proximal",
        title="FTRL-Proximal: sparse and wide data, a step for each coordinate, weights that are 0",
        source="Qian, notes on adaptive FTRL, sections 3 and 5",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, begin=free_begin, rejoin=rejoin, curvature="G"),
        weight=weight,
        step=step,
        update=update,
        certificate=Certificate(feasible=box_of),
    )
)
