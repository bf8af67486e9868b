"""Certificates of ons, vaw and rls: regret and squared errors, with a full matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import weighted_balls
from streamomd.rules.common.full_matrix import log_volume
from streamomd.rules.common.sets import ComparatorSet

NONE = 0.0  # the ball of ``ons``


def ons_claims(run: Run) -> list[Claim]:
    h, totals, u = run.h, run.totals, np.asarray(run.u)
    if h.implicit:
        raise ValueError("it is proven for explicit steps")
    if math.isnan(run.lipschitz):
        if h.gamma * totals["steepest"] > 1.0:
            most = 1.0 / totals["steepest"]
            raise ValueError(f"gamma h (y - yhat)^2 came to more than 1: gamma <= {most:.3g} would")
    else:
        widest = max(totals["widest"], run.widest_u)
        most = math.exp(-widest) / max(totals["heaviest"], 1e-300)
        if h.gamma > most:
            flags = suggestion(h, run.longest(), totals["heaviest"])
            raise ValueError(
                f"with margins of up to {widest:.3g} it is proven for gamma <= {most:.3g}, not for "
                f"{h.gamma:g}; a smaller gamma alone takes longer steps: train with {flags} for a "
                "claim on these rows"
            )
    ridge = 0.5 * h.gamma * h.epsilon * float(u @ u)
    regret, source = run.loss - run.loss_u, "Hazan, Agarwal & Kale 2007, theorem 2"
    return [
        Claim("regret", regret, ridge + totals["cost"] / (2.0 * h.gamma), source),
        Claim("regret, by the volume", regret, ridge + log_volume(run) / (2.0 * h.gamma), source),
    ]


def suggestion(h: Any, longest: float, heaviest: float) -> str:
    """Flags with which every run over rows of ||x||^2 <= longest has a claim (logistic loss).

    In a ball of this radius no margin is beyond B = radius max ||x||, and gamma h <= exp(-B). The
    radius is the run's own, or the one that makes B = 1.
    """
    length = math.sqrt(longest)
    own = h.ball != NONE and h.radius > 0.0
    radius = h.radius if own else _rounded_down(1.0 / max(length, 1e-300))
    gamma = _rounded_down(math.exp(-radius * length) / max(heaviest, 1e-300))
    ball = "" if own else f"--set model.params.ball=l2 --set model.params.radius={radius:.3g} "
    return f"{ball}--set model.params.gamma={gamma:.3g}"


def _rounded_down(value: float) -> float:
    """The number of three digits that is not above the value."""
    near = float(f"{value:.2e}")
    digit = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0.0 else 0.0
    return near if near <= value else float(f"{near - digit:.2e}")


def vaw_claims(run: Run) -> list[Claim]:
    regret = run.loss - run.loss_u
    ridge = 0.5 * run.h.a * float(run.u @ run.u) + run.totals["extra"]
    volume = 0.5 * run.totals["Y"] * log_volume(run)
    source = "Orabona, Crammer & Cesa-Bianchi 2015, section 4"
    return [
        Claim("regret", regret, ridge + 0.5 * run.totals["cost"], source),
        Claim("regret, by the volume", regret, ridge + volume, source),
    ]


def rls_claims(run: Run) -> list[Claim]:
    bound = run.h.a * float(run.u @ run.u) + run.square_u
    source = "the ridge solution by rank-one updates; exact"
    return [Claim("square error, discounted", run.totals["error"], bound, source)]


def ons_set(slots: Any, h: Any) -> ComparatorSet:
    return weighted_balls.feasible(
        weighted_balls.NONE if h.ball == NONE else weighted_balls.L2, h.radius
    )
