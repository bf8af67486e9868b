"""Certificates of laplace and auto with the square loss: regret of online ridge regression.

After every row, B's w minimizes the sum of h (y - <u, x>)^2 / 2 over the rows so far plus R(u), the
prior of the reference of that time,

    R(u) = (lam_bias v_0^2 + lam sum_j v_j^2) / 2,    v_j = u_j s_j,  v_0 = u_0 + <u, c> - c_y.

A row adds h (y - m)^2 / (1 + h chi) / 2 to the least value, and a change of reference, which
replaces R by another one, takes away a number that it adds to the account ``moved``. The least
value at the end is at most the loss of u plus R(u): so, with p what was predicted,

    regret <= R(u) + sum of ((y - p)^2 - (y - m)^2 / (1 + h chi)) h / 2 + moved,

with equality where u is w. The second claim follows from h chi / (1 + h chi) <= log(1 + h chi), and
the largest h (y - p)^2 between two changes of reference. That p is a mixture, or clipped to a range
of the labels, is in the account ``excess``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.rules.certificates.accounts import certified, joined
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.standardized import Accounts
from streamomd.rules.contract import Rule

SOURCE = "Azoury & Warmuth 2001, section 4; Vovk 2001"
OTHERS = (
    "its theorem is ridge regression's, for the square loss: the curvature of log loss vanishes "
    "far from the minimum, and other losses are learned by AdaGrad on a reference that changes"
)
C, S = 2, 3  # rows of the reference


def ridge_claims(run: Run) -> list[Claim]:
    """Raises ValueError for runs that the identity is not about."""
    _refuse(run)
    totals, regret = run.totals, run.loss - run.loss_u
    rest = prior_of(run) + totals["excess"] + totals["moved"]
    last = totals["steepest"] * (totals["volume"] - totals["mark"])
    volume = 0.5 * (totals["past"] + last)
    return [
        Claim("regret", regret, rest + 0.5 * totals["cost"], SOURCE),
        Claim("regret, by the volume", regret, rest + volume, SOURCE),
    ]


def _refuse(run: Run) -> None:
    A, places = run.extra["A"], run.extra["places"]
    if run.totals["volume"] == 0.0 and run.rows > 1:
        raise ValueError("it is proven for one learner, and there is one for each class")
    if A.shape[1] < A.shape[0]:
        raise ValueError(
            f"its {len(places)} coordinates are learned in groups, which do not know of each other"
        )
    outside = (run.shared["n"] > 0.0) & (run.shared["place"] == 0.0)
    if outside.any():
        raise ValueError(
            f"{np.count_nonzero(outside):,} coordinates are outside of the block of {len(places)}, "
            "where a diagonal stands for the matrix (a larger model.params.block, up to 256, may "
            "hold all)"
        )


def prior_of(run: Run) -> float:
    """R(u), by the last reference."""
    places, totals = run.extra["places"], run.totals
    reference = run.extra["reference"][:, : len(places)]
    front = (places > 0) | (np.arange(len(places)) == 0)
    u, c, s = np.asarray(run.u)[places[front]], reference[C, front], reference[S, front]
    v = u[1:] * s[1:]
    bias = u[0] + float(u[1:] @ c[1:]) - totals["c_y"]
    return float(0.5 * (totals["lam_bias"] * bias * bias + totals["lam"] * float(v @ v)))


def ridge_certified(rule: Rule) -> Rule:
    """A rule with a block, its form with accounts and their claims."""
    totals: Any = joined(rule.state.totals, Accounts)
    certificate = replace(rule.certificate, losses=("square",), reason=OTHERS)
    rule = replace(rule, certificate=certificate)
    accounted = replace(rule, state=replace(rule.state, totals=totals))
    return certified(rule, ridge_claims, accounted)
