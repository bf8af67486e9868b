"""Certificate of projected NAG (P1, lemma 1, theorems 1 and 2), and the slots it needs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.scaled_ball import ETA, in_scaled_ball
from streamomd.rules.contract import Max, Rule, Sum


class First(NamedTuple):
    first: Max = 0.0  # abs(x_i)


class Accounts(NamedTuple):
    p: Sum = 0.0  # of (A_t - A_{t-1}) w_t
    q: Sum = 0.0  # of (A_t - A_{t-1}) w_t^2
    paid: Sum = 0.0  # of (g x_i)^2 / A_t


def first_seen(shared: Any, x: float, clock: float, h: Any) -> First:
    return First(shared.first if shared.first > 0.0 else abs(x))


def charged(own: Any, grown: float, paid: float) -> Accounts:
    """Account for the growth of A since w last predicted."""
    moved = grown * own.w
    return Accounts(own.p + moved, own.q + moved * own.w, own.paid + paid)


def account_scale(own: Any, old: Any, new: Any, clock: float, h: Any) -> Accounts:
    return charged(own, math.sqrt(own.G) * (new.s - old.s) / (h.C * ETA), 0.0)


def account(
    own: Any, after: Any, shared: Any, x: float, move: Any, clock: float, h: Any
) -> Accounts:
    z, root = move.g * x, math.sqrt(after.G)
    if root == 0.0:
        return Accounts(own.p, own.q, own.paid)
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
        ball, own=Accounts, update=account, align=account_scale, shared=First, observe=first_seen
    )
    return certified(ball, claims, accounted)
