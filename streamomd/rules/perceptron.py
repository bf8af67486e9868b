r"""Perceptron (P2, section 4): dual ascent by a fixed step, on mistakes only.

f(w) = ||w||^2 / 2, w = grad f*(theta) = theta. On a mistake, y yhat <= 0,

    theta <- theta + C y x.

C (times the row's importance) scales the weights and changes no prediction's sign. O(nnz) a row.

Certificates, for any u, L(u) its summed hinge loss and h the importance: the dual value
D = sum of the steps - ||theta||^2 / 2 is at most ||u||^2 / 2 + C L(u) (P2, theorem 1), and with
k = ||u||^2 max h ||x||^2 there are at most L(u) + k/2 + sqrt(k^2 + 4 k L(u)) / 2 mistakes
(theorem 2). The dual value is in the progress line.

The simplest classifier; it needs no step size. Features should be on one scale.

>>> from streamomd.training.demo import score
>>> score("perceptron")
0.259
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.certificates.ascent_bounds import perceptron_certified
from streamomd.rules.contract import Losses, Mean, Observe, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    C: Positive = 1.0


class Own(NamedTuple):  # this, Move, observe, weight and update are also those of pa, pa1, pa2
    theta: Mean = 0.0


class Move(NamedTuple):
    a: float


def observe(shared: tuple[()], x: float, clock: float, h: Any) -> tuple[tuple[()], tuple[float]]:
    return shared, (x * x,)


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.theta


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.theta + move.a * x)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    if row.y * row.margin <= 0.0:
        a = row.importance * h.C * row.y
        return a != 0.0, Move(a), totals
    return False, Move(0.0), totals


RULE = perceptron_certified(
    Rule(
        name="perceptron",
        title="Perceptron: learns from mistakes only, no step size to choose",
        source="Shalev-Shwartz & Singer 2006, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="theta"),
        observe=Observe(observe, sums=1),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="updates"),
    )
)
