r"""AdaGrad, diagonal, primal-dual: dual averaging with a step for each coordinate (P4, eq. 5).

f_t(w) = <w, H_t w> / (2 eta) + T phi(w), H_i = delta_i + sqrt(G_i), T the rows finished. phi(w) =
l1 abs(w) + l2 w^2 / 2 with abs(w) <= box, or a ball of the given radius. With theta = - sum of g x
over them,

    w_i = grad f_t*(theta)_i = prox(eta theta_i / H_i, H_i, eta T),

    theta_i <- theta_i - g x_i,    G_i <- G_i + (g x_i)^2.

delta is one number; where it is 0, delta_i = L max h abs(x_i) so far, this row counted, h a row's
importance, L the loss's Lipschitz constant: at least abs(g x_i), as the theorem asks. ``ball``:
"l1" sum abs(w_i), "l2" ||w||, at most ``radius``, nearest in the norm of H: the multiplier is found
again after each row while the free minimizer lies outside, and kept as a total.

Certificate (P4, theorem 5, with H_t what row t is predicted with; phi counted every round):

    regret <= sum H_i u_i^2 / (2 eta) + (eta / 2) sum_t sum_i (g x_i)^2 / H_{t,i}
           <= sum (delta_i + sqrt(G_i)) u_i^2 / (2 eta) + eta sum sqrt(G_i)                    (15)

the second line, and corollary 6, where no abs(g x_i) was above delta_i. The measured regret leaves
out the sum of phi(w_t) >= 0, which only makes it smaller.

Cost: O(nnz), nothing is stored but theta, so untouched weights shrink by themselves; a ball O(d)
times some 80 halvings a row. ``project_every`` k > 1 finds the multiplier after every k-th row
only: another algorithm, without certificate.

Against mirror descent: L1 charged every round truly empties weights, early gradients count as much
as late ones, and with delta = 0 features may have any scale.

>>> from streamomd.training.demo import score
>>> score("adagrad_da"), score("adagrad_da", "absolute")
(0.16, 0.601)
>>> score("adagrad_da", l1=0.01), score("adagrad_da", delta=1.0, ball="l1", radius=2.0)
(0.183, 0.221)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.prox import lead, phi
from streamomd.rules.common.sets import ComparatorSet, box
from streamomd.rules.common.weighted_balls import NONE, Ball, beyond, drawn, limit, size
from streamomd.rules.contract import (
    PROJECTED,
    Certificate,
    Constraint,
    CoordinateSums,
    Coords,
    Losses,
    Max,
    Observe,
    Row,
    RowHooks,
    Rule,
    Saved,
    Slots,
    Sum,
)
from streamomd.rules.params import Between, Lipschitz, NotNegative, Positive


class Hyper(NamedTuple):
    eta: Positive = 0.5
    delta: NotNegative = 0.0
    L: Lipschitz = 0.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0
    ball: Ball = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0


class Shared(NamedTuple):
    b: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    G: Sum = 0.0


class Totals(NamedTuple):
    size: Coords = 0.0  # of the free minimizer
    mu: Max = 0.0


class Move(NamedTuple):
    g: float
    a: float


def begin(d: float, h: Hyper) -> Totals:
    weighted_balls.legal(h)
    return Totals()


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.b, abs(x))), ()


def align(own: Any, old: Shared, new: Shared, totals: Totals, clock: float, h: Hyper) -> Any:
    return own  # the engine asks anew what the coordinate adds to ``size``


def delta_of(shared: Shared, h: Hyper) -> float:
    return h.delta if h.delta > 0.0 else h.L * shared.b


def free(own: Any, shared: Shared, h: Hyper) -> float:
    """eta theta_i / H_i."""
    H = delta_of(shared, h) + math.sqrt(own.G)
    return float(h.eta * own.theta / H) if H > 0.0 else 0.0


def inside(own: Any, shared: Shared, mu: float, h: Hyper) -> float:
    """The coordinate of the nearest point in the ball."""
    H = delta_of(shared, h) + math.sqrt(own.G)
    return drawn(free(own, shared, h), H, h.ball, mu)


def weight(own: Any, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    if h.ball != NONE:
        return inside(own, shared, totals.mu, h)
    H = delta_of(shared, h) + math.sqrt(own.G)
    return lead(h.eta * own.theta, H, h.eta * (clock - 1.0), h.l1, h.l2, h.box)


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, -g), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.a * factor)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    return Own(own.theta + move.a * x, own.G + z * z)


def mass(own: Any, shared: Shared, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    if h.ball == NONE:
        return (0.0,)
    return (size(free(own, shared, h), h.ball),)


def outside(totals: Totals, clock: float, h: Hyper) -> bool:
    return beyond(totals.size, h.ball, h.radius) and clock % h.project_every == 0.0


def reach(own: Any, shared: Shared, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return size(inside(own, shared, mu, h), h.ball)


def radius(h: Hyper) -> float:
    return limit(h.ball, h.radius)


def settle(totals: Totals, mu: float, h: Hyper) -> Totals:
    if mu == 0.0 and beyond(totals.size, h.ball, h.radius):  # outside, but not looked at this time
        return totals
    return Totals(totals.size, mu)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["ball"] != "none" and params["project_every"] == 1 else None


def older(saved: Saved) -> str:
    """Version 1 left the importance out of b, which counts where delta is 0."""
    counts = saved.weighted and saved.params["delta"] == 0.0
    return "b does not count importances" if counts else ""


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return weighted_balls.feasible(h.ball, h.radius) if h.ball != NONE else box(h.box)


class Accounts(NamedTuple):
    theta: Sum = 0.0
    G: Sum = 0.0
    steepest: Max = 0.0  # of abs(g x_i)
    paid: Sum = 0.0  # of (g x_i)^2 / H_t


def accounted_update(
    own: Accounts, shared: Shared, x: float, move: Move, clock: float, h: Hyper
) -> Accounts:
    z = move.g * x
    H = delta_of(shared, h) + math.sqrt(own.G)
    paid = z * (z / H) if H > 0.0 else 0.0
    steepest = max(own.steepest, abs(z))
    return Accounts(own.theta + move.a * x, own.G + z * z, steepest, own.paid + paid)


def certificate(run: Run) -> list[Claim]:
    own, u, h = run.own, run.u, run.h
    if h.project_every > 1.0:
        raise ValueError("the weights were not projected before each row")
    if h.ball != NONE and h.delta == 0.0:
        raise ValueError("in a ball, delta must stay the same: give one above 0")
    delta = np.full(len(u), h.delta) if h.delta > 0.0 else h.L * run.shared["b"]
    root, square = np.sqrt(own["G"]), u * u
    start, steps = float(delta @ square), h.eta * float(root.sum())
    sharp = (start + float(root @ square)) / (2.0 * h.eta) + 0.5 * h.eta * float(own["paid"].sum())
    wide = (start + float(root @ square)) / (2.0 * h.eta) + steps
    widest = (start + float(square.max(initial=0.0)) * float(root.sum())) / h.eta + steps
    measured = run.loss - run.loss_u - run.rows * phi(u, h.l1, h.l2)
    told = "regret with phi" if h.l1 or h.l2 else "regret"
    source = "Duchi et al., theorem 5"
    claims = [Claim(told, measured, sharp, f"{source}, before its last step")]
    if bool(np.all(own["steepest"] <= delta * (1.0 + 1e-12))):
        claims.append(Claim(told, measured, wide, f"{source} (15)"))
        claims.append(Claim(told, measured, widest, "Duchi et al., before corollary 6"))
    return claims


PLAIN = Rule(
    name="adagrad_da",
    title="adaptive gradient, diagonal, dual averaging: L1 that truly empties weights",
    source="Duchi, Hazan & Singer 2011, equation 5",
    hyper=Hyper,
    state=Slots(
        move=Move,
        own=Own,
        shared=Shared,
        totals=Totals,
        begin=begin,
        version=2,
        older=older,
        curvature="G",
    ),
    observe=Observe(observe, weighted=True),
    align=align,
    weight=weight,
    step=step,
    update=update,
    losses=Losses(lipschitz="L"),
    row=RowHooks(stretch=stretch),
    sums=CoordinateSums(mass=mass),
    constraint=Constraint(outside, reach, radius, None, settle, largest=largest),
    certificate=Certificate(feasible=feasible),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        claims=certificate,
        accounted=replace(
            PLAIN,
            state=replace(PLAIN.state, own=Accounts),
            update=accounted_update,
            certificate=replace(PLAIN.certificate, claims=certificate),
        ),
    ),
)
