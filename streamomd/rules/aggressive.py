r"""Optimal aggressive Perceptron (P0, corollary 2 and the text after it).

f(w) = ||w||_q^2 / 2 with 1/p + 1/q = 1, p >= 2, b = 1 / (p-1); w = grad f*(theta) as in `pnorm`.
With X_t = max ||x_s||_p over the rows so far, this one too, and a positive hinge loss,

    eta_t = clip((X_t^2 - b y yhat) / ||x||_p^2, 0, 1),    theta <- theta + eta_t y x:

on a mistake the Perceptron's step, on a margin error the one that makes the bound least. The row's
importance multiplies the step. O(nnz) a row.

Certificate, corrected (equation 21; as printed corollary 2 is false, where margin errors lower the
bound below what is possible). With h the importance, Y_t^2 = max h ||x||_p^2 so far, sums over the
margin errors e = sum h eta, c = sum h eta (h eta ||x||_p^2 + 2 b y yhat) / Y_t^2, and for any u
k = 2 f(u) Y^2 / b, L(u) its summed hinge loss:

    mistakes <= L(u) - e + k/2 + sqrt(k) sqrt(k/4 + L(u) + c - e).

It is never above the Perceptron's, for each margin error that teaches has its share of c at most
twice that of e. Choose it as `pa1` without a parameter; p > 2 for dense rows of which few features
matter.

>>> from streamomd.training.demo import score
>>> score("aggressive"), score("aggressive", p=4.0)
(0.249, 0.259)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import (
    PNORM,
    Power,
    complexity,
    factor,
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


class Hyper(NamedTuple):
    p: Power = 2.0


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # of theta and ref: see links


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    scale: Max = 0.0  # w = scale * a in row ``at``
    at: Max = 0.0
    X: Max = 0.0
    Y2: Max = 0.0
    mistakes: Sum = 0.0
    e: Sum = 0.0
    c: Sum = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    p: float


def observe(
    shared: tuple[()], x: float, clock: float, h: Hyper
) -> tuple[tuple[()], tuple[float, float, float]]:
    return shared, share(x, h.p)


def prepare(q: object, totals: Totals, clock: float, h: Hyper) -> Totals:
    S, ref, _, _, X, Y2, mistakes, e, c = totals
    return Totals(S, ref, factor(PNORM, S, ref, 1.0, h.p), clock, X, Y2, mistakes, e, c)


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    if totals.at == clock:
        return totals.scale * own.a
    return factor(PNORM, totals.S, totals.ref, 1.0, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    S, ref, scale, at, X, Y2, mistakes, e, c = totals
    length = norm(row.q[0], row.q[1], row.q[2], h.p)
    X = max(X, length)
    Y2 = max(Y2, row.importance * length * length)
    m, weighs = row.y * row.margin, row.importance
    eta = 0.0
    if m <= 0.0:
        eta = 1.0
        mistakes += weighs
    elif row.loss > 0.0 and length > 0.0:
        part = m / (h.p - 1.0) / length / length
        eta = min(max((X / length) * (X / length) - part, 0.0), 1.0)
        if weighs > 0.0:
            e += weighs * eta
            ratio = weighs * length * length / Y2  # at most 1
            c += eta * ratio * (weighs * eta + 2.0 * part)
    a = weighs * eta
    if a > 0.0 and length > 0.0:
        ref = first(PNORM, ref, a)
    return a != 0.0, Move(a * row.y, ref, h.p), Totals(S, ref, scale, at, X, Y2, mistakes, e, c)


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
    S, _, _, _, X, Y2, mistakes, e, c = totals
    return Totals(S, peak, 0.0, 0.0, X, Y2, mistakes, e, c)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(own.theta, image(PNORM, own.theta, totals.ref, 0.0, h.p)[0])


def bounds(loss: float, kappa: float, e: float, c: float) -> tuple[float, float]:
    """Equation 21, and the simple form without its square root of a sum."""
    inside = max(0.25 * kappa + loss + c - e, 0.0)
    sharp = loss - e + 0.5 * kappa + math.sqrt(kappa * inside)
    return sharp, loss + max(c - e, 0.0) - e + kappa + math.sqrt(kappa * loss)


def certificate(run: Run) -> list[Claim]:
    totals, p = run.totals, run.h.p
    kappa = 2.0 * complexity(PNORM, run.u, 1.0, p) * totals["Y2"] * (p - 1.0)
    sharp, simple = bounds(run.hinge_u(1.0), kappa, totals["e"], totals["c"])
    mistakes = totals["mistakes"]
    return [
        Claim("mistakes", mistakes, sharp, f"{SOURCE}, equation 21"),
        Claim("mistakes, simple form", mistakes, simple, f"{SOURCE}, corollary 2, corrected"),
    ]


SOURCE = "Orabona, Crammer & Cesa-Bianchi"
RULE = Rule(
    name="aggressive",
    title="optimal aggressive Perceptron: margin errors teach too, nothing to tune",
    source=f"{SOURCE}, corollary 2",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals),
    observe=Observe(observe, sums=3),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="step", prepare=prepare),
    sums=CoordinateSums(mass=mass, stale=stale, peak=peak, rebase=rebase, refresh=refresh),
    certificate=Certificate(claims=certificate),
)
