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

It is never above the Perceptron's, for the share of c of a margin error with an update is at most
twice that of e. Choose it as `pa1` without a parameter; p > 2 for dense rows of which few features
matter.

>>> from streamomd.training.demo import score
>>> score("aggressive"), score("aggressive", p=4.0)
(0.249, 0.259)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.link_bounds import aggressive_certified
from streamomd.rules.common.linked import observe_share, pnorm_weight
from streamomd.rules.common.links import PNORM, Power, first, image, norm
from streamomd.rules.contract import Coords, Losses, Max, Mean, Observe, Row, RowHooks, Rule, Slots


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


class Move(NamedTuple):
    a: float
    ref: float
    p: float
    eta: float  # for the certificate


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    ref, length = totals.ref, norm(row.q[0], row.q[1], row.q[2], h.p)
    X, m = max(totals.X, length), row.y * row.margin
    eta = 0.0
    if m <= 0.0:
        eta = 1.0
    elif row.loss > 0.0 and length > 0.0:
        part = m / (h.p - 1.0) / length / length
        eta = min(max((X / length) * (X / length) - part, 0.0), 1.0)
    a = row.importance * eta
    if a > 0.0 and length > 0.0:
        ref = first(PNORM, ref, a)
    found = Totals(S=totals.S, ref=ref, scale=totals.scale, at=totals.at, X=X)
    return a != 0.0, Move(a * row.y, ref, h.p, eta), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    return Own(theta, image(PNORM, theta, move.ref, 0.0, move.p)[0])


RULE = aggressive_certified(
    Rule(
        name="aggressive",
        title="optimal aggressive Perceptron: updates on margin errors too, nothing to tune",
        source="Orabona, Crammer & Cesa-Bianchi, corollary 2",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, totals=Totals),
        observe=Observe(observe_share, sums=3),
        weight=pnorm_weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="step"),
    )
)
