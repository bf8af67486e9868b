"""Certificates of the FTRL learners: da, rda, composite (P3, theorem 5; P0, equations 5 to 7),
ftrl_proximal (P3, theorems 6 and 7) and ftrl_centered (P3, theorem 5)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.certificates.accounts import certified, with_accounts, with_free_form
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.adagrad_forms import SizeAndMultiplier
from streamomd.rules.common.lazy_ball import in_l2_ball
from streamomd.rules.common.proximal_ball import in_ball as in_proximal_ball
from streamomd.rules.common.schedules import (
    EVERY,
    SQRT,
    STRONG,
    averaging_rate,
    beta,
    centered_curvature,
    composite_curvature,
    first,
    pace,
)
from streamomd.rules.common.sets import box_of, phi
from streamomd.rules.common.weighted_balls import NONE
from streamomd.rules.contract import Certificate, Max, Row, Rule, Sum


class Steps(NamedTuple):
    steps: Sum = 0.0  # of ||g x||^2 / the curvature it is predicted with


class StepsAndTop(NamedTuple):
    steps: Sum = 0.0  # of ||g x||^2 / c_t, or / t
    top: Max = 0.0  # of ||g x||^2


class Proximal(NamedTuple):
    s: Sum = 0.0  # of (h_new - h_old) w
    q: Sum = 0.0  # of (h_new - h_old) w^2 + (g x)^2 / h_new


class Steepest(NamedTuple):
    steepest: Max = 0.0  # the loss's slope


def square(own: Any, shared: object, x: float, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (x * x,)


def _averaging_step(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Steps:
    g = row.importance * row.slope
    return Steps(totals.steps + g * g * row.r[0] * averaging_rate(clock, h))


def averaging_claims(run: Run) -> list[Claim]:
    if run.h.implicit:
        raise ValueError("theorem 5 is about explicit steps; this run took implicit ones")
    curvature = 1.0 / averaging_rate(float(run.rows), run.h)
    bound = 0.5 * curvature * float(run.u @ run.u) + 0.5 * run.totals["steps"]
    return [Claim("regret", run.loss - run.loss_u, bound, "Qian, theorem 5")]


def da_certified(rule: Rule) -> Rule:
    """Dual averaging, in its ball and without, with its certificate."""

    def with_steps(form: Rule) -> Rule:
        accounted = with_accounts(form, totals=Steps, step=_averaging_step, terms=square, gathers=1)
        return certified(form, averaging_claims, accounted)

    ball, free = with_steps(in_l2_ball(rule)), with_steps(rule)
    return with_free_form(ball, free, lambda params: params["ball"] != "none")


def _regularized_step(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> Steps:
    g = row.importance * row.slope
    return Steps(totals.steps + g * g * row.r[0] / beta(clock, h))


def regularized_claims(run: Run) -> list[Claim]:
    h, u, rows = run.h, run.u, float(run.rows)
    bound = 0.5 * beta(rows, h) * float(u @ u) + 0.5 * run.totals["steps"]
    bound += max(rows - 1.0, 0.0) * phi(u, h.l1, h.l2)
    return [Claim("regret", run.loss - run.loss_u, bound, "Qian, theorem 5")]


def rda_certified(rule: Rule) -> Rule:
    """RDA with its certificate."""
    accounted = with_accounts(rule, totals=Steps, step=_regularized_step, terms=square, gathers=1)
    return certified(rule, regularized_claims, accounted)


def _composite_step(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> StepsAndTop:
    g = row.importance * row.slope
    square = g * g * row.r[0]
    share = clock if h.schedule == STRONG else composite_curvature(clock, h)
    return StepsAndTop(totals.steps + square / share, max(totals.top, square))


def composite_claims(run: Run) -> list[Claim]:
    h, rows, norm = run.h, float(run.rows), float(run.u @ run.u)
    steps, top = run.totals["steps"], run.totals["top"]
    measured = run.loss - run.loss_u - rows * phi(run.u, h.l1, h.l2)

    def claim(bound: float, equation: str) -> Claim:
        return Claim("regret with phi", measured, bound, f"Orabona et al., {equation}")

    if h.schedule == STRONG:
        return [
            claim(0.5 * steps / h.l2, "equation 7, sharper"),
            claim(0.5 * top * (1.0 + math.log(max(rows, 1.0))) / h.l2, "equation 7"),
        ]
    five = 0.5 * composite_curvature(rows, h) * norm / h.eta + 0.5 * h.eta * steps
    claims = [claim(five, "equation 5")]
    if h.schedule == SQRT:
        six = math.sqrt(rows) * (0.5 * norm / h.eta + h.eta * top)
        claims.append(claim(six, "equation 6"))
    return claims


def composite_certified(rule: Rule) -> Rule:
    """Composite mirror descent in its box, with its certificate."""
    rule = replace(rule, certificate=Certificate(feasible=box_of))
    accounted = with_accounts(
        rule, totals=StepsAndTop, step=_composite_step, terms=square, gathers=1
    )
    return certified(rule, composite_claims, accounted)


def proximal_claims(run: Run) -> list[Claim]:
    h, u, G = run.h, run.u, run.own["G"]
    root = G**0.5
    curved = (first(h) * (G > 0.0) + root) / pace(h)
    center = float((curved * u * u - 2.0 * u * run.own["s"] + run.own["q"]).sum())
    times = run.rows if h.charge == EVERY else 1
    bound = 0.5 * center + times * phi(u, h.l1, h.l2)
    measured = run.loss - run.loss_u
    theorem = "7" if h.charge == EVERY and h.l1 + h.l2 > 0.0 else "6"
    claims = [Claim("regret", measured, bound, f"Qian, theorem {theorem}")]
    if (h.ball != NONE or 0.0 < h.box <= h.radius) and h.l1 == h.l2 == 0.0:
        closed = 2.0 * math.sqrt(2.0) * h.radius * float(root.sum())
        claims.append(Claim("regret", measured, closed, "Qian, section 5, AdaGrad FTRL-Proximal"))
    return claims


def proximal_certified(rule: Rule) -> Rule:
    """FTRL-Proximal, in its ball and without, with its certificate."""
    free, ball = rule.weight, in_proximal_ball(rule)
    inside = ball.weight

    def charged(own: Any, after: Any, w: float, gradient: float, h: Any) -> Proximal:
        G = after.G
        growth = (math.sqrt(G) - math.sqrt(own.G)) / pace(h)
        paid = pace(h) * gradient * (gradient / (first(h) + math.sqrt(G))) if G > 0.0 else 0.0
        return Proximal(own.s + growth * w, own.q + growth * w * w + paid)

    def account(
        own: Any, after: Any, shared: object, x: float, move: Any, clock: float, h: Any
    ) -> Proximal:
        return charged(own, after, free(own, shared, (), clock, h), move.g * x, h)

    def account_inside(
        own: Any, after: Any, shared: object, x: float, move: Any, clock: float, h: Any
    ) -> Proximal:
        w = inside(own, shared, SizeAndMultiplier(0.0, move.mu), clock, h)
        return charged(own, after, w, move.g * x, h)

    def with_growth(form: Rule, update: Any) -> Rule:
        accounted = with_accounts(form, own=Proximal, update=update)
        return certified(form, proximal_claims, accounted)

    whole, alone = with_growth(ball, account_inside), with_growth(rule, account)
    return with_free_form(whole, alone, lambda params: params["ball"] != "none")


def _centered_step(
    row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any
) -> Steepest:
    return Steepest(max(totals.steepest, abs(row.slope)))


def _centered_account(
    own: Any, after: Any, shared: Any, x: float, move: Any, clock: float, h: Any
) -> Steps:
    gradient, now = move.g * x, centered_curvature(shared.M, own.G, h)
    return Steps(own.steps + (gradient * (gradient / now) if now > 0.0 else 0.0))


def centered_claims(run: Run) -> list[Claim]:
    h, u, G = run.h, run.u, run.own["G"]
    curved = ((h.L * run.shared["M"]) ** 2 + G) ** 0.5
    charged = max(run.rows - 1, 0) * phi(u, h.l1, h.l2)
    bound = 0.5 * float((curved * u * u).sum()) / h.radius + charged
    bound += 0.5 * float(run.own["steps"].sum())
    measured = run.loss - run.loss_u
    claims = [Claim("regret", measured, bound, "Qian, theorem 5")]
    if run.totals["steepest"] <= h.L and float(abs(u).max(initial=0.0)) <= h.radius:
        closed = h.radius * float((0.5 * curved + G**0.5).sum()) + charged
        claims.append(Claim("regret", measured, closed, "Qian, section 5, AdaGrad dual averaging"))
    return claims


def centered_certified(rule: Rule) -> Rule:
    """FTRL-Centered with its certificate."""
    accounted = with_accounts(
        rule, own=Steps, update=_centered_account, totals=Steepest, step=_centered_step
    )
    return certified(rule, centered_claims, accounted)
