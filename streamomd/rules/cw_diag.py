r"""Confidence-weighted learning, diagonal (Crammer, Dredze & Pereira 2008; Dredze et al. 2008).

A Gaussian over weights, mean mu and variances Sigma_i = 1 / (1 / a + S_i). The weights are mu. The
row requires its label with probability ``confidence``; with phi its normal quantile,
V = sum Sigma_i x_i^2 and M = y <mu, x>, that is M >= phi sqrt(V) (form "stdev"), or M >= phi V in
the older form ("variance"). Where it does not hold, the nearest Gaussian that meets it with
equality, by relative entropy and for a diagonal covariance:

    mu_i += alpha y Sigma_i x_i,    S_i += c x_i^2,
    stdev:    alpha = (-M psi + sqrt(M^2 phi^4 / 4 + V phi^2 zeta)) / (V zeta), c = alpha phi / rho,
              psi = 1 + phi^2 / 2, zeta = 1 + phi^2,
              rho = (-alpha V phi + sqrt(alpha^2 V^2 phi^2 + 4 V)) / 2;
    variance: alpha = (-b + sqrt(b^2 - 8 phi (M - phi V))) / (4 phi V), b = 1 + 2 phi M,
              c = 2 alpha phi;

alpha and rho are computed without the cancellation that these hold. A condition has no weight: a
row of importance 0 is skipped, any other importance counts as 1. Where labels contradict each
other the variances of "stdev" fall without end, the faster the larger ``confidence``; they stop at
1e-100, so that no number overflows. O(nnz) a row; the papers prove no bound. Choose it for sparse
data with clean labels; with noisy ones AROW errs less, because this rule fits every row.

>>> from streamomd.training.demo import score
>>> score("cw_diag"), score("cw_diag", form="variance")
(0.138, 0.118)
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, NamedTuple

from streamomd.rules.contract import Certificate, Losses, Max, Mean, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Between, Choice, Positive
from streamomd.rules.ranges import NORMS

STDEV = 0.0
FINEST = 1e100  # the largest S_i
LARGE = 1e200


class Hyper(NamedTuple):
    confidence: Annotated[float, Between(0.5, 1.0, closed=False)] = 0.65
    a: Positive = 1.0
    form: Annotated[float, Choice(("stdev", "variance"))] = STDEV


class Own(NamedTuple):
    mu: Mean = 0.0
    S: Sum = 0.0


class Totals(NamedTuple):
    phi: Max = 0.0


class Move(NamedTuple):
    alpha: float
    c: float


def begin(d: float, h: Hyper) -> Totals:
    return Totals(NormalDist().inv_cdf(h.confidence))


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return own.mu


def terms(
    own: Own, shared: object, x: float, totals: Totals, clock: float, h: Hyper
) -> tuple[float]:
    return (x * x / (1.0 / h.a + own.S),)


def stdev(M: float, V: float, phi: float) -> tuple[float, float]:
    """alpha and c where M < phi sqrt(V)."""
    psi, zeta = 1.0 + phi * phi / 2.0, 1.0 + phi * phi
    root = math.sqrt(M * M * phi * phi * phi * phi / 4.0 + V * phi * phi * zeta)
    if M > 0.0:
        spread = phi * math.sqrt(V)
        alpha = (spread - M) * (spread + M) / (V * (M * psi + root))
    else:
        alpha = (root - M * psi) / (V * zeta)
    b = alpha * V * phi
    return alpha, alpha * phi * (b + math.sqrt(b * b + 4.0 * V)) / (2.0 * V)


def variance(M: float, V: float, phi: float) -> tuple[float, float]:
    """alpha and c where M < phi V."""
    b = 1.0 + 2.0 * phi * M
    lack = phi * V - M
    root = math.sqrt(b * b + 8.0 * phi * lack)
    alpha = 2.0 * lack / (V * (b + root)) if b > 0.0 else (root - b) / (4.0 * phi * V)
    return alpha, 2.0 * alpha * phi


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    M, V, phi = row.y * row.margin, row.r[0], totals.phi
    wanted = phi * math.sqrt(V) if h.form == STDEV else phi * V
    if wanted > M and V > 0.0 and row.importance > 0.0:
        alpha, c = stdev(M, V, phi) if h.form == STDEV else variance(M, V, phi)
        return alpha != 0.0, Move(alpha * row.y, min(c, LARGE)), totals
    return False, Move(0.0, 0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    mu = own.mu + move.alpha * (x / (1.0 / h.a + own.S))
    return Own(mu, min(own.S + move.c * (x * x), FINEST))


RULE = Rule(
    name="cw_diag",
    title="confidence-weighted, diagonal: sparse data with clean labels",
    source="Crammer, Dredze & Pereira 2008; Dredze, Crammer & Pereira 2008",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, begin=begin, weight="mu", degrees=(("S", 2),)),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="presence", range=NORMS, gathers=1, terms=terms),
    certificate=Certificate(reason="its papers prove no bound"),
)
