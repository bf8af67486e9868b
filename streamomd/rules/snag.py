r"""sNAG: normalized adaptive gradient with mean-square scales (P1, section 4 and table 3).

Scale of coordinate i: sqrt(s_i / t), with s_i = sum of x_i^2 so far, this row counted. Then as NAG:
N += sum x_i^2 t / s_i, and with g the loss's slope,

    G_i += (g x_i)^2,    w_i <- w_i - eta sqrt(t / N) g x_i / (sqrt(s_i / t) sqrt(G_i)).

P1 leaves open which scale N uses; here it is the same one. Predictions do not change when any
feature is multiplied by any constant that leaves its values in range: s and G hold squares. No
regret bound is proven for it.

Set ``squash`` unless nearly all values of a feature have one size. The first step of a coordinate
is eta / abs(x_i): a first value near 0 makes a weight that is far too large for the values that
follow, and as later steps fall with 1 / sqrt(t), it takes thousands of rows to unlearn. With
``squash``, as in NAG, b_i is the largest scale so far, and before the prediction a coordinate whose
scale grew beyond it is squashed, w_i <- w_i b_i / sqrt(s_i / t). P1 has no squash here, so it is
off by default. With it, use sNAG instead of NAG when a feature has rare huge values, which a
maximum would never forget.

Cost: O(nnz).

>>> from streamomd.training.demo import score
>>> score("snag"), score("snag", squash=True), score("nag")
(0.41, 0.1, 0.101)
>>> score("snag", "square"), score("snag", "square", squash=True), score("nag", "square")
(4.796, 0.372, 0.372)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.rules.contract import (
    Certificate,
    Coordinates,
    Max,
    Observe,
    Params,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.nag import Move, Own, Totals, step, stretch, weight
from streamomd.rules.params import Positive, YesNo
from streamomd.rules.ranges import SQUARES


class Hyper(NamedTuple):
    eta: Positive = 0.5
    implicit: YesNo = 0.0
    squash: Annotated[YesNo, "true unless the values of each feature have one size"] = 0.0


class Shared(NamedTuple):
    s: Sum = 0.0


class Scaled(NamedTuple):
    s: Sum = 0.0
    b: Max = 0.0


def observe(shared: Any, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[float]]:
    s = shared.s + x * x
    r = x / math.sqrt(s / clock) if s > 0.0 else 0.0  # x * x underflowed: 0/0 = 0
    return Shared(s), (r * r,)


def observe_scale(shared: Scaled, x: float, clock: float, h: Hyper) -> tuple[Scaled, tuple[float]]:
    plain, q = observe(shared, x, clock, h)
    return Scaled(plain.s, max(shared.b, math.sqrt(plain.s / clock))), q


def align(own: Own, old: Scaled, new: Scaled, totals: Totals, clock: float, h: Hyper) -> Own:
    if h.squash == 0.0 or new.b == 0.0:
        return own
    return Own(own.w * (old.b / new.b), own.G)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0 or shared.s == 0.0:  # a square underflowed: 0/0 = 0
        return own
    return Own(own.w - move.step * (x / (math.sqrt(shared.s / clock) * math.sqrt(G))), G)


PLAIN = Rule(
    name="snag",
    title="normalized adaptive gradient with mean-square scales: raw units, rare huge values",
    source="Ross, Mineiro & Langford 2013, section 4",
    hyper=Hyper,
    state=Slots(
        own=Own, shared=Shared, totals=Totals, weight="w", move=Move, curvature="G",
        degrees=(("s", 2),),
    ),
    observe=Observe(observe, sums=1),
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(range=SQUARES, stretch=stretch, implicit="implicit"),
    certificate=Certificate(
        reason="Ross et al. prove a bound for the projected form only: see nag_projected"
    ),
)  # fmt: skip


def reduced(params: Params) -> Rule | None:
    return None if params["squash"] else PLAIN


RULE = replace(
    PLAIN,
    state=replace(PLAIN.state, shared=Scaled, degrees=(("s", 2), ("b", 1))),
    observe=Observe(observe_scale, sums=1),
    align=align,
    storage=Coordinates(reduced=reduced),
)
