r"""Aggressive second-order learner, diagonal (P0, section 6.3).

f_t(w) = w'D_t w / 2, D_0 = I; its dual gives w = D_t^-1 theta. The row's own squares are in D when
it is predicted; D and theta keep them where the margin falls short, y yhat < 1:

    yhat = sum theta_i x_i / (D_i + x_i^2 / r),    then    D_i += x_i^2 / r,    theta += y x,

or theta += y x / r with scale = "arow", which gives the weights AROW's size. The importance h
multiplies the step in theta. O(nnz) a row. Certificate, for any u, L(u) its summed hinge loss, with
U right predictions that taught: mistakes + U <= L(u) + sqrt(sum u_i^2 D_i) sqrt(r sum ln D_i + 2 U)
(22); 2 r U with scale = "arow". With ``model.certificate`` also a sharper one. Choose it for sparse
data whose rare features tell the classes apart; `arow_diag` predicts without the row's own squares.

>>> from streamomd.demo import score
>>> score("aggressive_second_order_diag"), score("aggressive_second_order_diag", scale="arow")
(0.112, 0.112)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

from streamomd.rules.certificate import Claim, Run
from streamomd.rules.contract import Row, Rule
from streamomd.rules.params import Choice, Positive
from streamomd.rules.theta_diagonal import (
    Accounts,
    Move,
    Own,
    Totals,
    account,
    claims,
    count,
    part,
    terms,
    update,
    weight,
)

UNIT = 0.0


class Hyper(NamedTuple):
    r: Positive = 1.0
    scale: Annotated[float, Choice(("unit", "arow"))] = UNIT


def share(h: Hyper) -> float:
    """What theta is smaller by than the certificate's sum of y x."""
    return 1.0 if h.scale == UNIT else h.r


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[Move, Totals]:
    if row.y * row.margin < 1.0 and row.importance > 0.0:
        return Move(row.importance * row.y / share(h)), count(row, totals)
    return Move(0.0), totals


def accounted_step(row: Row, totals: Accounts, clock: float, h: Hyper) -> tuple[Move, Accounts]:
    if row.y * row.margin < 1.0 and row.importance > 0.0:
        c = share(h)
        return Move(row.importance * row.y / c), account(row, totals, c)
    return Move(0.0), totals


def certificate(run: Run) -> list[Claim]:
    return claims(run, share(run.h))


PLAIN = Rule(
    name="aggressive_second_order_diag",
    title="aggressive second order, diagonal: rare features that tell, with a mistake bound",
    source="Orabona, Crammer & Cesa-Bianchi, section 6.3",
    hyper=Hyper,
    move=Move,
    own=Own,
    totals=Totals,
    losses=("hinge",),
    weight=weight,
    part=part,
    step=step,
    update=update,
    certificate=certificate,
)
ACCOUNTED = replace(PLAIN, totals=Accounts, gathers=3, terms=terms, step=accounted_step)
RULE = replace(PLAIN, accounted=ACCOUNTED)
