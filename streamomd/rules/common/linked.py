"""Learners whose weights come through a link: the sums over all coordinates that it needs.

Own slots begin with theta, and then its image: see ``links``. Totals begin with S and ref; where
they have ``scale`` and ``at``, w = scale * a in row ``at``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamomd.rules.common.links import PNORM, base_of, factor, height, image, share, shares, unfit
from streamomd.rules.contract import CoordinateSums, Rule, fields

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
        found = image(link, own.theta, totals.ref, base_of(link, totals.ref), p)
        return Own(*((own.theta,) + found[:images]))  # noqa: RUF005

    return replace(
        rule,
        state=replace(rule.state, begin=begin) if "n" in names else rule.state,
        row=replace(rule.row, prepare=prepare) if scaled and not rule.row.prepare else rule.row,
        sums=CoordinateSums(mass, stale, peak, rebase, refresh),
    )
