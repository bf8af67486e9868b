r"""Aggressive dual step (P2, section 5, equation 28), with any of four links.

w = grad f*(theta), f by ``link``: ||.||_2^2 / 2 (l2), relative entropy on the simplex (winnow) or
with both signs (eg, ||w||_1 <= U), ||.||_q^2 / 2 with 1/p + 1/q = 1 (pnorm). When the hinge loss
l = [gamma - y yhat]_+ is positive,

    a = min(l / k_t, C),    theta <- theta + a y x,

with the row's importance multiplying C. k_t bounds x'Hx, H the Hessian of f*: ||x||_2^2 for l2,
||x||^2 for winnow, U ||x||^2 for eg, (p-1) ||x||_p^2 for pnorm; P2 assumes k_t = 1. For winnow and
eg the norm is the largest entry's size. O(nnz) a row. With link pnorm, (abs(x) / 1e8)^p has to be
finite.

Certificates, for any u (legal for the link), L(u) its summed hinge loss: the dual value
D = gamma sum of a - f*(theta) and the sum of a l - k_t a^2 / 2 are at most f(u) + C L(u) (theorems
1, 3); so there are at most (f(u) + C L(u)) / r mistakes, each of which raised D by r or more. The
dual value is in the progress line.

l2 is `pa1` with a margin of gamma. Choose another link for the data that suit `winnow`, `eg` or
`pnorm`.

>>> from streamomd.training.demo import score
>>> score("dual_step"), score("dual_step", link="eg", C=0.01)
(0.264, 0.216)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.link_bounds import step_certified
from streamomd.rules.common.linked import observe_shares
from streamomd.rules.common.links import (
    L2,
    Link,
    Power,
    base_of,
    curvature,
    factor,
    first,
    image,
    length,
)
from streamomd.rules.contract import Coords, Losses, Max, Mean, Observe, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive
from streamomd.rules.ranges import NORMS


class Hyper(NamedTuple):
    link: Link = L2
    C: Positive = 1.0
    gamma: Positive = 1.0
    U: Positive = 10.0
    p: Power = 4.0


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # of theta and ref: see links
    b: Mean = 0.0


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    n: Max = 0.0  # all coordinates
    scale: Max = 0.0  # w = scale * a in row ``at``
    at: Max = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    base: float
    link: float
    p: float
    kappa: float


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    if totals.at == clock:
        return totals.scale * own.a
    return factor(h.link, totals.S, totals.ref, h.U, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    loss, cap = h.gamma - row.y * row.margin, row.importance * h.C
    if not (loss > 0.0 and cap > 0.0):
        return False, Move(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), totals
    kappa = curvature(h.link, length(h.link, row.q, h.p), h.U, h.p)
    a = loss / kappa if kappa * cap > loss else cap
    ref = first(h.link, totals.ref, a)
    move = Move(a * row.y, ref, base_of(h.link, ref), h.link, h.p, kappa)
    found = Totals(S=totals.S, ref=ref, n=totals.n, scale=totals.scale, at=totals.at)
    return a != 0.0, move, found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    a, b = image(move.link, theta, move.ref, move.base, move.p)
    return Own(theta, a, b)


RULE = step_certified(
    Rule(
        name="dual_step",
        title="aggressive dual step: PA-I's step with the link of Winnow, EG or p-norm",
        source="Shalev-Shwartz & Singer 2006, section 5, equation 28",
        hyper=Hyper,
        # Until version 1 the 64-norm stood for the largest entry; the slots are the same.
        state=Slots(move=Move, own=Own, totals=Totals, version=2),
        observe=Observe(observe_shares, sums=4, maxima=1),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="cap", range=NORMS),
    )
)
