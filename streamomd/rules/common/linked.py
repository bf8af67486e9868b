"""Learners whose weights come through a link: sums over all coordinates, and dual ascent's steps.

Own slots begin with theta, and then its image: see ``links``. Totals begin with S and ref; where
they have ``scale`` and ``at``, w = scale * a in row ``at``.

D(alpha) = sum of alpha - f*(theta) has no closed maximum then. Its second derivative along row j is
at most ``links.curvature`` of the row, so that alpha_j + gap / curvature, clipped, never lowers D,
and sweeps of such steps rise to the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.common.links import (
    PNORM,
    base_of,
    conjugate,
    curvature,
    factor,
    first,
    height,
    image,
    length,
    share,
    shares,
    unfit,
)
from streamomd.rules.contract import (
    CoordinateSums,
    Coords,
    Max,
    Mean,
    RecentRows,
    Row,
    Rule,
    Sum,
    fields,
)
from streamomd.rules.ranges import NORMS

Parameters = Callable[[Any], tuple[float, float, float]]


def observe_share(
    shared: tuple[()], x: float, clock: float, h: Any
) -> tuple[tuple[()], tuple[float, float, float]]:
    """The sums that ``links.norm`` takes."""
    return shared, share(x, h.p)


def observe_shares(
    shared: tuple[()], x: float, clock: float, h: Any
) -> tuple[tuple[()], tuple[float, float, float, float]]:
    """The sums that ``links.length`` takes."""
    return shared, shares(h.link, x, h.p)


def image_mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    """What a coordinate adds to S where b is a slot."""
    return (own.b,)


def pnorm_weight(own: Any, shared: object, totals: Any, clock: float, h: Any) -> Any:
    """||theta||_p sign(theta_i) (|theta_i| / ||theta||_p)^(p-1)."""
    if totals.at == clock:
        return totals.scale * own.a
    return factor(PNORM, totals.S, totals.ref, 1.0, h.p) * own.a


def pnorm_mass(own: Any, shared: object, totals: Any, clock: float, h: Any) -> tuple[float]:
    """What a coordinate adds to the p-norm's S."""
    return (own.a * own.theta / totals.ref if totals.ref > 0.0 else 0.0,)


def linked(rule: Rule, parameters: Parameters, mass: Callable[..., tuple[float]]) -> Rule:
    """The rule with its sums. parameters(h): the link, U and p. mass: see ``CoordinateSums``."""
    Own: Any = rule.state.own
    Totals: Any = rule.state.totals
    names, images = fields(Totals), len(fields(Own)) - 1
    scaled = "scale" in names
    at = names.index("scale") if scaled else 2
    last = at + 2 if scaled else at

    def begin(d: float, h: Any) -> Any:
        return Totals(n=d)

    def prepare(q: object, totals: Any, clock: float, h: Any) -> Any:
        link, U, p = parameters(h)
        scale = factor(link, totals.S, totals.ref, U, p)
        return Totals(*(totals[:at] + (scale, clock) + totals[last:]))  # noqa: RUF005

    def stale(totals: Any, clock: float, h: Any) -> bool:
        return unfit(parameters(h)[0], totals.S, totals.ref)

    def peak(own: Any, shared: object, totals: object, clock: float, h: Any) -> float:
        return height(parameters(h)[0], own.theta)

    def rebase(totals: Any, peak: float, clock: float, h: Any) -> Any:
        if scaled:
            return Totals(*((totals.S, peak) + totals[2:at] + (0.0, 0.0) + totals[last:]))  # noqa: RUF005
        return Totals(*((totals.S, peak) + totals[2:]))  # noqa: RUF005

    def refresh(own: Any, shared: object, totals: Any, clock: float, h: Any) -> Any:
        link, _, p = parameters(h)
        more = image(link, own.theta, totals.ref, base_of(link, totals.ref), p)
        return Own(*((own.theta,) + more[:images]))  # noqa: RUF005

    return replace(
        rule,
        state=replace(rule.state, begin=begin) if "n" in names else rule.state,
        row=replace(rule.row, prepare=prepare) if scaled and not rule.row.prepare else rule.row,
        sums=CoordinateSums(mass, stale, peak, rebase, refresh),
    )


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


def dual_share(x: float, h: Any) -> tuple[float, float, float, float]:
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
            share=dual_share,
            curvature=steepness,
            reduced=lambda params: plain if params["link"] == "l2" else None,
        ),
    )
    return linked(whole, parameters, image_mass)


SINGULAR = 1e-12  # rows this near to parallel have a ridge of maxima: the first point is taken


def edge(b: float, square: float, cross: float, other: float, cap: float) -> float:
    """The best multiplier when the other one is given."""
    gap = b - cross * other
    if square > 0.0:
        return min(max(gap / square, 0.0), cap)
    return cap if gap > 0.0 else 0.0


def dual(a: float, b: float, p: float, q: float, aa: float, ab: float, bb: float) -> float:
    """D of two multipliers: p a + q b - (aa a^2 + 2 ab a b + bb b^2) / 2."""
    return p * a + q * b - 0.5 * (aa * a * a + 2.0 * ab * a * b + bb * b * b)


def maximum(old: Row, new: Row, cross: float, C: float) -> tuple[float, float, float]:
    """The two multipliers, and what they raise D by; ``cross`` is y_i y_j <x_i, x_j>."""
    aa, alpha = old.q
    bb, beta = new.q
    top, cap = old.importance * C, new.importance * C
    p = 1.0 - old.y * old.margin + aa * alpha + cross * beta
    q = 1.0 - new.y * new.margin + cross * alpha + bb * beta
    det = aa * bb - cross * cross
    a, b = 0.0, edge(q, bb, cross, 0.0, cap)
    best = dual(a, b, p, q, aa, cross, bb)
    inside = False
    if det > SINGULAR * aa * bb:
        first, second = (bb * p - cross * q) / det, (aa * q - cross * p) / det
        inside = 0.0 <= first <= top and 0.0 <= second <= cap
        if inside:
            a, b = first, second
            best = dual(a, b, p, q, aa, cross, bb)
    if not inside:
        second = edge(q, bb, cross, top, cap)
        value = dual(top, second, p, q, aa, cross, bb)
        if value > best + SINGULAR * abs(best):
            a, b, best = top, second, value
        first = edge(p, aa, cross, 0.0, top)
        value = dual(first, 0.0, p, q, aa, cross, bb)
        if value > best + SINGULAR * abs(best):
            a, b, best = first, 0.0, value
        first = edge(p, aa, cross, cap, top)
        value = dual(first, cap, p, q, aa, cross, bb)
        if value > best + SINGULAR * abs(best):
            a, b, best = first, cap, value
    return a, b, best - dual(alpha, beta, p, q, aa, cross, bb)
