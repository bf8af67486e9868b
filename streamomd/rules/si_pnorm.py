r"""SI p-norm: a scale-invariant rule for many features of which few matter (P0, eq. 12).

Scale b_i = max abs(x_i), m = the most non-zeros of a row, p = max(2, 2 ln m), all with this row
counted, q = p / (p - 1), L the loss's Lipschitz constant;

    beta^2 = e L^2 (p - 1) + sum over the rows finished of (p_s - 1) ||g x / b||_p_s^2,

each with the scale and the p of its row. f_t(w) = beta / 2 (sum (abs(w_i) b_i)^q)^(2/q). With
theta = - eta sum of g x and r_i = abs(theta_i) / b_i,

    w_i = grad f_t*(theta)_i = sign(theta_i) r_i^(p-1) (sum r^p)^(2/p - 1) / (beta b_i),

    theta_i <- theta_i - eta g x_i.

(P0's equation 14 has a factor 1 / (p - 1) that equation 12 does not give.) The slot ``rp`` holds
(r_i / scale)^(p-1): the scale, a total, prevents overflow.

Certificate (P0, theorem 1), T rows, ub = the vector u_i b_i; the last two lines while no importance
times slope is above L:

    regret <= beta_T / (2 eta) ||ub||_q^2 + eta sum (p_t - 1) ||g x / b||_p^2 / (2 beta_t)    (16)
           <= beta_{T+1} (||ub||_1^2 / (2 eta) + eta)
           <= L sqrt(e (T + 1) (p - 1)) (||ub||_1^2 / (2 eta) + eta).

Cost: O(nnz) powers, and O(d) each time m grows. Predictions do not change when any feature is
multiplied by any constant. Choose it when rows have thousands of non-zeros, of which few matter:
the bound grows with ln m where SI AdaGrad's grows with sqrt(d). It is least with eta = ||ub||_1 /
sqrt(2); the default, 10, is that of a norm of 14.

>>> from streamomd.training.demo import score
>>> score("si_pnorm"), score("si_pnorm", "absolute", eta=10.0)
(0.141, 0.501)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.certificates.adagrad_bounds import si_pnorm_claims
from streamomd.rules.contract import (
    Certificate,
    CoordinateSums,
    Coords,
    Losses,
    Max,
    Observe,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)  # fmt: skip
from streamomd.rules.params import Lipschitz, Positive
from streamomd.rules.ranges import RATIOS

LEAST, MOST = 1e-24, 1e24  # of the sum of powers, else it is recomputed; float32 holds the parts


class Hyper(NamedTuple):
    eta: Positive = 10.0
    L: Lipschitz = 0.0


class Shared(NamedTuple):
    b: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    rp: Sum = 0.0


class Totals(NamedTuple):
    sum: Coords = 0.0  # of (r / scale)^p
    scale: Max = 1.0
    p: Max = 2.0
    p_of_rp: Max = 2.0  # what p was when rp was last computed for all
    m: Max = 0.0
    B: Sum = 0.0  # beta^2 but for its first term
    beta: Max = 0.0  # of the last row
    paid: Sum = 0.0  # of (p - 1) ||g x / b||_p^2 / beta
    steepest: Max = 0.0
    ahead: Max = 0.0  # beta for the next row


class Move(NamedTuple):
    g: float
    scale: float
    power: float


def begin(d: float, h: Hyper) -> Totals:
    return Totals(scale=h.eta * h.L if h.L > 0.0 else 1.0)


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[float]]:
    return Shared(max(shared.b, abs(x))), (1.0,)


def ratio(own: Own, shared: Shared, scale: float) -> float:
    """r / scale."""
    return abs(own.theta) / shared.b / scale if shared.b > 0.0 else 0.0


def powered(r: float, power: float) -> float:
    return r if power == 1.0 else math.pow(r, power)


def align(own: Own, old: Shared, new: Shared, totals: Totals, clock: float, h: Hyper) -> Own:
    r = ratio(own, new, totals.scale)
    return Own(own.theta, powered(r, totals.p_of_rp - 1.0))


def mass(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (ratio(own, shared, totals.scale) * own.rp,)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return totals.p != totals.p_of_rp or totals.sum > MOST or 0.0 < totals.sum < LEAST


def peak(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    return ratio(own, shared, 1.0)


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    t = totals
    return Totals(
        sum=t.sum, scale=peak if peak > 0.0 else t.scale, p=t.p, p_of_rp=t.p, m=t.m, B=t.B,
        beta=t.beta, paid=t.paid, steepest=t.steepest, ahead=t.ahead,
    )  # fmt: skip


def refresh(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> Own:
    return align(own, shared, shared, totals, clock, h)


def beta_of(p: float, B: float, h: Hyper) -> float:
    return math.sqrt(math.e * h.L * h.L * (p - 1.0) + B)


def prepare(q: tuple[float], totals: Totals, clock: float, h: Hyper) -> Totals:
    t, m = totals, max(totals.m, q[0])
    p = max(2.0, 2.0 * math.log(max(m, 1.0)))
    beta = beta_of(p, t.B, h)
    return Totals(
        sum=t.sum, scale=t.scale, p=p, p_of_rp=t.p_of_rp, m=m, B=t.B, beta=beta,
        paid=t.paid, steepest=t.steepest, ahead=beta,
    )  # fmt: skip


def weight(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    t = totals
    if own.theta == 0.0 or t.sum <= 0.0 or t.ahead == 0.0:
        return 0.0
    length = t.scale / t.ahead
    if t.p_of_rp > 2.0:
        length *= math.pow(t.sum, 2.0 / t.p_of_rp - 1.0)
    return math.copysign(own.rp * length, own.theta) / shared.b


def terms(
    own: Own, shared: Shared, x: float, totals: Totals, clock: float, h: Hyper
) -> tuple[float]:
    return (math.pow(abs(x) / shared.b, totals.p),)


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    t, g = totals, row.importance * row.slope
    square = g * g * (t.p - 1.0) * math.pow(row.r[0], 2.0 / t.p)
    B = t.B + square
    paid = t.paid + (square / t.beta if t.beta > 0.0 else 0.0)
    found = Totals(  # paid and steepest are for the certificate; saved states have them here
        sum=t.sum, scale=t.scale, p=t.p, p_of_rp=t.p_of_rp, m=t.m, B=B, beta=t.beta,
        paid=paid, steepest=max(t.steepest, abs(g)), ahead=beta_of(t.p, B, h),
    )  # fmt: skip
    return g != 0.0, Move(g, t.scale, t.p_of_rp - 1.0), found


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta - h.eta * (move.g * x)
    r = abs(theta) / shared.b / move.scale
    return Own(theta, powered(r, move.power))


RULE = Rule(
    name="si_pnorm",
    title="scale-invariant p-norm: raw units, long rows with few relevant features",
    source="Orabona, Crammer & Cesa-Bianchi 2015, equation 12",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, shared=Shared, totals=Totals, begin=begin),
    observe=Observe(observe, sums=1),
    align=align,
    weight=weight,
    step=step,
    update=update,
    losses=Losses(lipschitz="L"),
    row=RowHooks(range=RATIOS, gathers=1, prepare=prepare, terms=terms),
    sums=CoordinateSums(mass, stale, peak, rebase, refresh),
    certificate=Certificate(claims=si_pnorm_claims),
)
