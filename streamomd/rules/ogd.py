r"""OGD: online gradient descent (with the square loss: LMS, Widrow-Hoff), free or in a set.

f_t(w) = ||w||^2 / (2 eta_t). With g the loss's slope, eta_t one of eta, eta / sqrt(t), eta / t, or
"adaptive" (P3, section 5) eta / sqrt(N), N the sum of ||g x||^2 so far, this row counted, and P the
projection onto the set, the nearest point in it,

    w <- P(w - eta_t g x).

``ball``: "none", P is nothing; "box", abs(w_i) <= radius, clips; "l2", ||w|| <= radius, one factor
for all weights, stored as the total c and used as w = c v; "l1", sum abs(w_i) <= radius, draws all
weights towards 0 by one multiplier, found by bisection after each row that leaves the ball.

Certificate (P1, lemma 1), A_t = 1 / eta_t, w_t the weights that predicted row t, u in the set:

    regret <= sum_t (A_t - A_{t-1}) ||w_t - u||^2 / 2 + sum_t eta_t ||g x||^2 / 2,    A_0 = 0;

adaptive in a ball of radius R: at most (2 R^2 / eta + eta) sqrt(N), which is 2 sqrt(2) R sqrt(N) at
eta = sqrt(2) R (in a box of d coordinates with R^2 d for R^2).

Cost: O(nnz); the L1 ball O(d) times some 80 halvings on rows that leave it. ``project_every`` k > 1
checks the L1 ball after every k-th row only: another algorithm, without certificate. ``implicit``
takes the exact step along the row, where nothing is clipped (and has no certificate).

One step size for all coordinates: features must be on one scale. The usual baseline.

>>> from streamomd.training.demo import score
>>> score("ogd"), score("ogd", "square", eta=0.001, schedule="constant")
(0.225, 0.785)
>>> score("ogd", ball="l2", radius=0.3), score("ogd", ball="l1", radius=1.0)
(0.243, 0.234)
>>> score("ogd", schedule="adaptive", eta=1.4, ball="l2", radius=1.0)
0.227
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.ogd_bounds import certified_forms
from streamomd.rules.common.balls import NONE, Ball, bound, free_begin
from streamomd.rules.common.schedules import SQRT, AdaptiveSchedule, rate
from streamomd.rules.contract import Mean, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Between, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: AdaptiveSchedule = SQRT
    ball: Ball = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: YesNo = 0.0


class Own(NamedTuple):
    v: Mean = 0.0


class Move(NamedTuple):
    step: float
    bound: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.v


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    pace = rate(h.eta, h.schedule, clock)
    step = pace * row.importance * row.slope
    return step != 0.0, Move(step, bound(h)), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.step * factor, move.bound)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(max(min(own.v - move.step * x, move.bound), -move.bound))


RULE = certified_forms(
    Rule(
        name="ogd",
        title="online gradient descent: the baseline, for features on one scale",
        source="Orabona, Crammer & Cesa-Bianchi 2015, section 3",
        hyper=Hyper,
        state=Slots(own=Own, move=Move, begin=free_begin, weight="v"),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(stretch=stretch, implicit="implicit"),
    )
)
