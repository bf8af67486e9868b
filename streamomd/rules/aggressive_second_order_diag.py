r"""Aggressive second-order learner, diagonal (P0, section 6.3).

f_t(w) = w'D_t w / 2, D_0 = I; its dual gives w = D_t^-1 theta. The row's own squares are in D when
it is predicted; D and theta retain them where y yhat < 1:

    yhat = sum theta_i x_i / (D_i + x_i^2 / r),    then    D_i += x_i^2 / r,    theta += y x,

or theta += y x / r with scale = "arow", which gives the weights AROW's size. An update of
importance h counts h times: D_i += h x_i^2 / r, theta += h y x; yhat does not use h. O(nnz) a row.
Certificate, for any u, L(u) its summed hinge loss, with U right predictions that updated:
mistakes + U <= L(u) + sqrt(sum u_i^2 D_i) sqrt(r sum ln D_i + 2 U) (22), while every importance is
1; 2 r U with scale = "arow". With ``model.certificate`` also a sharper one, for any importances.
Choose it for sparse data whose rare features separate the classes; `arow_diag` predicts without the
row's own squares.

>>> from streamomd.training.demo import score
>>> score("aggressive_second_order_diag"), score("aggressive_second_order_diag", scale="arow")
(0.112, 0.112)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.diagonal_bounds import aggressive_diag_certified
from streamomd.rules.common.dual_diagonal import UNIT, Own, part, share, weight
from streamomd.rules.contract import Losses, Row, RowHooks, Rule, Saved, Slots
from streamomd.rules.params import Choice, Positive


class Hyper(NamedTuple):
    r: Positive = 1.0
    scale: Annotated[float, Choice(("unit", "arow"))] = UNIT


class Move(NamedTuple):
    a: float
    times: float


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    if row.y * row.margin < 1.0 and row.importance > 0.0:
        return True, Move(row.importance * row.y / share(h), row.importance), totals
    return False, Move(0.0, 0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x, own.S + move.times * (x * x / h.r))


def older(saved: Saved) -> str:
    """Version 1 added x^2 / r to D whatever the importance, and had other accounts."""
    if saved.certificate:
        return "the sums for its certificate differ"
    return "D does not count importances" if saved.weighted else ""


RULE = aggressive_diag_certified(
    Rule(
        name="aggressive_second_order_diag",
        title="aggressive second order, diagonal: informative rare features, a mistake bound",
        source="Orabona, Crammer & Cesa-Bianchi, section 6.3",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, version=2, older=older),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="updates", part=part),
    )
)
