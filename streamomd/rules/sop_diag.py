r"""Second-order Perceptron, diagonal (P0, section 6.3).

f_t(w) = w'D_t w / 2, D_0 = I; its dual gives w = D_t^-1 theta. The row's own squares are in D when
it is predicted; D and theta retain them on a mistake only, y yhat <= 0:

    yhat = sum theta_i x_i / (D_i + x_i^2 / r),    then    D_i += x_i^2 / r,    theta += y x.

The importance h multiplies the step in theta. O(nnz) a row. Certificate, for any u, L(u) its
summed hinge loss: mistakes <= L(u) + sqrt(sum u_i^2 D_i) sqrt(r sum ln D_i) (22), which is small
where few features are common and the rare ones separate the classes: word counts. With
``model.certificate`` also a sharper one, and (23). Choose it for such data where only mistakes
should update; `aggressive_second_order_diag` learns from small margins too.

>>> from streamomd.training.demo import score
>>> score("sop_diag")
0.134
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.diagonal_bounds import sop_certified
from streamomd.rules.common.dual_diagonal import Move, Own, part, update, weight
from streamomd.rules.contract import Losses, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    r: Positive = 1.0


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    if row.y * row.margin <= 0.0 and row.importance > 0.0:
        a = row.importance * row.y
        return a != 0.0, Move(a), totals
    return False, Move(0.0), totals


RULE = sop_certified(
    Rule(
        name="sop_diag",
        title="second-order Perceptron, diagonal: informative rare features, updates on mistakes",
        source="Orabona, Crammer & Cesa-Bianchi, section 6.3",
        hyper=Hyper,
        state=Slots(move=Move, own=Own),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="step", part=part),
    )
)
