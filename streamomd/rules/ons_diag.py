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

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from streamomd.rules.common import weighted_balls
from streamomd.rules.common.balls import legal
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import (
    PROJECTED,
    Certificate,
    Constraint,
    CoordinateSums,
    Coords,
    Mean,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)  # fmt: skip
from streamomd.rules.params import RAW_UNITS, Between, Choice, NotNegative, Positive, YesNo

NONE, L1 = 0.0, 1.0


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


class Totals(NamedTuple):
    size: Coords = 0.0  # of w, as the ball measures it


class Move(NamedTuple):
    g: float
    step: float


def begin(d: float, h: Hyper) -> Totals:
    legal(h)
    return Totals()


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, g / h.gamma), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.step * factor)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    S = own.S + z * z
    return Own(own.w - move.step * (x / (h.epsilon + S)), S)


def measure(w: float, h: Hyper) -> float:
    """What a weight adds to the size that the ball bounds."""
    if h.ball == NONE:
        return 0.0
    return abs(w) if h.ball == L1 else w * w


def nearer(own: Own, mu: float, h: Hyper) -> float:
    """The weight shrunk by mu."""
    D = h.epsilon + own.S
    if h.ball == L1:
        left = max(abs(own.w) - mu / D, 0.0)
        return left if own.w > 0.0 else -left
    return own.w * (D / (D + mu))


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (measure(own.w, h),)


def radius(h: Hyper) -> float:
    return h.radius if h.ball == L1 else h.radius * h.radius


def outside(totals: Totals, clock: float, h: Hyper) -> bool:
    return h.ball != NONE and totals.size > radius(h) and clock % h.project_every == 0.0


def reach(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return measure(nearer(own, mu, h), h)


def project(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(nearer(own, mu, h), own.S)


def largest(params: Mapping[str, Any]) -> int | None:
    return None if params["ball"] == "none" or params["project_every"] > 1 else PROJECTED


def feasible(slots: object, h: Hyper) -> ComparatorSet:
    return weighted_balls.feasible(h.ball, h.radius)


RULE = Rule(
    name="ons_diag",
    title="online Newton step, diagonal: curved losses, steps that fall quickly",
    source="Hazan, Agarwal & Kale 2007, diagonal",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, weight="w", begin=begin),
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(stretch=stretch, implicit="implicit"),
    sums=CoordinateSums(mass),
    constraint=Constraint(outside, reach, radius, project, largest=largest),
    certificate=Certificate(reason="the theorem is for full matrices", feasible=feasible),
)
