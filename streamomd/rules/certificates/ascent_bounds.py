"""Certificates of the first-order learners without a link: perceptron, pa1, dual_ascent."""

from __future__ import annotations

from typing import Any

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import few_mistakes

SOURCE = "Shalev-Shwartz & Singer 2006"
ROUNDING = 1e-12
OTHER = "Orabona, Crammer & Cesa-Bianchi, corollary 2 (21)"


def perceptron_claims(run: Run) -> list[Claim]:
    square, loss = float(run.u @ run.u), run.hinge_u(1.0)
    dual = 0.5 * square + run.h.C * loss
    mistakes = few_mistakes(loss, square * run.totals["longest"])
    return [
        Claim("mistakes", run.totals["mistakes"], mistakes, f"{SOURCE}, theorem 2"),
        Claim("dual value", run.totals["dual"], dual, f"{SOURCE}, theorem 1"),
    ]


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


def ascent_claims(run: Run) -> list[Claim]:
    bound = 0.5 * float(run.u @ run.u) + run.h.C * run.hinge_u(1.0)
    return [Claim("dual value", run.totals["D"], bound, "P2, theorem 1")]


def dual_value(totals: Any, clock: float, h: Any) -> Any:
    """The dual value, where a rule stores it."""
    return totals.dual


def ascent_dual(totals: Any, clock: float, h: Any) -> Any:
    """That of ``dual_ascent``."""
    return totals.D
