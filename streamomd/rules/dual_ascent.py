r"""Last-k dual ascent: the multipliers of the last k rows are optimized at each row (P2, eq. 31).

w = sum of alpha_i y_i x_i, 0 <= alpha_i <= C (times the row's importance). After row t the dual

    D(alpha) = sum of alpha_i - ||w||^2 / 2

is maximised over the multipliers of rows t - k + 1 ... t, the others as they are. k = 1 is PA-I;
k = 2 is solved exactly: the stationary point if it lies in the square, else the best of the four
points with one multiplier at 0 or C. Larger k: coordinate ascent, newest row first,

    alpha_j <- clip(alpha_j + (1 - y_j <w, x_j>) / ||x_j||^2, 0, C),

until no multiplier moves by more than ``tolerance`` C in a sweep. O(k nnz) a sweep; the last k rows
are stored. With another ``link`` w = grad f*(theta), theta = sum of alpha_i y_i x_i, as in
dual_step, and D has f*(theta) for ||w||^2 / 2. A step then divides by a bound on the curvature of
f* along the row in place of ||x_j||^2, and sweeps are repeated, for every k, to the same tolerance:
at most 1,000 a row. With l2 feature values may have any size; with pnorm (abs(x) / 1e8)^p has to be
finite. Use it where rows are scarce and time is not: more work per row than PA-I, better weights
from fewer rows.

Certificate (P2, theorem 1): D <= f(u) + C L(u), f(u) = ||u||^2 / 2 (l2), L(u) the summed hinge loss
of any u in the link's set.

>>> from streamomd.training.demo import score
>>> score("dual_ascent", k=1) == score("pa1"), score("dual_ascent", C=0.01)
(True, 0.208)
>>> score("dual_ascent", link="eg", C=0.01)
0.217
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.ascent_bounds import ascent_claims, ascent_dual, with_sets
from streamomd.rules.common.linked import maximum, with_links
from streamomd.rules.common.links import L2, Link, Power
from streamomd.rules.contract import (
    Certificate,
    Losses,
    RecentRows,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Between, Positive


class Hyper(NamedTuple):
    k: Annotated[float, Between(1.0, 1e6, whole=True)] = 2.0
    C: Positive = 1.0
    tolerance: Positive = 1e-10
    link: Link = L2
    U: Positive = 10.0
    p: Power = 4.0


class Own(NamedTuple):
    theta: Sum = 0.0


class Totals(NamedTuple):
    D: Sum = 0.0


class Move(NamedTuple):
    a: float


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return own.theta


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    """One multiplier's exact step; the move is its change times y."""
    square, alpha = row.q
    gap = 1.0 - row.y * row.margin
    cap = row.importance * h.C
    if square > 0.0:
        change = min(max(alpha + gap / square, 0.0), cap) - alpha
    else:
        change = (cap if gap > 0.0 else 0.0) - alpha
    a = change * row.y
    return a != 0.0, Move(a), Totals(totals.D + change * (gap - 0.5 * change * square))


def pair(
    old: Row, new: Row, cross: float, totals: Totals, h: Hyper
) -> tuple[tuple[bool, bool], tuple[Move, Move], Totals]:
    """The exact step for the last two rows."""
    (_, alpha), (_, beta) = old.q, new.q
    a, b, gained = maximum(old, new, cross, h.C)
    moves = (Move((a - alpha) * old.y), Move((b - beta) * new.y))
    return (a != alpha, b != beta), moves, Totals(D=totals.D + gained)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


def cap(importance: float, h: Hyper) -> float:
    return importance * h.C


def tolerance(h: Hyper) -> float:
    return h.tolerance


PLAIN = Rule(
    name="dual_ascent",
    title="dual ascent over the last k rows: more work a row, better weights from few rows",
    source="Shalev-Shwartz & Singer 2006, equation 31",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="cap"),
    storage=RecentRows(pair=pair, cap=cap, tolerance=tolerance, depth="k"),
    certificate=Certificate(claims=ascent_claims, live=ascent_dual, live_name="dual value"),
)
RULE = with_sets(with_links(PLAIN))
