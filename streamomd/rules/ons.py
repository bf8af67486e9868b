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
large as that allows.

>>> from streamomd.training.demo import score
>>> score("ons")
0.134
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.full_matrix import LIMIT, Limit, largest, log_volume
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import (
    Certificate,
    Constraint,
    Losses,
    Matrix,
    Max,
    Mean,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Choice, NotNegative, Positive, YesNo

NONE = 0.0


class Hyper(NamedTuple):
    epsilon: Positive = 1.0
    gamma: Positive = 0.1
    ball: Annotated[float, Choice(("none", "l2"))] = NONE
    radius: NotNegative = 0.0
    implicit: YesNo = 0.0
    limit: Limit = LIMIT


class Own(NamedTuple):
    w: Mean = 0.0


class Totals(NamedTuple):
    cost: Sum = 0.0  # of g^2 <x, A_t^-1 x>
    steepest: Max = 0.0  # of h slope^2, the square loss's h (y - yhat)^2
    widest: Max = 0.0  # of abs(yhat)
    heaviest: Max = 0.0  # of h


class Move(NamedTuple):
    s: float
    c: float


def start_scale(h: Hyper) -> float:
    return h.epsilon


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if row.importance == 0.0:
        return False, Move(0.0, 0.0), totals
    g = row.importance * row.slope
    c, chi = g * g, row.r[1]
    seen = Totals(
        totals.cost + c * chi / (1.0 + c * chi),
        max(totals.steepest, g * row.slope),
        max(totals.widest, abs(row.margin)),
        max(totals.heaviest, row.importance),
    )
    return g != 0.0, Move(-g / h.gamma / (1.0 + c * chi), c), seen


def stretch(move: Move, factor: float) -> Move:
    return Move(move.s * factor, move.c)


def update(own: Own, shared: object, v: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.w + move.s * v)


def outside(totals: Totals, clock: float, h: Hyper) -> bool:
    return h.ball != NONE


def reach(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return own.w * own.w


def radius(h: Hyper) -> float:
    return h.radius


def certificate(run: Run) -> list[Claim]:
    h, totals, u = run.h, run.totals, np.asarray(run.u)
    if h.implicit:
        raise ValueError("it is proven for explicit steps")
    if math.isnan(run.lipschitz):
        if h.gamma * totals["steepest"] > 1.0:
            most = 1.0 / totals["steepest"]
            raise ValueError(f"gamma h (y - yhat)^2 came to more than 1: gamma <= {most:.3g} would")
    else:
        widest = max(totals["widest"], run.widest_u)
        most = math.exp(-widest) / max(totals["heaviest"], 1e-300)
        if h.gamma > most:
            flags = suggestion(h, run.longest(), totals["heaviest"])
            raise ValueError(
                f"with margins of up to {widest:.3g} it is proven for gamma <= {most:.3g}, not for "
                f"{h.gamma:g}; a smaller gamma alone takes longer steps: train with {flags} for a "
                "claim on these rows"
            )
    ridge = 0.5 * h.gamma * h.epsilon * float(u @ u)
    regret, source = run.loss - run.loss_u, "Hazan, Agarwal & Kale 2007, theorem 2"
    return [
        Claim("regret", regret, ridge + totals["cost"] / (2.0 * h.gamma), source),
        Claim("regret, by the volume", regret, ridge + log_volume(run) / (2.0 * h.gamma), source),
    ]


def suggestion(h: Hyper, longest: float, heaviest: float) -> str:
    """Flags with which every run over rows of ||x||^2 <= longest has a claim (logistic loss).

    In a ball of this radius no margin is beyond B = radius max ||x||, and gamma h <= exp(-B). The
    radius is the run's own, or the one that makes B = 1.
    """
    length = math.sqrt(longest)
    own = h.ball != NONE and h.radius > 0.0
    radius = h.radius if own else _rounded_down(1.0 / max(length, 1e-300))
    gamma = _rounded_down(math.exp(-radius * length) / max(heaviest, 1e-300))
    ball = "" if own else f"--set model.params.ball=l2 --set model.params.radius={radius:.3g} "
    return f"{ball}--set model.params.gamma={gamma:.3g}"


def _rounded_down(value: float) -> float:
    """The number of three digits that is not above the value."""
    near = float(f"{value:.2e}")
    digit = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0.0 else 0.0
    return near if near <= value else float(f"{near - digit:.2e}")


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return weighted_balls.feasible(
        weighted_balls.NONE if h.ball == NONE else weighted_balls.L2, h.radius
    )


RULE = Rule(
    name="ons",
    title="online Newton step: curved losses, correlated features",
    source="Hazan, Agarwal & Kale 2007",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, weight="w"),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("logistic", "square")),
    row=RowHooks(stretch=stretch, implicit="implicit"),
    constraint=Constraint(outside, reach, radius),
    storage=Matrix(largest, start_scale=start_scale),
    certificate=Certificate(claims=certificate, feasible=feasible),
)
