"""Certificates of AdaGrad (P4): mirror descent and dual averaging (theorem 5), full matrix
(theorem 8).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.accounts import certified, with_accounts
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.adagrad_forms import averaged_in_ball, in_ball, reducer
from streamomd.rules.common.schedules import delta_of
from streamomd.rules.common.sets import lead, phi
from streamomd.rules.common.weighted_balls import NONE
from streamomd.rules.contract import Coordinates, Max, Min, Row, Rule, Sum

MIRROR = 0.0  # the update of ``adagrad_full``


class Mirror(NamedTuple):
    s: Sum = 0.0  # of (H_t - H_{t-1}) w_t
    q: Sum = 0.0  # of (H_t - H_{t-1}) w_t^2
    low: Min = 0.0  # of w_t
    high: Max = 0.0
    paid: Sum = 0.0  # of (g x_i)^2 / H_t


class Averaging(NamedTuple):
    steepest: Max = 0.0  # of abs(g x_i)
    paid: Sum = 0.0  # of (g x_i)^2 / H_t


class Longest(NamedTuple):
    longest: Max = 0.0  # of ||g x||^2


class Spread(NamedTuple):
    low: Min = 0.0  # of w_t
    high: Max = 0.0


def certified_forms(rule: Rule) -> Rule:
    """AdaGrad by mirror descent, in its ball and reduced forms, with its certificate."""
    ball, weight = in_ball(rule), rule.weight
    Own: Any = rule.state.own

    def update(own: Any, shared: object, x: float, move: Any, clock: float, h: Any) -> Any:
        """As the learner's, by one formula with and without phi."""
        z = move.g * x
        G = own.G + z * z
        H = h.delta + math.sqrt(G)
        if H == 0.0:
            return own
        w = weight(own, shared, None, clock, h)
        return Own(lead(H * w - move.step * x, H, h.eta, h.l1, h.l2, h.box), G, clock)

    def account(
        own: Any, after: Any, shared: object, x: float, move: Any, clock: float, h: Any
    ) -> Mirror:
        z, H = move.g * x, h.delta + math.sqrt(after.G)
        if H == 0.0:
            return Mirror(own.s, own.q, own.low, own.high, own.paid)
        w = weight(own, shared, None, clock, h)
        grown = (H - h.delta) - math.sqrt(own.G)
        return Mirror(
            own.s + grown * w,
            own.q + grown * w * w,
            min(own.low, w),
            max(own.high, w),
            own.paid + z * z / H,
        )

    accounted = with_accounts(replace(ball, update=update), own=Mirror, update=account)
    whole = certified(ball, mirror_claims, accounted)
    return replace(whole, storage=Coordinates(reduced=reducer(whole)))


def mirror_claims(run: Run) -> list[Claim]:
    own, u, h, root = run.own, run.u, run.h, np.sqrt(run.own["G"])
    if h.implicit:
        raise ValueError("theorem 5 is about explicit steps; this run took implicit ones")
    if h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    start = 0.5 * h.delta * float(u @ u) / h.eta
    center = float(root @ (u * u)) - 2.0 * float(u @ own["s"]) + float(own["q"].sum())
    sharp = start + 0.5 * center / h.eta + 0.5 * h.eta * float(own["paid"].sum())
    reach = np.maximum(np.abs(u - own["low"]), np.abs(u - own["high"]))
    wide = start + 0.5 * float(root @ (reach * reach)) / h.eta + h.eta * float(root.sum())
    measured = run.loss - run.loss_u - run.rows * phi(u, h.l1, h.l2)
    name = "regret with phi" if h.l1 or h.l2 else "regret"
    claims = [
        Claim(name, measured, sharp, "Duchi et al., theorem 5, before its last step"),
        Claim(name, measured, wide, "Duchi et al., theorem 5 (16)"),
    ]
    if h.box > 0.0 and math.isclose(h.eta, math.sqrt(2.0) * h.box, rel_tol=1e-12):
        bound = 2.0 * math.sqrt(2.0) * h.box * float(root.sum()) + start
        claims.append(Claim(name, measured, bound, "Duchi et al., corollary 6"))
    return claims


