r"""Confidence-weighted learning (Crammer, Dredze & Pereira 2008; Dredze, Crammer & Pereira 2008).

A Gaussian over weights, mean mu and covariance Sigma = A^-1, A_0 = I / a. The weights are mu. The
row requires its label with probability ``confidence``; with phi its normal quantile,
V = <x, Sigma x> and M = y <mu, x>, that is M >= phi sqrt(V) (form "stdev"; exact and convex), or
M >= phi V in the older form ("variance"). Where it does not hold, the nearest Gaussian by relative
entropy that meets it, with equality:

    mu <- mu + alpha y Sigma x,    A <- A + c x x',

alpha and c as in ``cw_diag``. A condition has no weight: a row of importance 0 is skipped, any
other importance counts as 1. No bound is proven, and labels that contradict each other make Sigma
fall without end (c stops at 1e100). O(d^2) on an update. For clean labels; else ``arow``.

>>> from streamomd.training.demo import score
>>> score("cw")
0.139
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from streamomd.rules.common.full_matrix import LIMIT, Limit, Move, Own, largest, update, weight
from streamomd.rules.contract import Certificate, Losses, Matrix, Row, RowHooks, Rule, Slots
from streamomd.rules.cw_diag import FINEST, STDEV, Totals, begin, stdev, variance
from streamomd.rules.params import Between, Choice, Positive
from streamomd.rules.ranges import NORMS

FLAT = 1e-200  # a variance that nothing is divided by


class Hyper(NamedTuple):
    confidence: Annotated[float, Between(0.5, 1.0, closed=False)] = 0.65
    a: Positive = 1.0
    form: Annotated[float, Choice(("stdev", "variance"))] = STDEV
    limit: Limit = LIMIT


def start_scale(h: Hyper) -> float:
    return 1.0 / h.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    m, V = row.r
    M, phi = row.y * m, totals.phi
    wanted = phi * math.sqrt(V) if h.form == STDEV else phi * V
    if wanted > M and V > FLAT and row.importance > 0.0:
        alpha, c = stdev(M, V, phi) if h.form == STDEV else variance(M, V, phi)
        return True, Move(alpha * row.y, min(c, FINEST)), totals
    return False, Move(0.0, 0.0), totals


RULE = Rule(
    name="cw",
    title="confidence-weighted: each row is to be right with a given probability",
    source="Crammer, Dredze & Pereira 2008; Dredze, Crammer & Pereira 2008",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, begin=begin, weight="mu"),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="presence", range=NORMS),
    storage=Matrix(largest, start_scale=start_scale),
    certificate=Certificate(reason="its papers prove no bound"),
)
