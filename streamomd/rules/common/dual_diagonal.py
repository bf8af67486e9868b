r"""Shared parts of the diagonal second-order learners in dual form (P0, section 6.3).

Slots: theta, and S = sum of x^2 / r over the rows that caused an update; D = 1 + S. The prediction
includes the row's own square: yhat = sum theta_i x_i / (D_i + x_i^2 / r). S is stored
instead of D because squares far below 1 would be lost in 1 + S: the certificate uses ln(1 + S).

The certificates, with c = 1 where theta += y x, c = r where theta += y x / r, h the importance and
``upd`` the rows that caused an update:

    sum of h over upd <= L(u) + sqrt(sum u^2 D) sqrt(Q),

    sharper: Q = sum over upd of h^2 x'D_t^-1 x + 2 c h y yhat + c^2 theta'(D_t^-1 - D_t-1^-1) theta
    (22):    Q = max h^2 r sum ln D + 2 c U,  U = sum of h over right predictions with an update.

This is for rows that D counts once (``sop_diag``); ``aggressive_second_order_diag`` counts them h
times and has accounts of its own. Where U = 0, (23) bounds it by u, the longest row and L(u) alone.
The sharper line and (23) need sums over each row that predictions do not need: the accounts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.contract import Max, Row, Sum

SOURCE = "Orabona, Crammer & Cesa-Bianchi, section 6.3"


class Own(NamedTuple):
    theta: Sum = 0.0
    S: Sum = 0.0


class Totals(NamedTuple):
    updates: Sum = 0.0
    margins: Sum = 0.0
    largest: Max = 0.0


class Move(NamedTuple):
    a: float


UNIT = 0.0  # the scale of ``aggressive_second_order_diag``


def share(h: Any) -> float:
    """What theta is smaller by than the certificate's sum of y x."""
    return 1.0 if h.scale == UNIT else float(h.r)


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.theta / (1.0 + own.S)


def part(own: Own, shared: object, x: float, totals: object, clock: float, h: Any) -> float:
    return own.theta * x / float(1.0 + own.S + x * x / h.r)


def terms(
    own: Own, shared: object, x: float, totals: object, clock: float, h: Any
) -> tuple[float, float, float]:
    """x^2, x^2 / D_t and what the row takes from theta' D^-1 theta."""
    before = 1.0 + own.S
    after = before + x * x / h.r
    return x * x, x * x / after, (own.theta / after) * (own.theta / before) * (x * x / h.r)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.theta + move.a * x, own.S + x * x / h.r)


def count(row: Row, totals: Any) -> Totals:
    """The totals after a row with an update."""
    return Totals(
        totals.updates + row.importance,
        totals.margins + (row.importance if row.y * row.margin > 0.0 else 0.0),
        max(totals.largest, row.importance),
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
