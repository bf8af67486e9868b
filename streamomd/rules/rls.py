r"""Recursive least squares: the ridge solution of all rows so far (P0, section 4, without looking
ahead).

f_t(w) = <w, A_{t-1} w> / 2 with A_0 = a I, w = A^-1 theta:

    yhat = <w, x>,    A <- A + x x',    theta <- theta + y x.

The state is mu = w and A^-1; with chi = <x, A^-1 x>, mu moves by A^-1 x (y - yhat) / (1 + chi).
A row of importance h counts h times. Certificate, an equality at the ridge solution: the sum of
(y - yhat)^2 / (1 + chi) is at most a |u|^2 plus the sum of (y - <u, x>)^2. O(d^2) a row. Unlike
``vaw``: the same weights, and no shrinkage of a prediction where x is new.

>>> from streamomd.training.demo import score
>>> score("rls")
0.361
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.matrix_bounds import rls_certified
from streamomd.rules.common.full_matrix import (
    LIMIT,
    Limit,
    Move,
    Own,
    gain,
    largest,
    update,
    weight,
)
from streamomd.rules.contract import Losses, Matrix, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    a: Positive = 1.0
    limit: Limit = LIMIT


def start_scale(h: Hyper) -> float:
    return h.a


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    m, chi = row.r
    times = row.importance
    return times > 0.0, Move(gain(times * row.y, times, m, chi), times), totals


RULE = rls_certified(
    Rule(
        name="rls",
        title="recursive least squares: at each row the ridge solution of all before it",
        source="Orabona, Crammer & Cesa-Bianchi 2015, section 4 (Gauss; Plackett 1950)",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="mu"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("square",)),
        row=RowHooks(importance="copies"),
        storage=Matrix(largest, start_scale=start_scale),
    )
)
