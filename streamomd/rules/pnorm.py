r"""p-norm Perceptron (P2, section 4; P0, section 6.1).

f(w) = ||w||_q^2 / 2 with 1/p + 1/q = 1, p >= 2. On a mistake, y yhat <= 0,

    theta <- theta + C y x,    w = grad f*(theta):
    w_i = ||theta||_p sign(theta_i) (|theta_i| / ||theta||_p)^(p-1).

C (times the row's importance) changes no prediction's sign. O(nnz) a row: beside theta its
(p-1)-th power is kept, and the sum of p-th powers over all coordinates.

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

from dataclasses import replace
from typing import NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import (
    PNORM,
    Power,
    complexity,
    conjugate,
    factor,
    few_mistakes,
    first,
    image,
    norm,
    share,
    unfit,
)
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
    steps: Sum = 0.0  # of h C on mistakes


class Accounts(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    scale: Max = 0.0
    at: Max = 0.0
    steps: Sum = 0.0
    longest: Max = 0.0  # h ||x||_p^2 of a mistake


class Move(NamedTuple):
    a: float
    ref: float
    p: float


def prepare(q: object, totals: Totals, clock: float, h: Hyper) -> Totals:
    scale = factor(PNORM, totals.S, totals.ref, 1.0, h.p)
    return Totals(totals.S, totals.ref, scale, clock, totals.steps)


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    if totals.at == clock:
        return totals.scale * own.a
    return factor(PNORM, totals.S, totals.ref, 1.0, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if row.y * row.margin > 0.0 or row.importance == 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    a = row.importance * h.C
    ref = first(PNORM, totals.ref, a)
    found = Totals(totals.S, ref, totals.scale, totals.at, totals.steps + a)
    return a != 0.0, Move(a * row.y, ref, h.p), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    return Own(theta, image(PNORM, theta, move.ref, 0.0, move.p)[0])


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (own.a * own.theta / totals.ref if totals.ref > 0.0 else 0.0,)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return unfit(PNORM, totals.S, totals.ref)


def peak(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return abs(own.theta)


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    return Totals(totals.S, peak, 0.0, 0.0, totals.steps)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(own.theta, image(PNORM, own.theta, totals.ref, 0.0, h.p)[0])


def live(totals: Totals, clock: float, h: Hyper) -> float:
    return totals.steps - conjugate(PNORM, totals.S, totals.ref, 1.0, 1.0, h.p)


def observe(
    shared: tuple[()], x: float, clock: float, h: Hyper
) -> tuple[tuple[()], tuple[float, float, float]]:
    return shared, share(x, h.p)


def accounted_prepare(q: object, totals: Accounts, clock: float, h: Hyper) -> Accounts:
    scale = factor(PNORM, totals.S, totals.ref, 1.0, h.p)
    return Accounts(totals.S, totals.ref, scale, clock, totals.steps, totals.longest)


def accounted_rebase(totals: Accounts, peak: float, clock: float, h: Hyper) -> Accounts:
    return Accounts(totals.S, peak, 0.0, 0.0, totals.steps, totals.longest)


def accounted_step(
    row: Row, totals: Accounts, clock: float, h: Hyper
) -> tuple[bool, Move, Accounts]:
    if row.y * row.margin > 0.0 or row.importance == 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    a = row.importance * h.C
    ref = first(PNORM, totals.ref, a)
    length = norm(row.q[0], row.q[1], row.q[2], h.p)
    longest = max(totals.longest, row.importance * length * length)
    found = Accounts(totals.S, ref, totals.scale, totals.at, totals.steps + a, longest)
    return a != 0.0, Move(a * row.y, ref, h.p), found


def certificate(run: Run) -> list[Claim]:
    h, totals, loss = run.h, run.totals, run.hinge_u(1.0)
    dual = totals["steps"] - conjugate(PNORM, totals["S"], totals["ref"], 1.0, 1.0, h.p)
    f = complexity(PNORM, run.u, 1.0, h.p)
    claims = [Claim("dual value", dual, f + h.C * loss, f"{SOURCE}, theorem 1")]
    if "longest" in totals:
        bound = few_mistakes(loss, 2.0 * f * (h.p - 1.0) * totals["longest"])
        claims.append(Claim("mistakes", totals["steps"] / h.C, bound, f"{SOURCE}, theorem 2"))
    return claims


SOURCE = "Shalev-Shwartz & Singer 2006"
SUMS = CoordinateSums(mass=mass, stale=stale, peak=peak, rebase=rebase, refresh=refresh)
PLAIN = Rule(
    name="pnorm",
    title="p-norm Perceptron: dense rows, few features that matter",
    source=f"{SOURCE}, section 4",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="updates", prepare=prepare),
    sums=SUMS,
    certificate=Certificate(claims=certificate, live=live, live_name="dual"),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        accounted=replace(
            PLAIN,
            state=replace(PLAIN.state, totals=Accounts),
            observe=Observe(observe, sums=3),
            step=accounted_step,
            row=replace(PLAIN.row, prepare=accounted_prepare),
            sums=replace(SUMS, rebase=accounted_rebase),
        ),
    ),
)
