"""Certificates of the first-order learners without a link: perceptron, pa1, dual_ascent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import complexity, conjugate, few_mistakes, legal, rise
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import Certificate, Max, Row, Rule, Sum

SOURCE = "Shalev-Shwartz & Singer 2006"
ROUNDING = 1e-12
OTHER = "Orabona, Crammer & Cesa-Bianchi, corollary 2 (21)"


class Mistakes(NamedTuple):
    dual: Sum = 0.0  # value
    mistakes: Sum = 0.0
    longest: Max = 0.0  # h ||x||^2 of a mistake


class Capped(NamedTuple):
    dual: Sum = 0.0  # value
    mistakes: Sum = 0.0  # on rows that have features
    hardest: Max = 0.0  # h / least rise of the dual on a mistake


def _risen(dual: float, row: Row, a: float) -> float:
    """The dual value after a step a: it adds a l - a^2 ||x||^2 / 2."""
    return dual + a * float(row.loss - 0.5 * a * row.q[0])


def _mistakes(
    row: Row, totals: Mistakes, active: bool, move: Any, clock: float, h: Any
) -> Mistakes:
    if not active:
        return totals
    return Mistakes(
        dual=_risen(totals.dual, row, abs(move.a)),
        mistakes=totals.mistakes + row.importance,
        longest=max(totals.longest, row.importance * row.q[0]),
    )


def _capped(row: Row, totals: Capped, active: bool, move: Any, clock: float, h: Any) -> Capped:
    if not active:
        return totals
    dual = _risen(totals.dual, row, abs(move.a))
    if row.y * row.margin > 0.0:
        return Capped(dual, totals.mistakes, totals.hardest)
    least = rise(row.q[0], row.importance * h.C, 1.0)
    hardest = max(totals.hardest, row.importance / least)
    return Capped(dual, totals.mistakes + row.importance, hardest)


def dual_value(totals: Any, clock: float, h: Any) -> Any:
    return totals.dual


DUAL = Certificate(live=dual_value, live_name="dual")


def perceptron_claims(run: Run) -> list[Claim]:
    square, loss = float(run.u @ run.u), run.hinge_u(1.0)
    dual = 0.5 * square + run.h.C * loss
    mistakes = few_mistakes(loss, square * run.totals["longest"])
    return [
        Claim("mistakes", run.totals["mistakes"], mistakes, f"{SOURCE}, theorem 2"),
        Claim("dual value", run.totals["dual"], dual, f"{SOURCE}, theorem 1"),
    ]


def perceptron_certified(rule: Rule) -> Rule:
    """The Perceptron with its sums and certificate."""
    whole = with_accounts(rule, totals=Mistakes, step=_mistakes)
    return certified(replace(whole, certificate=DUAL), perceptron_claims)


def capped_claims(run: Run) -> list[Claim]:
    totals = run.totals
    bound = 0.5 * float(run.u @ run.u) + run.h.C * run.hinge_u(1.0)
    mistakes = bound * totals["hardest"]
    claims = [
        Claim("dual value", totals["dual"], bound, f"{SOURCE}, theorem 3"),
        Claim("mistakes", totals["mistakes"], mistakes, f"{SOURCE}, theorem 1"),
    ]
    return [*claims, *never_worse(run)]


def never_worse(run: Run) -> list[Claim]:
    """The Perceptron's bound, where no row is so long that a mistake's step is below C."""
    reach = run.h.C * run.longest()
    if not reach <= 1.0 + ROUNDING:
        return []
    bound = few_mistakes(run.hinge_u(1.0), float(run.u @ run.u) / run.h.C)
    name = "mistakes, never worse than the Perceptron"
    given = f"C max ||x||^2 = {reach:.6g} <= 1"
    return [Claim(name, run.totals["mistakes"], bound, OTHER, given=given)]


def pa1_certified(rule: Rule) -> Rule:
    """PA-I with its sums and certificate."""
    whole = with_accounts(rule, totals=Capped, step=_capped)
    return certified(replace(whole, certificate=DUAL), capped_claims)


def ascent_claims(run: Run) -> list[Claim]:
    bound = 0.5 * float(run.u @ run.u) + run.h.C * run.hinge_u(1.0)
    return [Claim("dual value", run.totals["D"], bound, "P2, theorem 1")]


def ascent_dual(totals: Any, clock: float, h: Any) -> Any:
    """That of ``dual_ascent``."""
    return totals.D


def linked_claims(run: Run) -> list[Claim]:
    if "D" in run.totals:
        return ascent_claims(run)
    h, t = run.h, run.totals
    dual = t["alphas"] - conjugate(h.link, t["S"], t["ref"], t["n"], h.U, h.p)
    bound = complexity(h.link, run.u, h.U, h.p) + h.C * run.hinge_u(1.0)
    return [Claim("dual value", dual, bound, "P2, theorem 1")]


def link_set(slots: Any, h: Any) -> ComparatorSet:
    return legal(h.link, h.U)


def with_sets(rule: Rule) -> Rule:
    """Dual ascent with a link, and its certificate."""
    certificate = replace(rule.certificate, claims=linked_claims, feasible=link_set)
    return replace(rule, certificate=certificate)
