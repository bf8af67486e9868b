"""Certificates of the learners with a full matrix: ons, vaw, rls, sop, arow, laplace, auto and
aggressive_second_order.

The engine stores A^-1 as U D U' (see ``engine.loops.matrix``): a quadratic form of A is a
triangular solve, its determinant a product.

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

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, joined, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.full_matrix import unit
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.common.standardized import Accounts
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


class Updates(NamedTuple):
    updates: Sum = 0.0  # of h, where it learned
    lift: Sum = 0.0  # of what each update subtracts from the bound
    heaviest: Max = 0.0  # h that it learned with


def margin_claims(run: Run, r: float, unit: float, power: float) -> list[Claim]:
    """Bounds on the updates, by weight, of learners that add unit y x to theta and x x'/r to A.

    P0's proof, with importances: an update of importance h adds h unit y x, and h x x'/r where
    ``power`` is 1, x x'/r where it is 2. The first bound is its last step before anything is given
    away, <u, theta> <= |u|_A |theta|_(A^-1).
    """
    source = "Orabona, Crammer & Cesa-Bianchi 2015, section 6.2"
    hinge, totals = run.hinge_u(1.0), run.totals
    far = form(run, run.u, 1.0)
    dual = max(form(run, np.asarray(run.own["mu"]), 1.0), 0.0)
    volume = totals["heaviest"] ** power * log_volume(run)
    spread = np.sqrt(max(volume + totals["lift"], 0.0))
    name, updates = "updates, the mistakes among them", totals["updates"]
    return [
        Claim(name, updates, float(hinge + np.sqrt(far * dual) / unit), source),
        Claim(f"{name}; by the volume", updates, float(hinge + np.sqrt(r * far) * spread), source),
    ]


def _with_lift(totals: Updates, row: Row, lift: float) -> Updates:
    """The sums after an update."""
    times = row.importance
    return Updates(totals.updates + times, totals.lift + lift, max(totals.heaviest, times))


def _sop(row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any) -> Updates:
    if not active:
        return totals
    m, chi = row.r
    return _with_lift(totals, row, m * (2.0 * row.importance * row.y - m) / (1.0 + chi))


def _scaled_lift(row: Row, n: float, r: float) -> float:
    """What an update of h x x'/r subtracts from the bound; n: the mean on AROW's scale."""
    chi: float = row.r[1]
    return row.importance * r * n * (2.0 * row.y - n) / (r + row.importance * chi)


def _arow(row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any) -> Updates:
    if not active:
        return totals
    return _with_lift(totals, row, _scaled_lift(row, row.r[0], h.r))


def _aggressive(
    row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any
) -> Updates:
    if not active:
        return totals
    return _with_lift(totals, row, _scaled_lift(row, row.r[0] / (unit(h) * h.r), h.r))


def sop_claims(run: Run) -> list[Claim]:
    return margin_claims(run, 1.0, 1.0, 2.0)


def arow_claims(run: Run) -> list[Claim]:
    return margin_claims(run, run.h.r, 1.0 / run.h.r, 1.0)


def aggressive_claims(run: Run) -> list[Claim]:
    return margin_claims(run, run.h.r, unit(run.h), 1.0)


def sop_certified(rule: Rule) -> Rule:
    """The second-order Perceptron with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_sop), sop_claims)


def arow_certified(rule: Rule) -> Rule:
    """AROW with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_arow), arow_claims)


def aggressive_certified(rule: Rule) -> Rule:
    """The aggressive second-order learner with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_aggressive), aggressive_claims)


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
