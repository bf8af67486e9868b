r"""p-norm Perceptron (P2, section 4; P0, section 6.1).

f(w) = ||w||_q^2 / 2 with 1/p + 1/q = 1, p >= 2. On a mistake, y yhat <= 0,

    theta <- theta + C y x,    w = grad f*(theta):
    w_i = ||theta||_p sign(theta_i) (|theta_i| / ||theta||_p)^(p-1).

C (times the row's importance) changes no prediction's sign. O(nnz) a row: the state is
theta, its (p-1)-th power, and the sum of p-th powers over all coordinates.

Certificates, for any u, L(u) its summed hinge loss and h the importance: the dual value
D = sum of the steps - ||theta||_p^2 / 2 is at most ||u||_q^2 / 2 + C L(u) (P2, theorem 1), and with
k = (p-1) ||u||_q^2 max h ||x||_p^2 there are at most L(u) + k/2 + sqrt(k^2 + 4 k L(u)) / 2 mistakes
(theorem 2; it needs ``model.certificate``). The dual value is in the progress line.

p = 2 is the Perceptron. Larger p, up to 2 ln d, suits dense rows of which few features matter. A
whole p is faster than another.

>>> from streamomd.training.demo import score
>>> score("pnorm", p=2.0), score("pnorm")
(0.259, 0.269)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.link_bounds import pnorm_certified
from streamomd.rules.common.linked import pnorm_weight
from streamomd.rules.common.links import PNORM, Power, first, image
from streamomd.rules.contract import Coords, Losses, Max, Mean, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    p: Power = 4.0
    C: Positive = 1.0


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # of theta and ref: see links


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    scale: Max = 0.0  # w = scale * a in row ``at``
    at: Max = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    p: float


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if row.y * row.margin > 0.0 or row.importance == 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    a = row.importance * h.C
    ref = first(PNORM, totals.ref, a)
    found = Totals(S=totals.S, ref=ref, scale=totals.scale, at=totals.at)
    return a != 0.0, Move(a * row.y, ref, h.p), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    return Own(theta, image(PNORM, theta, move.ref, 0.0, move.p)[0])


RULE = pnorm_certified(
    Rule(
        name="pnorm",
        title="p-norm Perceptron: dense rows, few relevant features",
        source="Shalev-Shwartz & Singer 2006, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, totals=Totals),
        weight=pnorm_weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="updates"),
    )
)
