r"""Dual averaging (P3, section 4 with no regularizer): all gradients weigh alike.

f_T(w) = ||w||^2 / (2 eta_T), T the rows finished. With theta = - sum of g x over them,

    w = grad f_T*(theta) = eta_T theta,    then    theta <- theta - g x;

from row to row w <- (eta_T / eta_{T-1}) w - eta_T g x. eta_T is one of eta, eta / sqrt(T), eta / T.
With ``ball`` "l2", f_T is infinite outside ||w|| <= radius, and w is the nearest point in it,
theta min(eta_T, radius / ||theta||): a lazy projection, theta itself is not moved.

Certificate (P3, theorem 5): with h_t = 1 / eta_{t-1}, the curvature that row t is predicted with,

    regret <= h_T ||u||^2 / 2 + sum ||g x||^2 / (2 h_t),    u in the ball if there is one.

Cost: O(nnz). ``implicit`` takes the exact step along the row, without a ball (and has no
certificate).

Compared with OGD of the same schedule: early gradients count as much as late ones, so it converges
more steadily, and forgets nothing. Features must be on one scale.

>>> from streamomd.training.demo import score
>>> score("da"), score("da", "square", eta=0.01)
(0.228, 0.824)
>>> score("da", ball="l2", radius=0.3)
0.244
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.ftrl_bounds import da_certified
from streamomd.rules.common.lazy_ball import NONE, L2Ball, free_begin
from streamomd.rules.common.schedules import SQRT, Schedule, averaging_rate
from streamomd.rules.contract import Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: Schedule = SQRT
    ball: L2Ball = NONE
    radius: NotNegative = 0.0
    implicit: YesNo = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0


class Move(NamedTuple):
    a: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return averaging_rate(clock, h) * own.theta


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    a = -row.importance * row.slope
    return a != 0.0, Move(a), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.a * factor)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = da_certified(
    Rule(
        name="da",
        title="dual averaging: early rows count as much as late ones",
        source="Qian, notes on adaptive FTRL, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, begin=free_begin),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(stretch=stretch, implicit="implicit"),
    )
)
