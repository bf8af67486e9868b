r"""AdaGrad, diagonal, by mirror descent (P4, eq. 6; P1 calls it AG).

f_t(w) = <w, H_t w> / (2 eta) with H_i = delta + sqrt(G_i); the gradient of its conjugate at theta
is eta theta_i / H_i. phi(w) = l1 abs(w) + l2 w^2 / 2 with abs(w) <= box is charged every round, or
phi is a ball of the given radius. With g the loss's slope,

    G_i += (g x_i)^2,    w_i <- prox(w_i - eta g x_i / H_i, H_i, eta)

for every coordinate, present or not: prox(v, h, k) minimizes (h / 2) (w - v)^2 + k phi(w). The slot
``seen`` holds the last round applied, and a weight is brought up to date when it is read (in
float32, rounds are counted exactly up to 2^24 of them). ``ball``: "l1" sum abs(w_i), "l2" ||w||,
at most ``radius``, nearest in the norm of H; alone, without l1, l2 and box.

Certificate (P4, theorem 5, with w_t the weights that predicted row t; phi counted every round):

    regret <= sum_t <w_t - u, (H_t - H_{t-1}) (w_t - u)> / (2 eta)
              + (eta / 2) sum_t sum_i (g x_i)^2 / H_{t,i}
           <= (delta ||u||^2 + sum D_i^2 sqrt(G_i)) / (2 eta) + eta sum sqrt(G_i)         (16)

with D_i = max abs(u_i - w_{t,i}); corollary 6, in a box at eta = sqrt(2) box. The measured regret
leaves out the sum of phi(w_t) >= 0, which only makes it smaller.

Cost: O(nnz); a ball O(d) times some 80 halvings on rows that leave it. ``project_every`` k > 1
looks at the ball after every k-th row only: another algorithm, without certificate. ``implicit``
takes the exact step along the row, where nothing is shrunk or clipped (and has no certificate).

Each coordinate has its own step, so rare features learn as fast as common ones; but eta depends on
the features' units, unlike NAG's. Choose it for features that are scaled already, or 0/1.

>>> from streamomd.training.demo import score
>>> score("adagrad"), score("adagrad", "square")
(0.136, 0.742)
>>> score("adagrad", l1=0.001, l2=0.001), score("adagrad", ball="l1", radius=2.0)
(0.141, 0.232)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.lazy_shrinkage import shrunk
from streamomd.rules.common.prox import lead, phi
from streamomd.rules.common.sets import ComparatorSet, box
from streamomd.rules.common.weighted_balls import NONE, Ball, beyond, drawn, limit, size
from streamomd.rules.contract import (
    PROJECTED,
    Certificate,
    Constraint,
    Coordinates,
    CoordinateSums,
    Coords,
    Max,
    Mean,
    Min,
    Nothing,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Between, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    eta: Positive = 0.5
    delta: NotNegative = 0.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0
    ball: Ball = NONE
    radius: NotNegative = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: YesNo = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0
    seen: Max = 0.0


class Totals(NamedTuple):
    size: Coords = 0.0


class Move(NamedTuple):
    g: float
    step: float


def begin(d: float, h: Hyper) -> Totals:
    weighted_balls.legal(h)
    return Totals()


def weight(own: Any, shared: object, totals: object, clock: float, h: Hyper) -> float:
    missed = clock - 1.0 - own.seen
    if missed <= 0.0 or own.w == 0.0 or (h.l1 == 0.0 and h.l2 == 0.0):
        return float(own.w)
    H = h.delta + math.sqrt(own.G)
    # Float32 slots may hold a weight whose G underflowed: without curvature phi pulls it to 0.
    return shrunk(own.w, missed, h.eta / H, h.l1, h.l2) if H > 0.0 else 0.0


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, h.eta * g), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.step * factor)


def stepped(own: Any, H: float, x: float, move: Move, clock: float, h: Hyper) -> float:
    """w after a gradient step and one round of phi."""
    w = weight(own, None, None, clock, h)
    return lead(H * w - move.step * x, H, h.eta, h.l1, h.l2, h.box)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    if h.l1 == 0.0 and h.l2 == 0.0 and h.box == 0.0:
        return Own(own.w - move.step * x / H, G, clock)
    return Own(stepped(own, H, x, move, clock, h), G, clock)


def mass(own: Any, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (size(own.w, h.ball),)


def outside(totals: Any, clock: float, h: Hyper) -> bool:
    return beyond(totals.size, h.ball, h.radius) and clock % h.project_every == 0.0


def inside(own: Any, mu: float, h: Hyper) -> float:
    """The coordinate of the nearest point in the ball."""
    return drawn(own.w, h.delta + math.sqrt(own.G), h.ball, mu)


def reach(own: Any, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return size(inside(own, mu, h), h.ball)


def radius(h: Hyper) -> float:
    return limit(h.ball, h.radius)


def project(own: Own, shared: object, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(inside(own, mu, h), own.G, own.seen)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["ball"] != "none" and params["project_every"] == 1 else None


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return weighted_balls.feasible(h.ball, h.radius) if h.ball != NONE else box(h.box)


def rejoin(own: Own, w: float, shared: object, totals: object, clock: float, h: Hyper) -> Own:
    """Of a merge: the mean weight stands for every round so far."""
    return Own(w, own.G, clock)


class Accounts(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0
    seen: Max = 0.0
    s: Sum = 0.0  # of (H_t - H_{t-1}) w_t
    q: Sum = 0.0  # of (H_t - H_{t-1}) w_t^2
    low: Min = 0.0  # of w_t
    high: Max = 0.0
    paid: Sum = 0.0  # of (g x_i)^2 / H_t


def accounted_update(
    own: Accounts, shared: object, x: float, move: Move, clock: float, h: Hyper
) -> Accounts:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:
        return own
    w = weight(own, None, None, clock, h)
    grown = (H - h.delta) - math.sqrt(own.G)
    return Accounts(
        stepped(own, H, x, move, clock, h),
        G,
        clock,
        own.s + grown * w,
        own.q + grown * w * w,
        min(own.low, w),
        max(own.high, w),
        own.paid + z * z / H,
    )


def accounted_project(
    own: Accounts, shared: object, mu: float, totals: Totals, clock: float, h: Hyper
) -> Accounts:
    w = inside(own, mu, h)
    return Accounts(w, own.G, own.seen, own.s, own.q, own.low, own.high, own.paid)


def accounted_rejoin(
    own: Accounts, w: float, shared: object, totals: object, clock: float, h: Hyper
) -> Accounts:
    return Accounts(w, own.G, clock, own.s, own.q, own.low, own.high, own.paid)


def certificate(run: Run) -> list[Claim]:
    own, u, h, root = run.own, run.u, run.h, np.sqrt(run.own["G"])
    if h.implicit:
        raise ValueError("theorem 5 is about explicit steps; this run took implicit ones")
    if h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    start = 0.5 * h.delta * float(u @ u) / h.eta
    center = float(root @ (u * u)) - 2.0 * float(u @ own["s"]) + float(own["q"].sum())
    sharp = start + 0.5 * center / h.eta + 0.5 * h.eta * float(own["paid"].sum())
    far = np.maximum(np.abs(u - own["low"]), np.abs(u - own["high"]))
    wide = start + 0.5 * float(root @ (far * far)) / h.eta + h.eta * float(root.sum())
    measured = run.loss - run.loss_u - run.rows * phi(u, h.l1, h.l2)
    told = "regret with phi" if h.l1 or h.l2 else "regret"
    claims = [
        Claim(told, measured, sharp, "Duchi et al., theorem 5, before its last step"),
        Claim(told, measured, wide, "Duchi et al., theorem 5 (16)"),
    ]
    if h.box > 0.0 and math.isclose(h.eta, math.sqrt(2.0) * h.box, rel_tol=1e-12):
        bound = 2.0 * math.sqrt(2.0) * h.box * float(root.sum()) + start
        claims.append(Claim(told, measured, bound, "Duchi et al., corollary 6"))
    return claims


PLAIN = Rule(
    name="adagrad",
    title="adaptive gradient, diagonal: scaled or 0/1 features, some of them rare",
    source="Duchi, Hazan & Singer 2011, equation 6",
    hyper=Hyper,
    state=Slots(
        move=Move, own=Own, totals=Totals, begin=begin, rejoin=rejoin, weight="w", curvature="G"
    ),
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(stretch=stretch, implicit="implicit"),
    sums=CoordinateSums(mass=mass),
    constraint=Constraint(outside, reach, radius, project, largest=largest),
    certificate=Certificate(feasible=feasible),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        claims=certificate,
        accounted=replace(
            PLAIN,
            state=replace(PLAIN.state, own=Accounts, rejoin=accounted_rejoin),
            update=accounted_update,
            constraint=Constraint(outside, reach, radius, accounted_project, largest=largest),
            certificate=replace(PLAIN.certificate, claims=certificate),
        ),
    ),
)


def catch_up(own: Own, old: object, new: object, totals: object, clock: float, h: Hyper) -> Own:
    """The rounds missed, once a touch: else the prediction and the update would each do them."""
    return Own(weight(own, None, None, clock, h), own.G, clock - 1.0)


class Lean(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


def free_begin(d: float, h: Hyper) -> Nothing:
    weighted_balls.legal(h)
    return Nothing()


def lean_weight(own: Lean, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def lean_update(own: Lean, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Lean:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:
        return own
    return Lean(own.w - move.step * x / H, G)


FREE = replace(
    RULE,
    state=replace(RULE.state, totals=Nothing, begin=free_begin),
    row=replace(RULE.row, catch_up=catch_up),
    sums=None,
    constraint=None,
)
LEAN = replace(
    FREE,
    state=replace(FREE.state, own=Lean, rejoin=None),
    row=RULE.row,
    weight=lean_weight,
    update=lean_update,
)


def simplest(params: Mapping[str, Any]) -> Rule:
    """Without a ball no sum is kept; without phi no round is missed: a quarter of the time."""
    if params["ball"] != "none":
        return RULE
    return FREE if params["l1"] or params["l2"] or params["box"] else LEAN


RULE = replace(
    RULE,
    storage=Coordinates(reduced=simplest),
)
