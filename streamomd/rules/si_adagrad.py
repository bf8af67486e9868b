r"""SI AdaGrad: a scale-invariant step a coordinate (P0, eq. 13 and 15).

Scale b_i = max abs(x_i) so far, this row counted; Q_i = sum of (g x_i / b_i)^2 over the rows
finished, each on the scale of its row; L the loss's Lipschitz constant, d the number of
coordinates. f_t(w) = sqrt(d) / 2 sum (w_i b_i)^2 sqrt(L^2 + Q_i). With theta = - eta sum of g x,

    w_i = grad f_t*(theta)_i = theta_i / (b_i^2 sqrt(d) sqrt(L^2 + Q_i)),

    theta_i <- theta_i - eta g x_i,    Q_i <- Q_i + (g x_i / b_i)^2.

Certificate (P0, theorem 1), while no importance times slope is above L:

    regret <= sum sqrt(L^2 + Q_i) (sqrt(d) (u_i b_i)^2 / (2 eta) + eta / sqrt(d))            (18)
           <= L sqrt(d (T + 1)) (sum (u_i b_i)^2 / (2 eta) + eta).

Cost: O(nnz). Predictions do not change when any feature is multiplied by any constant.

Only eta / sqrt(d) matters, and d counts all coordinates, hashed ones that never occur as well:
with 2^18 of them eta = 500 is a step of about 1. The bound is least with eta = the norm of u_i b_i
/ sqrt(2); the default, 3, is that of a norm of 4. Choose it when the bound matters in raw units and
no bound on the weights is known; NAG usually learns faster.

>>> from streamomd.training.demo import score
>>> score("si_adagrad"), score("si_adagrad", "absolute", eta=10.0)
(0.099, 0.606)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.certificates.adagrad_bounds import si_adagrad_certified
from streamomd.rules.contract import Losses, Max, Observe, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Lipschitz, Positive
from streamomd.rules.ranges import RATIOS


class Hyper(NamedTuple):
    eta: Positive = 3.0
    L: Lipschitz = 0.0


class Shared(NamedTuple):
    b: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    Q: Sum = 0.0


class Totals(NamedTuple):
    root: Max = 1.0  # of the number of coordinates


class Move(NamedTuple):
    g: float


def begin(d: float, h: Hyper) -> Totals:
    return Totals(math.sqrt(d))


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.b, abs(x))), ()


def weight(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    if shared.b == 0.0:
        return 0.0
    r = own.theta / shared.b
    return r / (totals.root * math.sqrt(h.L * h.L + own.Q)) / shared.b


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    return g != 0.0, Move(g), totals


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * (x / shared.b)
    return Own(own.theta - h.eta * (move.g * x), own.Q + z * z)


RULE = si_adagrad_certified(
    Rule(
        name="si_adagrad",
        title="scale-invariant AdaGrad: raw units, a bound without knowing the weights",
        source="Orabona, Crammer & Cesa-Bianchi 2015, equations 13 and 15",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, shared=Shared, totals=Totals, begin=begin),
        observe=Observe(observe),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(lipschitz="L"),
        row=RowHooks(range=RATIOS),
    )
)
