"""Certificates of the diagonal second-order learners in dual form (P0, section 6.3), and accounts.

The claims themselves are in ``dual_diagonal``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.dual_diagonal import (
    claims,
    plain_claim,
    rare_claims,
    share,
    sharper_claim,
    terms,
)
from streamomd.rules.contract import Max, Row, Rule, Sum


class Rows(NamedTuple):
    rarest: Max = 0.0  # 1 / h
    longest: Max = 0.0  # ||x||^2


class RowsAndSharp(NamedTuple):
    rarest: Max = 0.0
    longest: Max = 0.0
    sharp: Sum = 0.0


class Sharp(NamedTuple):
    sharp: Sum = 0.0  # what the coordinate adds to the certificate's Q


def _mistakes(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> RowsAndSharp:
    if not active:
        return RowsAndSharp(totals.rarest, totals.longest, totals.sharp)
    square, chi, taken = row.r
    gain = row.importance * (row.importance * chi + 2.0 * row.y * row.margin) - taken
    return RowsAndSharp(
        max(totals.rarest, 1.0 / row.importance), max(totals.longest, square), totals.sharp + gain
    )


def sop_claims(run: Run) -> list[Claim]:
    return claims(run, 1.0)


def sop_certified(rule: Rule) -> Rule:
    """The diagonal second-order Perceptron with its certificate."""
    accounted = with_accounts(rule, totals=RowsAndSharp, step=_mistakes, terms=terms, gathers=3)
    return certified(rule, sop_claims, accounted)


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
    """The aggressive diagonal learner with its certificate."""
    accounted = with_accounts(
        rule, own=Sharp, update=_lift, totals=Rows, step=_updates, terms=square, gathers=1
    )
    return certified(rule, aggressive_diag_claims, accounted)
