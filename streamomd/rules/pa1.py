r"""PA-I: the passive-aggressive update with a cap (P2, section 5).

f(w) = ||w||^2 / 2, w = theta. When the hinge loss l is positive, the step that brings it to 0, but
at most C (times the row's importance):

    a = min(C, l / ||x||^2),    theta <- theta + a y x.

It adapts to each row's length, so it bears rows of different norms; features should still be on one
scale. Certificate: P2, theorem 3.

>>> RULE.parse_params({"C": 0.1})
{'C': 0.1}
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


def observe(shared: tuple[()], x: float, clock: float, h: Hyper) -> tuple[tuple[()], tuple[float]]:
    return shared, (x * x,)


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.theta


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    cap = row.importance * h.C
    norm2 = row.q[0]
    if norm2 * cap > row.loss:
        return Move(row.loss / norm2 * row.y), totals
    if norm2 > 0.0 and row.loss > 0.0:
        return Move(cap * row.y), totals
    return Move(0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = Rule(
    name="pa1",
    title="passive-aggressive, capped: the smallest change that mends the row",
    source="Shalev-Shwartz & Singer 2006, section 5 (Crammer et al. 2006, PA-I)",
    hyper=Hyper,
    move=Move,
    own=Own,
    losses=("hinge",),
    sums=1,
    observe=observe,
    weight=weight,
    step=step,
    update=update,
)
