r"""NAG: normalized adaptive gradient (P1, algorithm 2).

Scale s_i = max abs(x_i) so far. Before the prediction a coordinate with a larger value is
squashed, w_i <- w_i s_i / abs(x_i), and N += sum x_i^2 / s_i^2. After it, with g the loss's slope,

    G_i += (g x_i)^2,    w_i <- w_i - eta sqrt(t / N) g x_i / (s_i sqrt(G_i)).

Predictions do not change when any feature is multiplied by any constant that leaves its values in
range: G holds squares. They do when a constant is added: a column far from 0, such as a year,
is learned slowly unless data.standardize centres it. Use it when features come in raw units: one
eta near 1 fits most data. No regret bound is proven for this form (P1 proves the projected one).

Cost: O(nnz).

>>> from streamomd.training.demo import score
>>> score("nag"), score("nag", "square"), score("nag", implicit=True)
(0.101, 0.372, 0.102)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.contract import (
    Certificate,
    Max,
    Mean,
    Observe,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Positive, YesNo
from streamomd.rules.ranges import SQUARES


class Hyper(NamedTuple):
    eta: Positive = 0.5
    implicit: YesNo = 0.0


class Shared(NamedTuple):
    s: Max = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


class Totals(NamedTuple):
    N: Sum = 0.0


class Move(NamedTuple):
    g: float
    step: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[float]]:
    s = max(shared.s, abs(x))
    r = x / s
    return Shared(s), (r * r,)


def align(own: Own, old: Shared, new: Shared, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(own.w * (old.s / new.s), own.G)


def weight(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    N = totals.N + row.q[0]
    pace = h.eta * math.sqrt(clock / N) if N > 0.0 else 0.0
    return g != 0.0, Move(g, pace * g), Totals(N)


def stretch(move: Move, factor: float) -> Move:
    return Move(move.g, move.step * factor)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    return Own(own.w - move.step * (x / (shared.s * math.sqrt(G))), G)


RULE = Rule(
    name="nag",
    title="normalized adaptive gradient: raw units, one eta fits most data",
    source="Ross, Mineiro & Langford 2013, algorithm 2",
    hyper=Hyper,
    state=Slots(
        move=Move, own=Own, shared=Shared, totals=Totals, weight="w", curvature="G",
        degrees=(("s", 1),),
    ),
    observe=Observe(observe, sums=1),
    align=align,
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(range=SQUARES, stretch=stretch, implicit="implicit"),
    certificate=Certificate(
        reason="Ross et al. prove a bound for the projected form only: see nag_projected"
    ),
)  # fmt: skip
