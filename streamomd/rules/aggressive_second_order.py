r"""Aggressive second-order learner (P0, section 6.2): as ``sop``, on small margins too.

f_t(w) = <w, A_t w> / 2 with A_0 = I. A includes the row when it is predicted, and retains it when
its margin is below 1:

    yhat = <theta, (A + x x'/r)^-1 x>;   if y yhat < 1:  A <- A + x x'/r,  theta <- theta + unit y x

with unit = 1 (P0) or, for ``scale = "arow"``, 1/r: then only yhat differs from AROW's. The
state is mu = A^-1 theta and A^-1: with m = <mu, x> and chi = <x, A^-1 x>, yhat = m r / (r + chi).
An update of importance h counts h times: A <- A + h x x'/r, theta <- theta + h unit y x; yhat does
not depend on h.
Certificate: M + U, mistakes and other updates, are at most the summed hinge loss of any u plus
sqrt(r |u|^2 + sum over updates of h <u, x>^2) sqrt(max h ln det A + sum of h r n (2 y - n)
/ (r + h chi)), n = m / (unit r). O(d^2) on an update. Unlike ``arow``: cautious where x is new.

>>> from streamomd.training.demo import score
>>> score("aggressive_second_order")
0.097
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.matrix_bounds import aggressive_certified
from streamomd.rules.common.full_matrix import (
    LIMIT,
    Limit,
    Move,
    Own,
    gain,
    largest,
    unit,
    update,
    weight,
)
from streamomd.rules.contract import Losses, Matrix, Row, RowHooks, Rule, Saved, Slots
from streamomd.rules.params import Choice, Positive


class Hyper(NamedTuple):
    r: Positive = 1.0
    scale: Annotated[float, Choice(("unit", "arow"))] = 0.0
    limit: Limit = LIMIT


def foresee(m: float, chi: float, h: Hyper) -> float:
    return m * h.r / (h.r + chi)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    times = row.importance
    if row.y * row.margin >= 1.0 or times == 0.0:
        return False, Move(0.0, 0.0), totals
    m, chi = row.r
    c = times / h.r
    return True, Move(gain(unit(h) * times * row.y, c, m, chi), c), totals


def older(saved: Saved) -> str:
    """Version 1 added x x'/r to A whatever the importance."""
    return "A does not count importances" if saved.weighted else ""


RULE = aggressive_certified(
    Rule(
        name="aggressive_second_order",
        title="second-order Perceptron that also learns from small margins",
        source="Orabona, Crammer & Cesa-Bianchi 2015, section 6.2",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, version=2, older=older, weight="mu"),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="updates"),
        storage=Matrix(largest, foresee=foresee),
    )
)
