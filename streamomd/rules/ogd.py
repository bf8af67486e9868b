r"""OGD: online gradient descent (with the square loss: LMS, Widrow-Hoff).

f(w) = ||w||^2 / 2. With g the loss's slope and eta_t one of eta, eta / sqrt(t), eta / t,

    w <- w - eta_t g x.

One step size for all coordinates: features must be on one scale. The baseline to beat.

>>> RULE.parse_params({"schedule": "inverse"})
{'eta': 0.1, 'schedule': 'inverse'}
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.contract import Mean, Positive, Row, Rule
from streamomd.rules.schedule import SQRT, Schedule, rate


class Hyper(NamedTuple):
    eta: Positive = 0.1
    schedule: Schedule = SQRT


class Own(NamedTuple):
    w: Mean = 0.0


class Move(NamedTuple):
    step: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    return Move(rate(h.eta, h.schedule, clock) * row.importance * row.slope), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.w - move.step * x)


RULE = Rule(
    name="ogd",
    title="online gradient descent: the baseline, for features on one scale",
    source="Orabona, Crammer & Cesa-Bianchi 2015, section 3",
    hyper=Hyper,
    move=Move,
    own=Own,
    weight=weight,
    step=step,
    update=update,
)
