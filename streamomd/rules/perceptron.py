r"""Perceptron (P2, section 4): dual ascent by a fixed step, on mistakes only.

f(w) = ||w||^2 / 2, w = theta. On a mistake, y yhat <= 0,

    theta <- theta + C y x.

C scales the weights and changes no prediction's sign. At most
L(u) + k/2 + sqrt(k^2 + 4 k L(u)) / 2 mistakes, k = ||u||^2 max ||x||^2, L(u) the summed hinge loss
of any u (P2, theorem 2).

>>> RULE.parse_params({})
{'C': 1.0}
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.contract import Positive, Row, Rule, Sum


class Hyper(NamedTuple):
    C: Positive = 1.0


class Own(NamedTuple):
    theta: Sum = 0.0


class Move(NamedTuple):
    a: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.theta


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    if row.y * row.margin <= 0.0:
        return Move(row.importance * h.C * row.y), totals
    return Move(0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = Rule(
    name="perceptron",
    title="Perceptron: learns from mistakes only, no step size to choose",
    source="Shalev-Shwartz & Singer 2006, section 4",
    hyper=Hyper,
    move=Move,
    own=Own,
    losses=("hinge",),
    weight=weight,
    step=step,
    update=update,
)
