r"""Online Newton step, diagonal (after Hazan, Agarwal & Kale 2007).

f_t(w) = gamma w'D_t w / 2 with D_i = epsilon + S_i. With g the loss's slope,

    S_i += (g x_i)^2,    w_i -= g x_i / (gamma D_i),

and, with a ball, the nearest point of it in the norm of D: sum abs(w) <= radius (l1) or
||w||_2 <= radius (l2), on the rows that leave it, in O(d) times a bisection; ``project_every`` = k
does so every k rows only, which is another algorithm. O(nnz) a row otherwise. The step falls as
1 / S, AdaGrad's as 1 / sqrt(S): fast where the loss is curved (square, logistic), too small where
gamma is too large. The theorem is for full matrices: no bound here.

epsilon is 1 / gamma^2 by default, as in `ons`. Set ``implicit`` = true where features or targets
are in raw units, and rows longer than sqrt(epsilon): it follows the loss along the row instead of
its slope at the start and never overshoots.

>>> from streamomd.training.demo import score
>>> score("ons_diag"), score("ons_diag", "square", gamma=1.0, epsilon=10.0)
(0.169, 0.549)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.common.newton_ball import NONE, in_newton_ball
from streamomd.rules.contract import Certificate, Mean, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import RAW_UNITS, Between, Choice, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    epsilon: Positive = 100.0
    gamma: Positive = 0.1
    ball: Annotated[float, Choice(("none", "l1", "l2"))] = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: Annotated[YesNo, RAW_UNITS] = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    S: Sum = 0.0


class Move(NamedTuple):
    g: float
    step: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, g / h.gamma), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.step * factor)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    S = own.S + z * z
    return Own(own.w - move.step * (x / (h.epsilon + S)), S)


RULE = in_newton_ball(
    Rule(
        name="ons_diag",
        title="online Newton step, diagonal: curved losses, steps that fall quickly",
        source="Hazan, Agarwal & Kale 2007, diagonal",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="w"),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(stretch=stretch, implicit="implicit"),
        certificate=Certificate(reason="the theorem is for full matrices"),
    )
)
