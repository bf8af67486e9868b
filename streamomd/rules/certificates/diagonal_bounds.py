r"""Certificates of the diagonal second-order learners in dual form (P0, section 6.3), and sums.

With c = 1 where theta += y x, c = r where theta += y x / r, h the importance and ``upd`` the rows
that caused an update:

    sum of h over upd <= L(u) + sqrt(sum u^2 D) sqrt(Q),

    sharper: Q = sum over upd of h^2 x'D_t^-1 x + 2 c h y yhat + c^2 theta'(D_t^-1 - D_t-1^-1) theta
    (22):    Q = max h^2 r sum ln D + 2 c U,  U = sum of h over right predictions with an update.

This is of rows that D counts once (``sop_diag``); ``aggressive_second_order_diag`` counts them h
times and has accounts of its own. Where U = 0, (23) bounds it by u, the longest row and L(u) alone.
The sharper line and (23) need sums over each row that predicting does not: they are the accounts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.dual_diagonal import share
from streamomd.rules.contract import Max, Row, Rule, Sum

SOURCE = "Orabona, Crammer & Cesa-Bianchi, section 6.3"


class Updates(NamedTuple):
    updates: Sum = 0.0  # of h
    margins: Sum = 0.0  # of h, where the prediction was right
    largest: Max = 0.0  # h


class Rows(NamedTuple):
    rarest: Max = 0.0  # 1 / h
    longest: Max = 0.0  # ||x||^2


class RowsAndSharp(NamedTuple):
    rarest: Max = 0.0
    longest: Max = 0.0
    sharp: Sum = 0.0


class Sharp(NamedTuple):
    sharp: Sum = 0.0  # what the coordinate adds to the certificate's Q


def terms(
    own: Any, shared: object, x: float, totals: object, clock: float, h: Any
) -> tuple[float, float, float]:
    """x^2, x^2 / D_t and what the row takes from theta' D^-1 theta."""
    before = 1.0 + own.S
    after = before + x * x / h.r
    return x * x, x * x / after, (own.theta / after) * (own.theta / before) * (x * x / h.r)


def _count(row: Row, totals: Updates, largest: float) -> Updates:
    """The sums after an update."""
    right = row.importance if row.y * row.margin > 0.0 else 0.0
    return Updates(totals.updates + row.importance, totals.margins + right, largest)


def _sop(row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any) -> Updates:
    return _count(row, totals, max(totals.largest, row.importance)) if active else totals


def _aggressive(
    row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any
) -> Updates:
    """``largest`` is 1 while every importance is."""
    if not active:
        return totals
    return _count(row, totals, max(totals.largest, row.importance, 1.0 / row.importance))


def _mistakes(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> RowsAndSharp:
    if not active:
        return RowsAndSharp(totals.rarest, totals.longest, totals.sharp)
    square, chi, taken = row.r
    gain = row.importance * (row.importance * chi + 2.0 * row.y * row.margin) - taken
    return RowsAndSharp(
        max(totals.rarest, 1.0 / row.importance), max(totals.longest, square), totals.sharp + gain
    )


def claims(run: Run, c: float) -> list[Claim]:
    """(22), and from accounts the sharper line and, without margin errors, (23)."""
    found = [plain_claim(run, c)]
    if "sharp" in run.totals:
        found.append(sharper_claim(run, run.totals["sharp"]))
        found += rare_claims(run)
    return found


def plain_claim(run: Run, c: float) -> Claim:
    """(22)."""
    totals, r = run.totals, run.h.r
    logs = totals["largest"] ** 2 * r * float(np.log1p(run.own["S"]).sum())
    bound = run.hinge_u(1.0) + _first(run) * math.sqrt(logs + 2.0 * c * totals["margins"])
    name, source = "mistakes and margin errors", f"{SOURCE}, equation 22"
    return Claim(name, totals["updates"], bound, source)


def sharper_claim(run: Run, sharp: float) -> Claim:
    """The line before the logarithm, sharp its Q."""
    bound = run.hinge_u(1.0) + _first(run) * math.sqrt(max(sharp, 0.0))
    name, source = "mistakes and margin errors, sharper", f"{SOURCE}, before the logarithm is taken"
    return Claim(name, run.totals["updates"], bound, source)


def rare_claims(run: Run) -> list[Claim]:
    """The bound by u, the longest row and L(u), where no right prediction updated."""
    totals, S, r, u = run.totals, run.own["S"], run.h.r, run.u
    if totals["margins"] > 0.0:
        return []
    loss, d = run.hinge_u(1.0), max(int(np.count_nonzero(S)), 1)
    spread = float(u @ u) * r + r * float((u * u) @ S)  # ||u||^2 (r + s)
    b = totals["longest"] * totals["rarest"] / (d * r)
    a = totals["largest"] ** 2 * spread * d
    log = math.log(math.sqrt(8.0) * a * b * b / math.e + 2.0 * loss * b + 2.0)
    bound, source = loss + math.sqrt(a * log), f"{SOURCE}, after (23)"
    return [Claim("mistakes, rare features", totals["updates"], bound, source)]


def _first(run: Run) -> float:
    return math.sqrt(float((run.u * run.u) @ (1.0 + run.own["S"])))


def sop_claims(run: Run) -> list[Claim]:
    return claims(run, 1.0)


def sop_certified(rule: Rule) -> Rule:
    """The diagonal second-order Perceptron with its sums and certificate."""
    whole = with_accounts(rule, totals=Updates, step=_sop)
    accounted = with_accounts(whole, totals=RowsAndSharp, step=_mistakes, terms=terms, gathers=3)
    return certified(whole, sop_claims, accounted)


def square(own: Any, shared: object, x: float, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (x * x,)


def _updates(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Rows:
    if not active:
        return Rows(totals.rarest, totals.longest)
    return Rows(max(totals.rarest, 1.0 / row.importance), max(totals.longest, row.r[0]))


def _lift(own: Any, after: Any, shared: object, x: float, move: Any, clock: float, h: Any) -> Sharp:
    before, more = 1.0 + own.S, move.times * (x * x / h.r)
    D, c = before + more, share(h)
    step, theta = c * move.a * x, c * own.theta  # of the sum of h y x, as the certificate has it
    lift = step * (step + 2.0 * theta) / D - (theta / D) * (theta / before) * more
    return Sharp(own.sharp + lift)


def aggressive_diag_claims(run: Run) -> list[Claim]:
    once = run.totals["largest"] <= 1.0
    found = [plain_claim(run, share(run.h))] if once else []
    if "sharp" in run.own:
        found.append(sharper_claim(run, float(run.own["sharp"].sum())))
        found += rare_claims(run) if once else []
    if not found:
        raise ValueError(
            "equation 22 is proven for importances of 1; train with model.certificate = true for "
            "the bound that counts them"
        )
    return found


def aggressive_diag_certified(rule: Rule) -> Rule:
    """The aggressive diagonal learner with its sums and certificate."""
    whole = with_accounts(rule, totals=Updates, step=_aggressive)
    accounted = with_accounts(
        whole, own=Sharp, update=_lift, totals=Rows, step=_updates, terms=square, gathers=1
    )
    return certified(whole, aggressive_diag_claims, accounted)