def _averaging_account(
    own: Any, after: Any, shared: Any, x: float, move: Any, clock: float, h: Any
) -> Averaging:
    z, H = move.g * x, delta_of(shared, h) + math.sqrt(own.G)
    paid = z * (z / H) if H > 0.0 else 0.0
    return Averaging(max(own.steepest, abs(z)), own.paid + paid)


def averaging_certified(rule: Rule) -> Rule:
    """AdaGrad by dual averaging, in its ball, with its certificate."""
    ball = averaged_in_ball(rule)
    accounted = with_accounts(ball, own=Averaging, update=_averaging_account)
    return certified(ball, averaging_claims, accounted)


def averaging_claims(run: Run) -> list[Claim]:
    own, u, h = run.own, run.u, run.h
    if h.project_every > 1.0:
        raise ValueError("the weights were not projected before each row")
    delta = np.full(len(u), h.delta) if h.delta > 0.0 else h.L * run.shared["b"]
    root, square = np.sqrt(own["G"]), u * u
    start, steps = float(delta @ square), h.eta * float(root.sum())
    sharp = (start + float(root @ square)) / (2.0 * h.eta) + 0.5 * h.eta * float(own["paid"].sum())
    wide = (start + float(root @ square)) / (2.0 * h.eta) + steps
    widest = (start + float(square.max(initial=0.0)) * float(root.sum())) / h.eta + steps
    measured = run.loss - run.loss_u - run.rows * phi(u, h.l1, h.l2)
    name = "regret with phi" if h.l1 or h.l2 else "regret"
    source = "Duchi et al., theorem 5"
    claims = [Claim(name, measured, sharp, f"{source}, before its last step")]
    if bool(np.all(own["steepest"] <= delta * (1.0 + 1e-12))):
        claims.append(Claim(name, measured, wide, f"{source} (15)"))
        claims.append(Claim(name, measured, widest, "Duchi et al., before corollary 6"))
    return claims


def _full_account(
    own: Any, after: Any, shared: object, w: float, move: Any, clock: float, h: Any
) -> Spread:
    return Spread(min(own.low, w), max(own.high, w))


def _longest(row: Row, totals: Longest, active: bool, move: Any, clock: float, h: Any) -> Longest:
    return Longest(max(totals.longest, move.g * move.g * row.q[0]))


def full_certified(rule: Rule) -> Rule:
    """AdaGrad with a full matrix, its maximum and its certificate."""
    whole = with_accounts(rule, totals=Longest, step=_longest)
    return certified(whole, full_claims, with_accounts(whole, own=Spread, update=_full_account))


def full_claims(run: Run) -> list[Claim]:
    h, u = run.h, np.asarray(run.u)
    if h.every > 1.0:
        raise ValueError("the root is not renewed on every row")
    if h.implicit:
        raise ValueError("it is proven for explicit steps")
    rows = np.asarray(run.extra["matrix"])[:, : len(u)]
    roots = np.sqrt((rows * rows).sum(axis=1))
    trace = float(roots.sum())
    regret = run.loss - run.loss_u - run.rows * phi(u, h.l1, h.l2)
    source = "Duchi, Hazan & Singer 2011, theorem 8"
    norm = h.delta * float(u @ u)
    if h.update == MIRROR:
        reach = np.maximum(np.abs(u - run.own["low"]), np.abs(u - run.own["high"]))
        far = float(reach @ reach)
        if h.ball != NONE:
            far = min(far, (float(np.linalg.norm(u)) + h.radius) ** 2)
        bound = (norm + far * trace) / (2.0 * h.eta) + h.eta * trace
    else:
        if h.delta**2 < run.totals["longest"]:
            least = float(np.sqrt(run.totals["longest"]))
            raise ValueError(f"the primal-dual form needs delta >= {least:.6g} on this run")
        spread = float(((rows @ u) ** 2)[roots > 0.0] @ (1.0 / roots[roots > 0.0]))
        bound = (norm + spread) / (2.0 * h.eta) + h.eta * trace
    return [Claim("regret", regret, bound, source)]


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
