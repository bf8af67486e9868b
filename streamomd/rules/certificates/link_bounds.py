"""Certificates of the learners with links: mistake bounds and the dual value (P2, theorems 1 to 3;
P0, lemma 1 and corollary 2), and the accounts they need."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.linked import image_mass, linked, observe_share, pnorm_mass
from streamomd.rules.common.links import (
    EG,
    PNORM,
    WINNOW,
    complexity,
    conjugate,
    few_mistakes,
    legal,
    norm,
    rise,
)
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import Certificate, Max, Observe, Row, Rule, Sum

SINGER = "Shalev-Shwartz & Singer 2006"
ORABONA = "Orabona, Crammer & Cesa-Bianchi"


class Steps(NamedTuple):
    steps: Sum = 0.0  # of h C on mistakes


class StepsAndLongest(NamedTuple):
    steps: Sum = 0.0
    longest: Max = 0.0  # h ||x||_p^2 of a mistake


class MarginErrors(NamedTuple):
    Y2: Max = 0.0  # h ||x||_p^2
    mistakes: Sum = 0.0
    e: Sum = 0.0
    c: Sum = 0.0


class Residuals(NamedTuple):
    errors: Sum = 0.0  # of h (y - yhat)^2
    targets: Sum = 0.0  # of h (y - yhat) y
    excess: Sum = 0.0  # of h^2 (y - yhat)^2 ||x||^2 / X^2, less errors


class StepsOrGain(NamedTuple):
    n: Max = 0.0  # all coordinates
    steps: Sum = 0.0  # of h C on mistakes
    heaviest: Max = 0.0  # h of a mistake
    gain: Sum = 0.0  # of g yhat


class Largest(NamedTuple):
    x: Max = 0.0  # largest of a coordinate


def _steps(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Steps:
    return Steps(totals.steps + abs(move.a))


def _steps_and_longest(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> StepsAndLongest:
    if not active:
        return StepsAndLongest(totals.steps, totals.longest)
    length = norm(row.q[0], row.q[1], row.q[2], h.p)
    longest = max(totals.longest, row.importance * length * length)
    return StepsAndLongest(totals.steps + abs(move.a), longest)


def _margin_errors(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> MarginErrors:
    """The sums of equation 21."""
    mistakes, e, c = totals.mistakes, totals.e, totals.c
    length, m = norm(row.q[0], row.q[1], row.q[2], h.p), row.y * row.margin
    square = row.importance * length * length
    Y2 = max(totals.Y2, square)
    if active and m <= 0.0:
        mistakes += row.importance
    elif active:
        a, part = row.importance * move.eta, m / (h.p - 1.0) / length / length
        e += a
        c += move.eta * (square / Y2) * (a + 2.0 * part)  # the ratio is at most 1
    return MarginErrors(Y2, mistakes, e, c)


def _residuals(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Residuals:
    r, X = row.y - row.margin, totals.X
    length = norm(row.q[0], row.q[1], row.q[2], h.p)
    part = (length / X) * (length / X) if X > 0.0 else 0.0
    return Residuals(
        errors=totals.errors + move.a * r,
        targets=totals.targets + move.a * row.y,
        excess=totals.excess + move.a * r * (row.importance * part - 1.0),
    )


def _steps_or_gain(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> StepsOrGain:
    steps, heaviest, gain = totals.steps, totals.heaviest, totals.gain
    if h.C == 0.0:
        gain += row.importance * row.slope * row.margin
    elif row.y * row.margin <= 0.0:
        steps += row.importance * h.C
        heaviest = max(heaviest, row.importance)
    return StepsOrGain(totals.n, steps, heaviest, gain)


def _largest(shared: Any, x: float, clock: float, h: Any) -> Largest:
    return Largest(max(shared.x, abs(x)))


def pnorm_of(h: Any) -> tuple[float, float, float]:
    return PNORM, 1.0, h.p


def eg_of(h: Any) -> tuple[float, float, float]:
    return EG, h.U, 0.0


def winnow_of(h: Any) -> tuple[float, float, float]:
    return WINNOW, 1.0, 0.0


def link_of(h: Any) -> tuple[float, float, float]:
    return h.link, h.U, h.p


def pnorm_claims(run: Run) -> list[Claim]:
    h, totals, loss = run.h, run.totals, run.hinge_u(1.0)
    dual = totals["steps"] - conjugate(PNORM, totals["S"], totals["ref"], 1.0, 1.0, h.p)
    f = complexity(PNORM, run.u, 1.0, h.p)
    claims = [Claim("dual value", dual, f + h.C * loss, f"{SINGER}, theorem 1")]
    if "longest" in totals:
        bound = few_mistakes(loss, 2.0 * f * (h.p - 1.0) * totals["longest"])
        claims.append(Claim("mistakes", totals["steps"] / h.C, bound, f"{SINGER}, theorem 2"))
    return claims


def pnorm_dual(totals: Any, clock: float, h: Any) -> Any:
    return totals.steps - conjugate(PNORM, totals.S, totals.ref, 1.0, 1.0, h.p)


def pnorm_certified(rule: Rule) -> Rule:
    """The p-norm Perceptron with its sums and certificate."""
    whole = replace(rule, certificate=Certificate(live=pnorm_dual, live_name="dual"))
    observing = replace(whole, observe=Observe(observe_share, sums=3))
    accounted = with_accounts(observing, totals=StepsAndLongest, step=_steps_and_longest)
    whole = with_accounts(whole, totals=Steps, step=_steps)
    whole, accounted = (linked(form, pnorm_of, pnorm_mass) for form in (whole, accounted))
    return certified(whole, pnorm_claims, accounted)


def aggressive_bounds(loss: float, kappa: float, e: float, c: float) -> tuple[float, float]:
    """Equation 21, and the simple form without its square root of a sum."""
    inside = max(0.25 * kappa + loss + c - e, 0.0)
    sharp = loss - e + 0.5 * kappa + math.sqrt(kappa * inside)
    return sharp, loss + max(c - e, 0.0) - e + kappa + math.sqrt(kappa * loss)


def aggressive_claims(run: Run) -> list[Claim]:
    totals, p = run.totals, run.h.p
    kappa = 2.0 * complexity(PNORM, run.u, 1.0, p) * totals["Y2"] * (p - 1.0)
    sharp, simple = aggressive_bounds(run.hinge_u(1.0), kappa, totals["e"], totals["c"])
    mistakes = totals["mistakes"]
    return [
        Claim("mistakes", mistakes, sharp, f"{ORABONA}, equation 21"),
        Claim("mistakes, simple form", mistakes, simple, f"{ORABONA}, corollary 2, corrected"),
    ]


def aggressive_certified(rule: Rule) -> Rule:
    """The optimal aggressive Perceptron with its sums and certificate."""
    whole = with_accounts(rule, totals=MarginErrors, step=_margin_errors)
    return certified(linked(whole, pnorm_of, pnorm_mass), aggressive_claims)


def lms_claims(run: Run) -> list[Claim]:
    totals, p, square = run.totals, run.h.p, run.square_u
    # (yhat - v)^2 = (y - yhat)^2 - 2 (y - yhat) (y - v) + (y - v)^2, summed, v = <u, x>
    products = totals["targets"] - float(run.own["theta"] @ run.u)
    measured = totals["errors"] - 2.0 * products + square
    weights = 2.0 * (p - 1.0) * totals["X"] ** 2 * complexity(PNORM, run.u, 1.0, p)
    bound = weights + square + max(totals["excess"], 0.0)
    return [Claim("squared distance to u's predictions", measured, bound, f"{ORABONA}, section 4")]


def lms_certified(rule: Rule) -> Rule:
    """p-norm LMS with its sums and certificate."""
    whole = with_accounts(rule, totals=Residuals, step=_residuals)
    return certified(linked(whole, pnorm_of, pnorm_mass), lms_claims)


def eg_claims(run: Run) -> list[Claim]:
    h, totals, n = run.h, run.totals, run.totals["n"]
    value = conjugate(EG, totals["S"], totals["ref"], n, h.U, 0.0)
    f = complexity(EG, run.u, h.U, 0.0)
    if h.C == 0.0:
        bound = (f + value) / h.eta + totals["gain"]
        return [Claim("regret", run.loss - run.loss_u, bound, f"{ORABONA}, lemma 1")]
    bound = f + h.C * run.hinge_u(1.0)
    claims = [Claim("dual value", totals["steps"] - value, bound, f"{SINGER}, theorem 1")]
    if "x" in run.shared:
        kappa = h.U * totals["heaviest"] * float(run.shared["x"].max()) ** 2
        margin = h.C * kappa
        if margin > 0.0:
            bound = 2.0 * (
                kappa * h.U * math.log(2.0 * n) / margin**2 + run.hinge_u(margin) / margin
            )
            claims.append(Claim("mistakes", totals["steps"] / h.C, bound, f"{SINGER}, section 4"))
    return claims


def eg_set(slots: Any, h: Any) -> ComparatorSet:
    return legal(EG, h.U)


def eg_dual(totals: Any, clock: float, h: Any) -> Any:
    raised = totals.steps if h.C > 0.0 else -h.eta * totals.gain
    return raised - conjugate(EG, totals.S, totals.ref, totals.n, h.U, 0.0)


def eg_certified(rule: Rule) -> Rule:
    """The rule with its sums and certificate."""
    whole = with_accounts(rule, totals=StepsOrGain, step=_steps_or_gain)
    whole = linked(whole, eg_of, image_mass)
    certificate = Certificate(feasible=eg_set, live=eg_dual, live_name="dual")
    whole = replace(whole, certificate=certificate)
    return certified(whole, eg_claims, with_accounts(whole, shared=Largest, observe=_largest))


def winnow_claims(run: Run) -> list[Claim]:
    h, totals, n = run.h, run.totals, run.totals["n"]
    value = conjugate(WINNOW, totals["S"], totals["ref"], n, 1.0, 0.0)
    f = complexity(WINNOW, run.u, 1.0, 0.0)
    if h.C == 0.0:
        bound = (f + value) / h.eta + totals["gain"]
        return [Claim("regret", run.loss - run.loss_u, bound, f"{ORABONA}, lemma 1")]
    bound = f + h.C * run.hinge_u(1.0)
    claims = [Claim("dual value", totals["steps"] - value, bound, f"{SINGER}, theorem 1")]
    if "x" in run.shared:
        kappa = 1.0 * totals["heaviest"] * float(run.shared["x"].max()) ** 2
        margin = h.C * kappa
        if margin > 0.0:
            bound = 2.0 * (kappa * math.log(n) / margin**2 + run.hinge_u(margin) / margin)
            claims.append(Claim("mistakes", totals["steps"] / h.C, bound, f"{SINGER}, section 4"))
    return claims


def winnow_set(slots: Any, h: Any) -> ComparatorSet:
    return legal(WINNOW, 1.0)


def winnow_dual(totals: Any, clock: float, h: Any) -> Any:
    raised = totals.steps if h.C > 0.0 else -h.eta * totals.gain
    return raised - conjugate(WINNOW, totals.S, totals.ref, totals.n, 1.0, 0.0)


def winnow_certified(rule: Rule, mass: Any) -> Rule:
    """The rule with its sums and certificate."""
    whole = with_accounts(rule, totals=StepsOrGain, step=_steps_or_gain)
    whole = linked(whole, winnow_of, mass)
    certificate = Certificate(feasible=winnow_set, live=winnow_dual, live_name="dual")
    whole = replace(whole, certificate=certificate)
    return certified(whole, winnow_claims, with_accounts(whole, shared=Largest, observe=_largest))


class Rises(NamedTuple):
    steps: Sum = 0.0
    rises: Sum = 0.0  # of a l - k a^2 / 2
    mistakes: Sum = 0.0
    hardest: Max = 0.0  # h / least rise of the dual on a mistake


def _rises(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Rises:
    steps, rises = totals.steps, totals.rises
    mistakes, hardest = totals.mistakes, totals.hardest
    if active:
        a, loss = abs(move.a), h.gamma - row.y * row.margin
        steps += a
        rises += a * (loss - 0.5 * move.kappa * a)
        if row.y * row.margin <= 0.0:
            mistakes += row.importance
            least = rise(move.kappa, row.importance * h.C, h.gamma)
            hardest = max(hardest, row.importance / least)
    return Rises(steps, rises, mistakes, hardest)


def step_dual(S: float, ref: float, n: float, steps: float, h: Any) -> Any:
    return h.gamma * steps - conjugate(h.link, S, ref, n, h.U, h.p)


def live_step_dual(totals: Any, clock: float, h: Any) -> Any:
    return step_dual(totals.S, totals.ref, totals.n, totals.steps, h)


def step_claims(run: Run) -> list[Claim]:
    h, totals = run.h, run.totals
    bound = complexity(h.link, run.u, h.U, h.p) + h.C * run.hinge_u(h.gamma)
    value = step_dual(totals["S"], totals["ref"], totals["n"], totals["steps"], h)
    mistakes = bound * totals["hardest"]
    return [
        Claim("rises of the dual", totals["rises"], bound, f"{SINGER}, theorem 3"),
        Claim("dual value", value, bound, f"{SINGER}, theorem 1"),
        Claim("mistakes", totals["mistakes"], mistakes, f"{SINGER}, theorem 1"),
    ]


def step_set(slots: Any, h: Any) -> ComparatorSet:
    return legal(h.link, h.U)


def step_certified(rule: Rule) -> Rule:
    """The aggressive dual step with its sums and certificate."""
    certificate = Certificate(feasible=step_set, live=live_step_dual, live_name="dual")
    whole = with_accounts(rule, totals=Rises, step=_rises)
    whole = replace(linked(whole, link_of, image_mass), certificate=certificate)
    return certified(whole, step_claims)
