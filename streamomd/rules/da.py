r"""Dual averaging (P3, section 3): all gradients weigh alike, the step is chosen at prediction.

f_T(w) = ||w||^2 / (2 eta_T), T the rows finished. With theta = - sum of g x over them,

    w = eta_T theta,    then    theta <- theta - g x.

Against OGD with the same schedule: early gradients count as much as late ones.

>>> RULE.parse_params({})
{'eta': 0.1, 'schedule': 'sqrt'}
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.contract import Positive, Row, Rule, Sum
from streamomd.rules.schedule import SQRT, Schedule, rate


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: Schedule = SQRT


class Own(NamedTuple):
    theta: Sum = 0.0


class Move(NamedTuple):
    a: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    finished = max(clock - 1.0, 1.0)
    return rate(h.eta, h.schedule, finished) * own.theta


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    return Move(-row.importance * row.slope), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


RULE = Rule(
    name="da",
    title="dual averaging: early rows count as much as late ones",
    source="Qian, notes on adaptive FTRL, section 3",
    hyper=Hyper,
    move=Move,
    own=Own,
    weight=weight,
    step=step,
    update=update,
)
