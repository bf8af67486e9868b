"""Dual ascent whose weights come through a link: a multiplier's step by a bound on the curvature.

D(alpha) = sum of alpha - f*(theta) has no closed maximum then. Its second derivative along row j is
at most ``links.curvature`` of the row, so that alpha_j + gap / curvature, clipped, never lowers D,
and sweeps of such steps rise to the maximum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common.linked import image_mass, linked
from streamomd.rules.common.links import (
    base_of,
    conjugate,
    curvature,
    factor,
    first,
    image,
    length,
    shares,
)
from streamomd.rules.contract import Coords, Max, Mean, RecentRows, Row, Rule, Sum
from streamomd.rules.ranges import NORMS


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # of theta and ref: see links
    b: Mean = 0.0


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    n: Max = 0.0  # all coordinates
    alphas: Sum = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    base: float
    link: float
    p: float


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Any) -> float:
    return factor(h.link, totals.S, totals.ref, h.U, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Any) -> tuple[bool, Move, Totals]:
    """One multiplier's step; row.q is the bound on the curvature and the multiplier."""
    kappa, alpha = row.q
    gap, cap = 1.0 - row.y * row.margin, row.importance * h.C
    if kappa > 0.0:
        change = min(max(alpha + gap / kappa, 0.0), cap) - alpha
    else:
        change = (cap if gap > 0.0 else 0.0) - alpha
    ref = first(h.link, totals.ref, change)
    move = Move(change * row.y, ref, base_of(h.link, ref), h.link, h.p)
    found = Totals(S=totals.S, ref=ref, n=totals.n, alphas=totals.alphas + change)
    return change != 0.0, move, found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Any) -> Own:
    theta = own.theta + move.a * x
    a, b = image(move.link, theta, move.ref, move.base, move.p)
    return Own(theta, a, b)


def share(x: float, h: Any) -> tuple[float, float, float, float]:
    return shares(h.link, x, h.p)


def steepness(q: tuple[float, float, float, float], h: Any) -> float:
    return curvature(h.link, length(h.link, q, h.p), h.U, h.p)


def parameters(h: Any) -> tuple[float, float, float]:
    return h.link, h.U, h.p


def dual_value(totals: Any, clock: float, h: Any) -> Any:
    return totals.alphas - conjugate(h.link, totals.S, totals.ref, totals.n, h.U, h.p)


def with_links(plain: Rule) -> Rule:
    """Dual ascent with any link; with l2 it takes the form ``plain``."""
    storage: Any = plain.storage
    whole = replace(
        plain,
        state=replace(plain.state, own=Own, totals=Totals, move=Move),
        weight=weight,
        step=step,
        update=update,
        row=replace(plain.row, range=NORMS),
        certificate=replace(plain.certificate, live=dual_value),
        storage=RecentRows(
            storage.pair,
            storage.cap,
            storage.tolerance,
            depth=storage.depth,
            share=share,
            curvature=steepness,
            reduced=lambda params: plain if params["link"] == "l2" else None,
        ),
    )
    return linked(whole, parameters, image_mass)
