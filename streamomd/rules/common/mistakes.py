"""What the Perceptron and passive-aggressive learners share: w = theta, and steps by ||x||^2."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.contract import Mean


class Own(NamedTuple):
    theta: Mean = 0.0


class Move(NamedTuple):
    a: float


def observe(shared: tuple[()], x: float, clock: float, h: Any) -> tuple[tuple[()], tuple[float]]:
    return shared, (x * x,)


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.theta


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.theta + move.a * x)
