"""A rule that is not in the package, its oracle, and mutants of it: AdaGrad on features over b.

With b_i = max abs(x_i) so far and z = g x / b_i: G_i += z^2, theta_i -= z,
w_i = eta theta_i / (b_i sqrt(G_i)); 0/0 = 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from merge_laws import mutated

from streamomd.rules.contract import Max, Observe, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Positive
from streamomd.rules.ranges import SQUARES


class Hyper(NamedTuple):
    eta: Positive = 0.5


class Shared(NamedTuple):
    b: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    G: Sum = 0.0


class Move(NamedTuple):
    g: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.b, abs(x))), ()


def weight(own: Own, shared: Shared, totals: object, clock: float, h: Hyper) -> float:
    if own.G == 0.0:
        return 0.0
    return h.eta * own.theta / (shared.b * math.sqrt(own.G))


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g), totals


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * (x / shared.b)
    return Own(own.theta - z, own.G + z * z)


RULE = Rule(
    name="new_rule",
    title="AdaGrad dual averaging on features divided by their largest value",
    source="made up",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, shared=Shared),
    row=RowHooks(range=SQUARES),
    observe=Observe(observe),
    weight=weight,
    step=step,
    update=update,
)


def oracle(d: int, rows: Any, eta: float) -> dict[str, np.ndarray]:
    """The docstring, line by line."""
    b, theta, G = np.zeros((3, d))
    for row in rows:
        b = np.maximum(b, np.abs(row.x))
        g = row.slope(np.where(G > 0.0, eta * theta / (b * np.sqrt(G)), 0.0))
        z = np.where(b > 0.0, g * row.x / b, 0.0)
        theta, G = theta - z, G + z**2
    return {"b": b, "theta": theta, "G": G}


def step_without_importance(row: Row, totals: object, clock: float, h: Hyper) -> Any:
    return row.importance > 0.0, Move(row.slope), totals


def update_off_by_1e_7(
    own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper
) -> Own:
    z = move.g * (x / shared.b)
    return Own(own.theta - z * (1.0 + 1e-7), own.G + z * z)


def weight_over_b_squared(
    own: Own, shared: Shared, totals: object, clock: float, h: Hyper
) -> float:
    if own.G == 0.0:
        return 0.0
    return h.eta * own.theta / (shared.b * shared.b * math.sqrt(own.G))


def weight_0_over_0(own: Own, shared: Shared, totals: object, clock: float, h: Hyper) -> float:
    if own.theta == 0.0 and own.G == 0.0 and clock == 1.0:
        return 0.0
    return h.eta * own.theta / (shared.b * math.sqrt(own.G))


MUTANTS = {
    "importance forgotten": replace(RULE, step=step_without_importance),
    "gradient sum off by 1e-7": replace(RULE, update=update_off_by_1e_7),
    "b for b squared": replace(RULE, weight=weight_over_b_squared),
    "0/0 on a zero first gradient": replace(RULE, weight=weight_0_over_0),
    **{
        f"{slot} merges by {kind}": mutated(RULE, slot, kind)
        for slot, right in (("b", "max"), ("theta", "sum"), ("G", "sum"))
        for kind in ("sum", "mean", "max", "min")
        if kind != right
    },
}
