"""The sum of powers of SI p-norm: slots, and the passes over all coordinates that recompute it.

The slot ``rp`` holds (r_i / scale)^(p-1), r_i = abs(theta_i) / b_i: the scale, a total,
prevents overflow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from streamomd.rules.contract import CoordinateSums, Coords, Max, Sum

LEAST, MOST = (
    1e-24,
    1e24,
)  # of the sum of powers, else it is recomputed; float32 holds the parts


class Shared(NamedTuple):
    b: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    rp: Sum = 0.0


class Totals(NamedTuple):
    sum: Coords = 0.0  # of (r / scale)^p
    scale: Max = 1.0
    p: Max = 2.0
    p_of_rp: Max = 2.0  # what p was when rp was last computed for all
    m: Max = 0.0
    B: Sum = 0.0  # beta^2 but for its first term
    beta: Max = 0.0  # of the last row
    paid: Sum = 0.0  # of (p - 1) ||g x / b||_p^2 / beta
    steepest: Max = 0.0
    ahead: Max = 0.0  # beta for the next row


def ratio(own: Own, shared: Shared, scale: float) -> float:
    """r / scale."""
    return abs(own.theta) / shared.b / scale if shared.b > 0.0 else 0.0


def powered(r: float, power: float) -> float:
    return r if power == 1.0 else math.pow(r, power)


def align(own: Own, old: Shared, new: Shared, totals: Totals, clock: float, h: Any) -> Own:
    r = ratio(own, new, totals.scale)
    return Own(own.theta, powered(r, totals.p_of_rp - 1.0))


def mass(own: Own, shared: Shared, totals: Totals, clock: float, h: Any) -> tuple[float]:
    return (ratio(own, shared, totals.scale) * own.rp,)


def stale(totals: Totals, clock: float, h: Any) -> bool:
    return totals.p != totals.p_of_rp or totals.sum > MOST or 0.0 < totals.sum < LEAST


def peak(own: Own, shared: Shared, totals: Totals, clock: float, h: Any) -> float:
    return ratio(own, shared, 1.0)


def rebase(totals: Totals, peak: float, clock: float, h: Any) -> Totals:
    t = totals
    return Totals(
        sum=t.sum,
        scale=peak if peak > 0.0 else t.scale,
        p=t.p,
        p_of_rp=t.p,
        m=t.m,
        B=t.B,
        beta=t.beta,
        paid=t.paid,
        steepest=t.steepest,
        ahead=t.ahead,
    )


def refresh(own: Own, shared: Shared, totals: Totals, clock: float, h: Any) -> Own:
    r = ratio(own, shared, totals.scale)
    return Own(own.theta, powered(r, totals.p_of_rp - 1.0))


POWER_SUMS = CoordinateSums(mass, stale, peak, rebase, refresh)
