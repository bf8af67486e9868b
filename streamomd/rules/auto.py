"""auto: two predictors on standardised inputs, mixed; the default.
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.common.standardized import (
    RANGE,
    Hyper,
    Move,
    Shared,
    Totals,
    gradient,
    grown,
    mixed,
    newton,
    precision,
    reach,
    share,
)
from streamomd.rules.contract import Block, Mean, Params, RowHooks, Rule, Slots, Sum


class Own(NamedTuple):
    """w, S: weight and summed curvature of B. g, H: weight and summed squared slopes of G."""

    w: Mean = 0.0
    S: Sum = 0.0
    g: Mean = 0.0
    H: Sum = 0.0


def weight(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    part = share(totals, h)
    return part * own.w + (1.0 - part) * own.g


def terms(
    own: Own, shared: Shared, x: float, scale: float, h: Hyper
) -> tuple[float, float, float]:
    if shared.place > 0.0:
        return 0.0, 0.0, own.g * x
    D = precision(own.S, shared.q, scale, h)
    return own.w * x, x * (x / D) if D > 0.0 else 0.0, own.g * x


def pull(own: Own, shared: Shared, x: float, slope: float, importance: float) -> float:
    return reach(grown(own.H, x, slope, importance), shared.q, x)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    w, S = own.w, own.S
    if shared.place == 0.0:
        w, S = newton(w, S, shared.q, x, move, h)
    g, H = own.g, own.H
    if h.prefer == 0.0:
        g, H = gradient(g, H, shared.q, x, move)
    return Own(w, S, g, H)


def most(params: Params) -> int:
    return int(params["block"])


RULE = Rule(
    name="auto",
    title="online Laplace steps and AdaGrad on standardised inputs, mixed; nothing to tune",
    source="docs/choosing-a-rule.md",
    hyper=Hyper,
    state=Slots(own=Own, shared=Shared, totals=Totals, move=Move),
    weight=weight,
    step=mixed,
    update=update,
    row=RowHooks(importance="copies", range=RANGE),
    storage=Block(second=True, first=True, terms=terms, pull=pull, most=most),
)
