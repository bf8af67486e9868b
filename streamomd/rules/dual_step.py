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

l2 is `pa1` with a margin of gamma. The other links bring the same care to the data that `winnow`,
`eg` and `pnorm` are for.

>>> from streamomd.training.demo import score
>>> score("dual_step"), score("dual_step", link="eg", C=0.01)
(0.264, 0.216)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import (
    L2,
    Link,
    Power,
    base_of,
    complexity,
    conjugate,
    curvature,
    factor,
    first,
    height,
    image,
    legal,
    length,
    rise,
    shares,
    unfit,
)
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import (
    Certificate,
    CoordinateSums,
    Coords,
    Losses,
    Max,
    Mean,
    Observe,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
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
    steps: Sum = 0.0
    rises: Sum = 0.0  # of a l - k a^2 / 2
    mistakes: Sum = 0.0
    hardest: Max = 0.0  # h / least rise of the dual on a mistake


class Move(NamedTuple):
    a: float
    ref: float
    base: float
    link: float
    p: float


def begin(d: float, h: Hyper) -> Totals:
    return Totals(n=d)


def observe(
    shared: tuple[()], x: float, clock: float, h: Hyper
) -> tuple[tuple[()], tuple[float, float, float, float]]:
    return shared, shares(h.link, x, h.p)


def prepare(q: object, totals: Totals, clock: float, h: Hyper) -> Totals:
    S, ref, n, _, _, steps, rises, mistakes, hardest = totals
    scale = factor(h.link, S, ref, h.U, h.p)
    return Totals(S, ref, n, scale, clock, steps, rises, mistakes, hardest)


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    if totals.at == clock:
        return totals.scale * own.a
    return factor(h.link, totals.S, totals.ref, h.U, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    loss, cap = h.gamma - row.y * row.margin, row.importance * h.C
    if not (loss > 0.0 and cap > 0.0):
        return False, Move(0.0, 0.0, 0.0, 0.0, 0.0), totals
    kappa = curvature(h.link, length(h.link, row.q, h.p), h.U, h.p)
    a = loss / kappa if kappa * cap > loss else cap
    S, ref, n, scale, at, steps, rises, mistakes, hardest = totals
    ref = first(h.link, ref, a)
    rises += a * (loss - 0.5 * kappa * a)
    if row.y * row.margin <= 0.0:
        mistakes += row.importance
        hardest = max(hardest, row.importance / rise(kappa, cap, h.gamma))
    found = Totals(S, ref, n, scale, at, steps + a, rises, mistakes, hardest)
    return a != 0.0, Move(a * row.y, ref, base_of(h.link, ref), h.link, h.p), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    a, b = image(move.link, theta, move.ref, move.base, move.p)
    return Own(theta, a, b)


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (own.b,)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return unfit(h.link, totals.S, totals.ref)


def peak(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return height(h.link, own.theta)


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    S, _, n, _, _, steps, rises, mistakes, hardest = totals
    return Totals(S, peak, n, 0.0, 0.0, steps, rises, mistakes, hardest)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    a, b = image(h.link, own.theta, totals.ref, base_of(h.link, totals.ref), h.p)
    return Own(own.theta, a, b)


def dual(S: float, ref: float, n: float, steps: float, h: Hyper) -> float:
    return h.gamma * steps - conjugate(h.link, S, ref, n, h.U, h.p)


def live(totals: Totals, clock: float, h: Hyper) -> float:
    return dual(totals.S, totals.ref, totals.n, totals.steps, h)


def certificate(run: Run) -> list[Claim]:
    h, totals = run.h, run.totals
    bound = complexity(h.link, run.u, h.U, h.p) + h.C * run.hinge_u(h.gamma)
    value = dual(totals["S"], totals["ref"], totals["n"], totals["steps"], h)
    mistakes = bound * totals["hardest"]
    return [
        Claim("rises of the dual", totals["rises"], bound, f"{SOURCE}, theorem 3"),
        Claim("dual value", value, bound, f"{SOURCE}, theorem 1"),
        Claim("mistakes", totals["mistakes"], mistakes, f"{SOURCE}, theorem 1"),
    ]


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return legal(h.link, h.U)


SOURCE = "Shalev-Shwartz & Singer 2006"
RULE = Rule(
    name="dual_step",
    title="aggressive dual step: PA-I's care with the link of Winnow, EG or p-norm",
    source=f"{SOURCE}, section 5, equation 28",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, version=2, begin=begin),
    observe=Observe(observe, sums=4, maxima=1),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="cap", range=NORMS, prepare=prepare),
    sums=CoordinateSums(mass=mass, stale=stale, peak=peak, rebase=rebase, refresh=refresh),
    certificate=Certificate(claims=certificate, feasible=feasible, live=live, live_name="dual"),
)
