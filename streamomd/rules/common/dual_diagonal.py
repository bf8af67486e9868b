r"""Shared parts of the diagonal second-order learners in dual form (P0, section 6.3).

Slots: theta, and S = sum of x^2 / r over the rows that caused an update; D = 1 + S. The prediction
includes the row's own square: yhat = sum theta_i x_i / (D_i + x_i^2 / r). S is stored
instead of D because squares far below 1 would be lost in 1 + S: the certificate uses ln(1 + S).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.contract import Sum


class Own(NamedTuple):
    theta: Sum = 0.0
    S: Sum = 0.0


class Move(NamedTuple):
    a: float


UNIT = 0.0  # the scale of ``aggressive_second_order_diag``


def share(h: Any) -> float:
    """What theta is smaller by than the certificate's sum of y x."""
    return 1.0 if h.scale == UNIT else float(h.r)


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.theta / (1.0 + own.S)


def part(own: Own, shared: object, x: float, totals: object, clock: float, h: Any) -> float:
    return own.theta * x / float(1.0 + own.S + x * x / h.r)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.theta + move.a * x, own.S + x * x / h.r)
