"""Certificates of sop, arow and aggressive_second_order, with a full matrix (P0, section 6.2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.certificates.newton_bounds import form, log_volume
from streamomd.rules.common.full_matrix import unit
from streamomd.rules.contract import Max, Row, Rule, Sum


class Updates(NamedTuple):
    updates: Sum = 0.0  # of h, where it learned
    lift: Sum = 0.0  # of what each update subtracts from the bound
    heaviest: Max = 0.0  # h that it learned with


def margin_claims(run: Run, r: float, unit: float, power: float) -> list[Claim]:
    """Bounds on the updates, by weight, of learners that add unit y x to theta and x x'/r to A.

    P0's proof, with importances: an update of importance h adds h unit y x, and h x x'/r where
    ``power`` is 1, x x'/r where it is 2. The first bound is its last step before anything is given
    away, <u, theta> <= |u|_A |theta|_(A^-1).
    """
    source = "Orabona, Crammer & Cesa-Bianchi 2015, section 6.2"
    hinge, totals = run.hinge_u(1.0), run.totals
    far = form(run, run.u, 1.0)
    dual = max(form(run, np.asarray(run.own["mu"]), 1.0), 0.0)
    volume = totals["heaviest"] ** power * log_volume(run)
    spread = np.sqrt(max(volume + totals["lift"], 0.0))
    name, updates = "updates, the mistakes among them", totals["updates"]
    return [
        Claim(name, updates, float(hinge + np.sqrt(far * dual) / unit), source),
        Claim(f"{name}; by the volume", updates, float(hinge + np.sqrt(r * far) * spread), source),
    ]


def _with_lift(totals: Updates, row: Row, lift: float) -> Updates:
    """The sums after an update."""
    times = row.importance
    return Updates(totals.updates + times, totals.lift + lift, max(totals.heaviest, times))


def _sop(row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any) -> Updates:
    if not active:
        return totals
    m, chi = row.r
    return _with_lift(totals, row, m * (2.0 * row.importance * row.y - m) / (1.0 + chi))


def _scaled_lift(row: Row, n: float, r: float) -> float:
    """What an update of h x x'/r subtracts from the bound; n: the mean on AROW's scale."""
    chi: float = row.r[1]
    return row.importance * r * n * (2.0 * row.y - n) / (r + row.importance * chi)


def _arow(row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any) -> Updates:
    if not active:
        return totals
    return _with_lift(totals, row, _scaled_lift(row, row.r[0], h.r))


def _aggressive(
    row: Row, totals: Updates, active: bool, move: Any, clock: float, h: Any
) -> Updates:
    if not active:
        return totals
    return _with_lift(totals, row, _scaled_lift(row, row.r[0] / (unit(h) * h.r), h.r))


def sop_claims(run: Run) -> list[Claim]:
    return margin_claims(run, 1.0, 1.0, 2.0)


def arow_claims(run: Run) -> list[Claim]:
    return margin_claims(run, run.h.r, 1.0 / run.h.r, 1.0)


def aggressive_claims(run: Run) -> list[Claim]:
    return margin_claims(run, run.h.r, unit(run.h), 1.0)


def sop_certified(rule: Rule) -> Rule:
    """The second-order Perceptron with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_sop), sop_claims)


def arow_certified(rule: Rule) -> Rule:
    """AROW with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_arow), arow_claims)


def aggressive_certified(rule: Rule) -> Rule:
    """The aggressive second-order learner with its sums and certificate."""
    return certified(with_accounts(rule, totals=Updates, step=_aggressive), aggressive_claims)
