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
omits the sum of phi(w_t) >= 0, which only makes it smaller.

Cost: O(nnz); a ball O(d) times some 80 halvings on rows that leave it. ``project_every`` k > 1
checks the ball after every k-th row only: another algorithm, without certificate. ``implicit``
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
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.adagrad_bounds import certified_forms
from streamomd.rules.common.sets import lead, shrunk
from streamomd.rules.common.weighted_balls import NONE, Ball
from streamomd.rules.contract import Max, Mean, Row, RowHooks, Rule, Slots, Sum
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


class Move(NamedTuple):
    g: float
    step: float


def weight(own: Any, shared: object, totals: object, clock: float, h: Hyper) -> float:
    missed = clock - 1.0 - own.seen
    if missed <= 0.0 or own.w == 0.0 or (h.l1 == 0.0 and h.l2 == 0.0):
        return float(own.w)
    H = h.delta + math.sqrt(own.G)
    # Float32 slots may hold a weight whose G underflowed: without curvature phi pulls it to 0.
    return shrunk(own.w, missed, h.eta / H, h.l1, h.l2) if H > 0.0 else 0.0


def step(row: Row, totals: Any, clock: float, h: Hyper) -> tuple[bool, Move, Any]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, h.eta * g), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.step * factor)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    if h.l1 == 0.0 and h.l2 == 0.0 and h.box == 0.0:
        return Own(own.w - move.step * x / H, G, clock)
    w = weight(own, shared, None, clock, h)
    return Own(lead(H * w - move.step * x, H, h.eta, h.l1, h.l2, h.box), G, clock)


def rejoin(own: Own, w: float, shared: object, totals: object, clock: float, h: Hyper) -> Own:
    """After a merge the mean weight includes every round so far."""
    return Own(w, own.G, clock)


RULE = certified_forms(
    Rule(
        name="adagrad",
        title="adaptive gradient, diagonal: scaled or 0/1 features, some of them rare",
        source="Duchi, Hazan & Singer 2011, equation 6",
        hyper=Hyper,
        state=Slots(own=Own, move=Move, rejoin=rejoin, weight="w", curvature="G"),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(stretch=stretch, implicit="implicit"),
    )
)
