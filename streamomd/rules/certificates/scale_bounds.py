"""Certificates of the scale-invariant learners: si_pnorm and si_adagrad (P0, theorem 1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.contract import Max, Row, Rule


class Steepest(NamedTuple):
    steepest: Max = 0.0  # h times the loss's slope


def si_pnorm_claims(run: Run) -> list[Claim]:
    h, t, size = run.h, run.totals, np.abs(run.u * run.shared["b"])
    q, taxi = t["p"] / (t["p"] - 1.0), float(size.sum())
    top = float(size.max(initial=0.0)) or 1.0
    norm = top * float(((size / top) ** q).sum()) ** (1.0 / q)
    measured, source = run.loss - run.loss_u, "Orabona et al., theorem 1"
    sharp = 0.5 * t["beta"] * norm * norm / h.eta + 0.5 * h.eta * t["paid"]
    claims = [Claim("regret", measured, sharp, f"{source} (16)")]
    if t["steepest"] <= h.L * (1.0 + 1e-12):
        rest = 0.5 * taxi * taxi / h.eta + h.eta
        following = math.sqrt(math.e * h.L * h.L * (t["p"] - 1.0) + t["B"])
        widest = h.L * math.sqrt(math.e * (run.rows + 1.0) * (t["p"] - 1.0))
        claims.append(Claim("regret", measured, following * rest, f"{source}, its last beta"))
        claims.append(Claim("regret", measured, widest * rest, source))
    return claims


def _steepest(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Steepest:
    return Steepest(max(totals.steepest, abs(move.g)))


def si_adagrad_claims(run: Run) -> list[Claim]:
    h, b = run.h, run.shared["b"]
    if run.totals["steepest"] > h.L * (1.0 + 1e-12):
        raise ValueError("an importance times a slope of the loss was above L: give a larger L")
    root, square = run.totals["root"], (run.u * b) ** 2
    pace = np.sqrt(h.L * h.L + run.own["Q"])
    sharp = float(pace @ (0.5 * root * square / h.eta + h.eta / root))
    wide = h.L * root * math.sqrt(run.rows + 1.0) * (0.5 * float(square.sum()) / h.eta + h.eta)
    measured, source = run.loss - run.loss_u, "Orabona et al., theorem 1"
    return [
        Claim("regret", measured, sharp, f"{source} (18)"),
        Claim("regret", measured, wide, source),
    ]


def si_adagrad_certified(rule: Rule) -> Rule:
    """Scale-invariant AdaGrad with its maximum and certificate."""
    return certified(with_accounts(rule, totals=Steepest, step=_steepest), si_adagrad_claims)
