r"""Second-order Perceptron (P0, section 6.2): a Perceptron on decorrelated features.

f_t(w) = <w, A_t w> / 2 with A_0 = I. A includes the row when it is predicted, and retains it
only after a mistake:

    yhat = <theta, (A + x x')^-1 x>;    if y yhat <= 0:  A <- A + x x',  theta <- theta + y x.

The state is mu = A^-1 theta and A^-1: with m = <mu, x> and chi = <x, A^-1 x>, yhat = m / (1 + chi).
The importance multiplies the step in theta; a row of importance 0 changes nothing. Certificate:
mistakes are at most the summed hinge loss of any u plus sqrt(|u|^2 + sum over mistakes of <u, x>^2)
sqrt(ln det A + sum of m (2 y - m) / (1 + chi)): small where rows lie in few directions. O(d^2) on a
mistake. Nothing to tune.

>>> from streamomd.training.demo import score
>>> score("sop")
0.11
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.matrix_bounds import sop_certified
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


class Hyper(NamedTuple):
    limit: Limit = LIMIT


def foresee(m: float, chi: float, h: Hyper) -> float:
    return m / (1.0 + chi)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    times = row.importance
    if row.y * row.margin > 0.0 or times == 0.0:
        return False, Move(0.0, 0.0), totals
    m, chi = row.r
    return True, Move(gain(times * row.y, 1.0, m, chi), 1.0), totals


RULE = sop_certified(
    Rule(
        name="sop",
        title="second-order Perceptron: learns from mistakes, decorrelates features",
        source="Cesa-Bianchi, Conconi & Gentile 2005; Orabona et al. 2015, section 6.2",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="mu"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="step"),
        storage=Matrix(largest, foresee=foresee),
    )
)
