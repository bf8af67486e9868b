r"""sNAG: normalized adaptive gradient with mean-square scales (P1, section 4 and table 3).

Scale of coordinate i: sqrt(s_i / t), with s_i = sum of x_i^2 so far, this row counted. Then as NAG,
without a squash: N += sum x_i^2 t / s_i, and with g the loss's slope,

    G_i += (g x_i)^2,    w_i <- w_i - eta sqrt(t / N) g x_i / (sqrt(s_i / t) sqrt(G_i)).

P1 leaves open which scale N uses; here it is the same one. Predictions do not change when any
feature is multiplied by any constant that leaves its values in range: s and G hold squares. Use it
instead of NAG when a feature has rare huge values, which a maximum would never forget. No regret
bound is proven for it.

Cost: O(nnz).

>>> from streamomd.training.demo import score
>>> score("snag"), score("snag", "square"), score("snag", implicit=True)
(0.41, 4.796, 0.355)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.contract import Certificate, Observe, RowHooks, Rule, Slots, Sum
from streamomd.rules.nag import Hyper, Move, Own, Totals, step, stretch, weight
from streamomd.rules.ranges import SQUARES


class Shared(NamedTuple):
    s: Sum = 0.0


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[float]]:
    s = shared.s + x * x
    r = x / math.sqrt(s / clock) if s > 0.0 else 0.0  # x * x underflowed: 0/0 = 0
    return Shared(s), (r * r,)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0 or shared.s == 0.0:  # a square underflowed: 0/0 = 0
        return own
    return Own(own.w - move.step * (x / (math.sqrt(shared.s / clock) * math.sqrt(G))), G)


RULE = Rule(
    name="snag",
    title="normalized adaptive gradient with mean-square scales: raw units, rare huge values",
    source="Ross, Mineiro & Langford 2013, section 4",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, shared=Shared, totals=Totals, weight="w", curvature="G"),
    observe=Observe(observe, sums=1),
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(range=SQUARES, stretch=stretch, implicit="implicit"),
    certificate=Certificate(
        reason="Ross et al. prove a bound for the projected form only: see nag_projected"
    ),
)
