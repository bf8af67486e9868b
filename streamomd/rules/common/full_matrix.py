"""What the learners with a full matrix share: their limit, and steps along A^-1 x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from streamomd.rules.contract import MATRIX, Mean
from streamomd.rules.params import Between

Limit = Annotated[float, Between(1.0, 1_000_000.0, whole=True)]
"""The most coordinates: a matrix of 4,096 is 128 MiB for each learner, and read whole each row."""
LIMIT = float(MATRIX)


class Own(NamedTuple):
    """Slots of learners in mean form: mu = A^-1 theta."""

    mu: Mean = 0.0


class Move(NamedTuple):
    """mu <- mu + s A^-1 x, A <- A + c x x'."""

    s: float
    c: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.mu


def update(own: Own, shared: object, v: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.mu + move.s * v)


def largest(params: Mapping[str, Any]) -> int:
    return int(params["limit"])


def gain(s: float, c: float, m: float, chi: float) -> float:
    """The step along A^-1 x of theta += s x with A += c x x': mu = A^-1 theta moves by it."""
    return (s - c * m) / (1.0 + c * chi)


def unit(h: Any) -> float:
    """What ``aggressive_second_order`` adds to theta for y x."""
    return 1.0 if h.scale == 0.0 else float(1.0 / h.r)
