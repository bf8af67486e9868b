r"""AROW: adaptive regularization of weights (Crammer, Kulesza & Dredze 2009; P0, section 6.2).

f_t(w) = <w, A_t w> / 2 with A_0 = I and Sigma = A^-1, the confidence in each direction. When the
margin is below 1, y m < 1 with m = <mu, x>,

    beta = 1 / (<x, Sigma x> + r),   mu <- mu + beta (1 - y m) y Sigma x,   A <- A + x x'/r,

which is theta <- theta + y x / r for mu = A^-1 theta. A row of importance h has
r / h in place of r. Certificate: M + U, mistakes and other updates, are at most the summed hinge
loss of any u plus sqrt(r |u|^2 + sum over updates of <u, x>^2) sqrt(ln det A + sum of r m (2 y - m)
/ (r + chi)), where the last sum is at most U. O(d^2) on an update. More robust to label
noise than ``cw``, the more so the larger r.

>>> from streamomd.training.demo import score
>>> score("arow")
0.099
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.matrix_bounds import arow_certified
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
    r: Positive = 1.0
    limit: Limit = LIMIT


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    times = row.importance
    m, chi = row.r
    if row.y * m >= 1.0 or times == 0.0:
        return False, Move(0.0, 0.0), totals
    c = times / h.r
    return True, Move(gain(c * row.y, c, m, chi), c), totals


RULE = arow_certified(
    Rule(
        name="arow",
        title="adaptive regularization: confidence in each direction, robust to label noise",
        source="Crammer, Kulesza & Dredze 2009; Orabona et al. 2015, section 6.2",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="mu"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="updates"),
        storage=Matrix(largest),
    )
)
