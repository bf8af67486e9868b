"""Certificates of ons, vaw and rls: regret and squared errors, with a full matrix.

The engine stores A^-1 as U D U' (see ``engine.loops.matrix``): a quadratic form of A is a
triangular solve, its determinant a product.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import Max, Row, Rule, Sum

EPSILON = float(np.finfo(np.float64).eps)
NONE = 0.0  # the ball of ``ons``


class Newton(NamedTuple):
    cost: Sum = 0.0  # of g^2 <x, A_t^-1 x>
    steepest: Max = 0.0  # of h slope^2, the square loss's h (y - yhat)^2
    widest: Max = 0.0  # of abs(yhat)
    heaviest: Max = 0.0  # of h


class Foreseen(NamedTuple):
    cost: Sum = 0.0  # of h y^2 h <x, A_t^-1 x>
    Y: Max = 0.0  # of h y^2
    extra: Sum = 0.0  # of h / 2 times the change of (y - yhat)^2 by not knowing h


class Errors(NamedTuple):
    error: Sum = 0.0  # of h (y - yhat)^2 / (1 + h chi)


def form(run: Run, u: Any, start: float) -> float:
    """u'A u, where A started as ``start`` times the identity."""
    from scipy.linalg import solve_triangular  # not needed to learn: a start is faster without

    upper, diagonal = _factors(run)
    z = solve_triangular(upper, u, unit_diagonal=True, check_finite=False)
    return float(start * np.sum(z * z / diagonal))


def log_volume(run: Run) -> float:
    """ln det(A / start), and what it may have lost by rounding.

    A row of which g^2 <x, A^-1 x> is below 1e-16 leaves A as it is: were that not added, bounds
    that multiply the volume with the length of a long u would be below what is measured.
    """
    diagonal = _factors(run)[1]
    rounding = 4.0 * EPSILON * len(diagonal) * (run.rows + 1.0)
    return float(-np.log(diagonal).sum()) + rounding


def _factors(run: Run) -> tuple[Any, Any]:
    stored = np.asarray(run.extra["matrix"])
    return np.tril(stored, -1).T + np.eye(len(stored)), np.diagonal(stored)


def _newton(row: Row, totals: Newton, active: bool, move: Any, clock: float, h: Any) -> Newton:
    if row.importance == 0.0:
        return totals
    g = row.importance * row.slope
    growth = g * g * row.r[1]
    return Newton(
        cost=totals.cost + growth / (1.0 + growth),
        steepest=max(totals.steepest, g * row.slope),
        widest=max(totals.widest, abs(row.margin)),
        heaviest=max(totals.heaviest, row.importance),
    )


def ons_claims(run: Run) -> list[Claim]:
    h, totals, u = run.h, run.totals, np.asarray(run.u)
    if h.implicit:
        raise ValueError("it is proven for explicit steps")
    if math.isnan(run.lipschitz):
        if h.gamma * totals["steepest"] > 1.0:
            most = 1.0 / totals["steepest"]
            raise ValueError(f"gamma h (y - yhat)^2 came to more than 1: gamma <= {most:.3g} would")
    else:
        widest = max(totals["widest"], run.widest_u)
        most = math.exp(-widest) / max(totals["heaviest"], 1e-300)
        if h.gamma > most:
            flags = suggestion(h, run.longest(), totals["heaviest"])
            raise ValueError(
                f"with margins of up to {widest:.3g} it is proven for gamma <= {most:.3g}, not for "
                f"{h.gamma:g}; a smaller gamma alone takes longer steps: train with {flags} for a "
                "claim on these rows"
            )
    ridge = 0.5 * h.gamma * h.epsilon * float(u @ u)
    regret, source = run.loss - run.loss_u, "Hazan, Agarwal & Kale 2007, theorem 2"
    return [
        Claim("regret", regret, ridge + totals["cost"] / (2.0 * h.gamma), source),
        Claim("regret, by the volume", regret, ridge + log_volume(run) / (2.0 * h.gamma), source),
    ]


def suggestion(h: Any, longest: float, heaviest: float) -> str:
    """Flags with which every run over rows of ||x||^2 <= longest has a claim (logistic loss).

    In a ball of this radius no margin is beyond B = radius max ||x||, and gamma h <= exp(-B). The
    radius is the run's own, or the one that makes B = 1.
    """
    length = math.sqrt(longest)
    own = h.ball != NONE and h.radius > 0.0
    radius = h.radius if own else _rounded_down(1.0 / max(length, 1e-300))
    gamma = _rounded_down(math.exp(-radius * length) / max(heaviest, 1e-300))
    ball = "" if own else f"--set model.params.ball=l2 --set model.params.radius={radius:.3g} "
    return f"{ball}--set model.params.gamma={gamma:.3g}"


def _rounded_down(value: float) -> float:
    """The number of three digits that is not above the value."""
    near = float(f"{value:.2e}")
    digit = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0.0 else 0.0
    return near if near <= value else float(f"{near - digit:.2e}")


def ons_set(slots: Any, h: Any) -> ComparatorSet:
    return weighted_balls.feasible(
        weighted_balls.NONE if h.ball == NONE else weighted_balls.L2, h.radius
    )


def ons_certified(rule: Rule) -> Rule:
    """The online Newton step with its sums and certificate."""
    return certified(with_accounts(rule, totals=Newton, step=_newton), ons_claims)


def _foreseen(
    row: Row, totals: Foreseen, active: bool, move: Any, clock: float, h: Any
) -> Foreseen:
    m, chi = row.r
    times = row.importance
    square = times * row.y * row.y
    best = m / (1.0 + times * chi)
    off = row.margin - best
    return Foreseen(
        cost=totals.cost + square * (times * chi / (1.0 + times * chi)),
        Y=max(totals.Y, square),
        extra=totals.extra + times * off * (0.5 * off + best - row.y),
    )


def vaw_claims(run: Run) -> list[Claim]:
    regret = run.loss - run.loss_u
    ridge = 0.5 * run.h.a * float(run.u @ run.u) + run.totals["extra"]
    volume = 0.5 * run.totals["Y"] * log_volume(run)
    source = "Orabona, Crammer & Cesa-Bianchi 2015, section 4"
    return [
        Claim("regret", regret, ridge + 0.5 * run.totals["cost"], source),
        Claim("regret, by the volume", regret, ridge + volume, source),
    ]


def vaw_certified(rule: Rule) -> Rule:
    """Vovk-Azoury-Warmuth with its sums and certificate."""
    return certified(with_accounts(rule, totals=Foreseen, step=_foreseen), vaw_claims)


def _errors(row: Row, totals: Errors, active: bool, move: Any, clock: float, h: Any) -> Errors:
    return Errors(totals.error + move.s * (row.y - row.r[0]))


def rls_claims(run: Run) -> list[Claim]:
    bound = run.h.a * float(run.u @ run.u) + run.square_u
    source = "the ridge solution by rank-one updates; exact"
    return [Claim("square error, discounted", run.totals["error"], bound, source)]


def rls_certified(rule: Rule) -> Rule:
    """Recursive least squares with its sum and certificate."""
    return certified(with_accounts(rule, totals=Errors, step=_errors), rls_claims)
