r"""Aggressive second-order learner, diagonal (P0, section 6.3).

f_t(w) = w'D_t w / 2, D_0 = I; its dual gives w = D_t^-1 theta. The row's own squares are in D when
it is predicted; D and theta keep them where the margin falls short, y yhat < 1:

    yhat = sum theta_i x_i / (D_i + x_i^2 / r),    then    D_i += x_i^2 / r,    theta += y x,

or theta += y x / r with scale = "arow", which gives the weights AROW's size. An update of
importance h counts h times: D_i += h x_i^2 / r, theta += h y x; yhat does not know h. O(nnz) a row.
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

from dataclasses import replace
from typing import Annotated, NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.dual_diagonal import (
    Own,
    Totals,
    part,
    plain_claim,
    rare_claims,
    sharper_claim,
    weight,
)
from streamomd.rules.contract import (
    Certificate,
    Losses,
    Max,
    Row,
    RowHooks,
    Rule,
    Saved,
    Slots,
    Sum,
)
from streamomd.rules.params import Choice, Positive

UNIT = 0.0


class Hyper(NamedTuple):
    r: Positive = 1.0
    scale: Annotated[float, Choice(("unit", "arow"))] = UNIT


class Move(NamedTuple):
    a: float
    times: float


class OwnAccounts(NamedTuple):
    theta: Sum = 0.0
    S: Sum = 0.0
    sharp: Sum = 0.0  # what the coordinate adds to the certificate's Q


class Accounts(NamedTuple):
    updates: Sum = 0.0
    margins: Sum = 0.0
    largest: Max = 0.0
    rarest: Max = 0.0
    longest: Max = 0.0


def share(h: Hyper) -> float:
    """What theta is smaller by than the certificate's sum of y x."""
    return 1.0 if h.scale == UNIT else h.r


def updates(row: Row) -> bool:
    return bool(row.y * row.margin < 1.0 and row.importance > 0.0)


def count(row: Row, totals: Totals | Accounts) -> Totals:
    """The totals after an update; ``largest`` is 1 while every importance is."""
    times = row.importance
    right = times if row.y * row.margin > 0.0 else 0.0
    largest = max(totals.largest, times, 1.0 / times)
    return Totals(totals.updates + times, totals.margins + right, largest)


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if updates(row):
        move = Move(row.importance * row.y / share(h), row.importance)
        return True, move, count(row, totals)
    return False, Move(0.0, 0.0), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x, own.S + move.times * (x * x / h.r))


def terms(
    own: OwnAccounts, shared: object, x: float, totals: object, clock: float, h: Hyper
) -> tuple[float]:
    return (x * x,)


def accounted_weight(
    own: OwnAccounts, shared: object, totals: object, clock: float, h: Hyper
) -> float:
    return own.theta / (1.0 + own.S)


def accounted_step(
    row: Row, totals: Accounts, clock: float, h: Hyper
) -> tuple[bool, Move, Accounts]:
    if not updates(row):
        return False, Move(0.0, 0.0), totals
    counted = count(row, totals)
    move = Move(row.importance * row.y / share(h), row.importance)
    return (
        True,
        move,
        Accounts(
            counted.updates,
            counted.margins,
            counted.largest,
            max(totals.rarest, 1.0 / row.importance),
            max(totals.longest, row.r[0]),
        ),
    )


def accounted_update(
    own: OwnAccounts, shared: object, x: float, move: Move, clock: float, h: Hyper
) -> OwnAccounts:
    before, more = 1.0 + own.S, move.times * (x * x / h.r)
    after, c = before + more, share(h)
    step, theta = c * move.a * x, c * own.theta  # of the sum of h y x, as the certificate has it
    lift = step * (step + 2.0 * theta) / after - (theta / after) * (theta / before) * more
    return OwnAccounts(own.theta + move.a * x, own.S + more, own.sharp + lift)


def certificate(run: Run) -> list[Claim]:
    once = run.totals["largest"] <= 1.0
    found = [plain_claim(run, share(run.h))] if once else []
    if "sharp" in run.own:
        found.append(sharper_claim(run, float(run.own["sharp"].sum())))
        found += rare_claims(run) if once else []
    if not found:
        raise ValueError(
            "equation 22 is proven for importances of 1; train with model.certificate = true for "
            "the bound that counts them"
        )
    return found


def older(saved: Saved) -> str:
    """Version 1 added x^2 / r to D whatever the importance, and kept other accounts."""
    if saved.certificate:
        return "the sums for its certificate differ"
    return "D does not count importances" if saved.weighted else ""


PLAIN = Rule(
    name="aggressive_second_order_diag",
    title="aggressive second order, diagonal: rare features that tell, with a mistake bound",
    source="Orabona, Crammer & Cesa-Bianchi, section 6.3",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, version=2, older=older, totals=Totals),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="updates", part=part),
    certificate=Certificate(claims=certificate),
)
ACCOUNTED = replace(
    PLAIN,
    state=replace(PLAIN.state, own=OwnAccounts, totals=Accounts),
    weight=accounted_weight,
    step=accounted_step,
    update=accounted_update,
    row=replace(PLAIN.row, gathers=1, terms=terms),
)
RULE = replace(PLAIN, certificate=replace(PLAIN.certificate, accounted=ACCOUNTED))
