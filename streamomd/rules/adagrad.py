r"""AdaGrad, diagonal, by mirror descent (P4, eq. 6; P1 calls it AG).

f_t(w) = <w, H_t w> / (2 eta) with H_i = delta + sqrt(G_i). With g the loss's slope,

    G_i += (g x_i)^2,    w_i <- w_i - eta g x_i / H_i.

Each coordinate has its own step, so rare features learn as fast as common ones; but eta depends on
the features' units, unlike NAG's. Choose it for features that are scaled already, or 0/1.

>>> RULE.parse_params({"eta": 0.1})
{'eta': 0.1, 'delta': 0.0}
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streamomd.rules.contract import Mean, NotNegative, Positive, Row, Rule, Sum


class Hyper(NamedTuple):
    eta: Positive = 0.5
    delta: NotNegative = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


class Move(NamedTuple):
    g: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    return Move(row.importance * row.slope), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    H = h.delta + math.sqrt(G)
    if H == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    return Own(own.w - h.eta * z / H, G)


RULE = Rule(
    name="adagrad",
    title="adaptive gradient, diagonal: scaled or 0/1 features, some of them rare",
    source="Duchi, Hazan & Singer 2011, equation 6",
    hyper=Hyper,
    move=Move,
    own=Own,
    weight=weight,
    step=step,
    update=update,
)
