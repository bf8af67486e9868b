"""Slots and totals that OGD's certificate (P1, lemma 1) needs, in O(nnz) a row in every ball.

The bound needs sum_t (A_t - A_{t-1}) w_t, a number for each coordinate, for a comparator known only
afterwards. Summed by parts it is A_T w_{T+1} - sum_t A_t (w_{t+1} - w_t), which moves only where w
does. Where the L2 ball's factor c moves all weights, w = c v, the total ``turned`` moves instead,
and a coordinate takes its share of it when it is next touched.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import balls
from streamomd.rules.common.balls import bound, shrunk, size
from streamomd.rules.common.scaled_ball import ETA, in_scaled_ball
from streamomd.rules.common.schedules import ADAPTIVE, rate, with_adaptive_rate
from streamomd.rules.common.sets import soft
from streamomd.rules.contract import (
    Constraint,
    Coordinates,
    CoordinateSums,
    Coords,
    Max,
    Mean,
    Params,
    Row,
    Rule,
    Sum,
)


class Accounts(NamedTuple):
    """s = sum over the rows of A_t (w_{t+1} - w_t), but for what c did since ``mark``."""

    v: Mean = 0.0
    s: Sum = 0.0
    mark: Sum = 0.0


class Sums(NamedTuple):
    size: Coords = 0.0
    square: Coords = 0.0  # sum of v^2
    c: Max = 1.0
    fold: Max = 1.0
    A: Max = 0.0  # A_t of the last row
    turned: Sum = 0.0  # sum of A_t (c_{t+1} - c_t) since c was last multiplied into v
    settled: Sum = 0.0  # what ``turned`` was then
    q: Sum = 0.0  # sum of (A_t - A_{t-1}) ||w_t||^2
    steps: Sum = 0.0  # sum of eta_t ||g x||^2


class Tally(NamedTuple):
    step: float
    bound: float
    Ac: float
    turned: float


def begin(d: float, h: Any) -> Sums:
    balls.legal(h)
    return Sums()


def terms(
    own: Accounts, shared: object, x: float, totals: Sums, clock: float, h: Any
) -> tuple[float]:
    return (x * x,)


def step(row: Row, totals: Sums, clock: float, h: Any) -> tuple[bool, Tally, Sums]:
    t, g, eta = totals, row.importance * row.slope, rate(h.eta, h.schedule, clock)
    A = 1.0 / eta
    q = t.q + (A - t.A) * t.c * t.c * t.square
    paid = t.steps + eta * g * g * row.r[0]
    move = Tally(eta / t.c * row.importance * row.slope, bound(h), A * t.c, t.turned)
    return (
        move.step != 0.0,
        move,
        Sums(t.size, t.square, t.c, t.fold, A, t.turned, t.settled, q, paid),
    )


def stretch(move: Tally, factor: float) -> Tally:
    return Tally(move.step * factor, move.bound, move.Ac, move.turned)


def update(own: Accounts, shared: object, x: float, move: Tally, clock: float, h: Any) -> Accounts:
    v = max(min(own.v - move.step * x, move.bound), -move.bound)
    s = own.s + own.v * (move.turned - own.mark) + move.Ac * (v - own.v)
    return Accounts(v, s, move.turned)


def mass(own: Accounts, shared: object, totals: Sums, clock: float, h: Any) -> tuple[float, float]:
    return size(own.v, h), own.v * own.v


def rebase(totals: Sums, peak: float, clock: float, h: Any) -> Sums:
    t = totals
    return Sums(t.size, t.square, 1.0, t.c, t.A, 0.0, t.turned, t.q, t.steps)


def refresh(own: Accounts, shared: object, totals: Sums, clock: float, h: Any) -> Accounts:
    s = own.s + own.v * (totals.settled - own.mark)
    return Accounts(totals.fold * own.v, s, 0.0)


def project(
    own: Accounts, shared: object, mu: float, totals: Sums, clock: float, h: Any
) -> Accounts:
    v = soft(own.v, mu)
    return Accounts(v, own.s + totals.A * (v - own.v), own.mark)


def settle(totals: Sums, mu: float, h: Any) -> Sums:
    t, c = totals, shrunk(totals, h)
    turned = t.turned + t.A * (c - t.c)
    return Sums(t.size, t.square, c, t.fold, t.A, turned, t.settled, t.q, t.steps)


def certificate(run: Run) -> list[Claim]:
    if run.h.implicit:
        raise ValueError("lemma 1 is about explicit steps; this run took implicit ones")
    if run.h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    own, t, u = run.own, run.totals, run.u
    s = t["A"] * run.w - (own["s"] + own["v"] * (t["turned"] - own["mark"]))
    center = t["A"] * float(u @ u) - 2.0 * float(u @ s) + t["q"]
    bound = 0.5 * center + 0.5 * t["steps"]
    measured, h = run.loss - run.loss_u, run.h
    claims = [Claim("regret", measured, bound, "Ross et al., lemma 1")]
    if h.schedule == ADAPTIVE and h.ball != balls.NONE:
        square = h.radius * h.radius * (len(u) if h.ball == balls.BOX else 1)
        closed = (2.0 * square / h.eta + h.eta) * math.sqrt(t["N"])
        claims.append(Claim("regret", measured, closed, "Qian, section 5"))
    return claims


def accounted(rule: Rule) -> Rule:
    """OGD with accounts."""
    return replace(
        rule,
        state=replace(rule.state, own=Accounts, totals=Sums, move=Tally, begin=begin),
        step=step,
        update=update,
        row=replace(rule.row, gathers=1, terms=terms, stretch=stretch),
        sums=CoordinateSums(mass, balls.stale, rebase=rebase, refresh=refresh),
        constraint=Constraint(
            balls.outside, balls.reach, balls.radius, project, settle, largest=balls.largest
        ),
        certificate=replace(rule.certificate, claims=certificate),
    )


def certified_forms(rule: Rule) -> Rule:
    """OGD with its certificate, in forms without the sums that parameters do not need.

    A ball needs the sum of its norm, an adaptive schedule that of squared gradients.
    """
    ball = certified(balls.in_ball(rule), certificate)
    free = replace(
        ball, state=rule.state, weight=rule.weight, step=rule.step, sums=None, constraint=None
    )
    with_sums = accounted(ball)
    adaptive = certified(
        with_adaptive_rate(ball),
        certificate,
        replace(
            with_adaptive_rate(with_sums),
            storage=Coordinates(
                reduced=lambda params: None if params["schedule"] == "adaptive" else with_sums
            ),
        ),
    )

    def reduced(params: Params) -> Rule | None:
        if params["schedule"] == "adaptive":
            return None
        return free if params["ball"] in ("none", "box") else ball

    return replace(adaptive, storage=Coordinates(reduced=reduced))


class First(NamedTuple):
    first: Max = 0.0  # abs(x_i)


class NagAccounts(NamedTuple):
    p: Sum = 0.0  # of (A_t - A_{t-1}) w_t
    q: Sum = 0.0  # of (A_t - A_{t-1}) w_t^2
    paid: Sum = 0.0  # of (g x_i)^2 / A_t


def first_seen(shared: Any, x: float, clock: float, h: Any) -> First:
    return First(shared.first if shared.first > 0.0 else abs(x))


def charged(own: Any, grown: float, paid: float) -> NagAccounts:
    """Account for the growth of A since w last predicted."""
    moved = grown * own.w
    return NagAccounts(own.p + moved, own.q + moved * own.w, own.paid + paid)


def account_scale(own: Any, old: Any, new: Any, clock: float, h: Any) -> NagAccounts:
    return charged(own, math.sqrt(own.G) * (new.s - old.s) / (h.C * ETA), 0.0)


def account(
    own: Any, after: Any, shared: Any, x: float, move: Any, clock: float, h: Any
) -> NagAccounts:
    z, root = move.g * x, math.sqrt(after.G)
    if root == 0.0:
        return NagAccounts(own.p, own.q, own.paid)
    paid = z * (z / root) / shared.s * (h.C * ETA)
    return charged(own, (root - math.sqrt(own.G)) * shared.s / (h.C * ETA), paid)


def claims(run: Run) -> list[Claim]:
    own, s, u, C = run.own, run.shared["s"], run.u, run.h.C
    if run.h.clip:
        raise ValueError("the theorems are about predictions that are not clipped")
    if run.h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    root, measured = np.sqrt(own["G"]), run.loss - run.loss_u
    center = float(root * s @ (u * u)) / (C * ETA) - 2.0 * float(u @ own["p"]) + own["q"].sum()
    lemma = 0.5 * float(center) + 0.5 * float(own["paid"].sum())
    found = [Claim("regret", measured, lemma, "Ross et al., lemma 1")]
    share = np.divide(root, s, out=np.zeros_like(s), where=s > 0.0)
    if run.h.passes == 2.0:
        bound = 2.0 * math.sqrt(2.0) * C * float(share.sum())
        return [*found, Claim("regret", measured, bound, "Ross et al., theorem 1")]
    growth = np.divide(s, run.shared["first"], out=np.ones_like(s), where=s > 0.0)
    factor = (1.0 + 6.0 * growth + growth * growth) / (2.0 * math.sqrt(2.0))
    bound = C * float(share @ factor)
    return [*found, Claim("regret", measured, bound, "Ross et al., theorem 2")]


def certified_in_ball(rule: Rule) -> Rule:
    """NAG in its set, with its certificate."""
    ball = in_scaled_ball(rule)
    accounted = with_accounts(
        ball, own=NagAccounts, update=account, align=account_scale, shared=First, observe=first_seen
    )
    return certified(ball, claims, accounted)
