r"""RDA: regularized dual averaging (P3, section 4; P0, eq. 8), sparse by an L1 term.

f_T(w) = beta_T ||w||^2 / 2 + T phi(w), T the rows finished, beta_T = gamma sqrt(max(T, 1)),
phi(w) = l1 sum abs(w) + l2 sum w^2 / 2 with abs(w) <= box (0: any). theta = - sum of g x over them:

    w = grad f_T*(theta) = clip(soft(theta, T l1) / (beta_T + T l2), +-box),
    theta <- theta - g x.

Certificate (P3, theorem 5 with phi charged every round), u inside the box:

    regret <= beta_{T-1} ||u||^2 / 2 + (T - 1) phi(u) + sum ||g x||^2 / (2 beta_{t-1}).

Cost: O(nnz); no weight is stored, so untouched ones shrink by themselves. Use it for few non-zero
weights: soft thresholds the average gradient, which sets more of them to 0 than thresholding steps
does. One step size for all coordinates: features must be on one scale, else take FTRL-Proximal.

>>> from streamomd.training.demo import score
>>> score("rda"), score("rda", l1=0.05)
(0.228, 0.242)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.ftrl_bounds import rda_certified
from streamomd.rules.common.schedules import beta
from streamomd.rules.common.sets import box_of, lead
from streamomd.rules.contract import Certificate, Row, Rule, Slots, Sum
from streamomd.rules.params import NotNegative, Positive


class Hyper(NamedTuple):
    gamma: Positive = 10.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0


class Move(NamedTuple):
    a: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return lead(own.theta, beta(clock, h), clock - 1.0, h.l1, h.l2, h.box)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    a = -row.importance * row.slope
    return a != 0.0, Move(a), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = rda_certified(
    Rule(
        name="rda",
        title="regularized dual averaging: few non-zero weights, features on one scale",
        source="Qian, notes on adaptive FTRL, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own),
        weight=weight,
        step=step,
        update=update,
        certificate=Certificate(feasible=box_of),
    )
)
