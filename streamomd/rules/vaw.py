r"""Vovk-Azoury-Warmuth: ridge regression that counts the row before it is labelled (P0, section 4).

f_t(w) = <w, A_t w> / 2 with A_0 = a I. The row's features come first, its label last:

    A_t = A_{t-1} + x x',    yhat = <theta, A_t^-1 x>,    theta <- theta + y x.

The state is mu = A_t^-1 theta and A^-1. With m = <mu, x> and chi = <x, A_{t-1}^-1 x> of before
the row, yhat = m / (1 + chi): shrunk towards 0 where x is new. Certificate: regret of the
square loss is at most a |u|^2 / 2 + sum of y^2 <x, A_t^-1 x> / 2, whatever the data. Rescaling
features changes nothing as a goes to 0. O(d^2) a row: for up to some thousand features, all
treated alike.

A row of importance h counts h times in A and theta. The theorem's prediction uses h,
yhat = m / (1 + h chi); the cost of not using it is added to the bound.

>>> from streamomd.training.demo import score
>>> score("vaw")
0.376
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.matrix_bounds import vaw_certified
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


def foresee(m: float, chi: float, h: Hyper) -> float:
    return m / (1.0 + chi)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    m, chi = row.r
    times = row.importance
    return times > 0.0, Move(gain(times * row.y, times, m, chi), times), totals


RULE = vaw_certified(
    Rule(
        name="vaw",
        title="Vovk-Azoury-Warmuth: least squares without a step size, safe on new directions",
        source="Orabona, Crammer & Cesa-Bianchi 2015, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="mu"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("square",)),
        row=RowHooks(importance="copies"),
        storage=Matrix(largest, start_scale=start_scale, foresee=foresee),
    )
)
