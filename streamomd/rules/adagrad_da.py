r"""AdaGrad, diagonal, primal-dual: dual averaging with a step for each coordinate (P4, eq. 5).

f_t(w) = <w, H_t w> / (2 eta) + T phi(w), H_i = delta_i + sqrt(G_i), T the rows finished. phi(w) =
l1 abs(w) + l2 w^2 / 2 with abs(w) <= box, or a ball of the given radius. With theta = - sum of g x
over them,

    w_i = grad f_t*(theta)_i = prox(eta theta_i / H_i, H_i, eta T),

    theta_i <- theta_i - g x_i,    G_i <- G_i + (g x_i)^2.

delta is one number; where it is 0, delta_i = L max h abs(x_i) so far, this row counted, h a row's
importance, L the loss's Lipschitz constant: at least abs(g x_i), as the theorem needs. ``ball``:
"l1" sum abs(w_i), "l2" ||w||, at most ``radius``, nearest in the norm of H: the multiplier is found
again after each row while the free minimizer lies outside, and stored as a total. A ball needs a
delta above 0.

Certificate (P4, theorem 5, with H_t what row t is predicted with; phi counted every round):

    regret <= sum H_i u_i^2 / (2 eta) + (eta / 2) sum_t sum_i (g x_i)^2 / H_{t,i}
           <= sum (delta_i + sqrt(G_i)) u_i^2 / (2 eta) + eta sum sqrt(G_i)                    (15)

the second line, and corollary 6, where no abs(g x_i) was above delta_i. The measured regret omits
the sum of phi(w_t) >= 0, which only makes it smaller.

Cost: O(nnz), nothing is stored but theta, so untouched weights shrink by themselves; a ball O(d)
times some 80 halvings a row. ``project_every`` k > 1 finds the multiplier after every k-th row
only: another algorithm, without certificate.

Compared with mirror descent: L1 charged every round sets weights to exactly 0, early gradients
count as much as late ones, and with delta = 0 features may have any scale.

>>> from streamomd.training.demo import score
>>> score("adagrad_da"), score("adagrad_da", "absolute")
(0.16, 0.601)
>>> score("adagrad_da", l1=0.01), score("adagrad_da", delta=1.0, ball="l1", radius=2.0)
(0.183, 0.221)
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.adagrad_bounds import averaging_certified
from streamomd.rules.common.schedules import delta_of
from streamomd.rules.common.sets import lead
from streamomd.rules.common.weighted_balls import NONE, Ball
from streamomd.rules.contract import Losses, Max, Observe, Row, RowHooks, Rule, Saved, Slots, Sum
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


class Move(NamedTuple):
    g: float
    a: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.b, abs(x))), ()


def weight(own: Any, shared: Shared, totals: object, clock: float, h: Hyper) -> float:
    H = delta_of(shared, h) + math.sqrt(own.G)
    return lead(h.eta * own.theta, H, h.eta * (clock - 1.0), h.l1, h.l2, h.box)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, -g), totals


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.a * factor)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    return Own(own.theta + move.a * x, own.G + z * z)


def older(saved: Saved) -> str:
    """Version 1 computed b without the importance, which matters where delta is 0."""
    counts = saved.weighted and saved.params["delta"] == 0.0
    return "b does not count importances" if counts else ""


RULE = averaging_certified(
    Rule(
        name="adagrad_da",
        title="adaptive gradient, diagonal, dual averaging: L1 with weights that are exactly 0",
        source="Duchi, Hazan & Singer 2011, equation 5",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, shared=Shared, version=2, older=older, curvature="G"),
        observe=Observe(observe, weighted=True),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(lipschitz="L"),
        row=RowHooks(stretch=stretch),
    )
)
