r"""Last-k dual ascent: the multipliers of the last k rows are chosen anew at each row (P2, eq. 31).

w = sum of alpha_i y_i x_i, 0 <= alpha_i <= C (times the row's importance). After row t the dual

    D(alpha) = sum of alpha_i - ||w||^2 / 2

is maximised over the multipliers of rows t - k + 1 ... t, the others as they are. k = 1 is PA-I;
k = 2 is solved exactly: the stationary point if it lies in the square, else the best of the four
points with one multiplier at 0 or C. Larger k: coordinate ascent, newest row first,

    alpha_j <- clip(alpha_j + (1 - y_j <w, x_j>) / ||x_j||^2, 0, C),

until no multiplier moves by more than ``tolerance`` C in a sweep. O(k nnz) a sweep; the last k rows
are kept. Use it where a row is dear and time is not: more work a row than PA-I, better weights from
fewer rows.

Certificate (P2, theorem 1): D <= ||u||^2 / 2 + C L(u), L(u) the summed hinge loss of any u.

>>> from streamomd.training.demo import score
>>> score("dual_ascent", k=1) == score("pa1"), score("dual_ascent", C=0.01)
(True, 0.208)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
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

SINGULAR = 1e-12  # rows this near to parallel have a ridge of maxima: the first point is taken


class Hyper(NamedTuple):
    k: Annotated[float, Between(1.0, 1e6, whole=True)] = 2.0
    C: Positive = 1.0
    tolerance: Positive = 1e-10


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


def edge(b: float, square: float, cross: float, other: float, cap: float) -> float:
    """The best multiplier when the other one is given."""
    gap = b - cross * other
    if square > 0.0:
        return min(max(gap / square, 0.0), cap)
    return cap if gap > 0.0 else 0.0


def dual(a: float, b: float, p: float, q: float, aa: float, ab: float, bb: float) -> float:
    """D of two multipliers: p a + q b - (aa a^2 + 2 ab a b + bb b^2) / 2."""
    return p * a + q * b - 0.5 * (aa * a * a + 2.0 * ab * a * b + bb * b * b)


def pair(
    old: Row, new: Row, cross: float, totals: Totals, h: Hyper
) -> tuple[tuple[bool, bool], tuple[Move, Move], Totals]:
    """The exact step for two rows; ``cross`` is y_i y_j <x_i, x_j>."""
    aa, alpha = old.q
    bb, beta = new.q
    top, cap = old.importance * h.C, new.importance * h.C
    p = 1.0 - old.y * old.margin + aa * alpha + cross * beta
    q = 1.0 - new.y * new.margin + cross * alpha + bb * beta
    det = aa * bb - cross * cross
    a, b = 0.0, edge(q, bb, cross, 0.0, cap)
    best = dual(a, b, p, q, aa, cross, bb)
    inside = False
    if det > SINGULAR * aa * bb:
        first, second = (bb * p - cross * q) / det, (aa * q - cross * p) / det
        inside = 0.0 <= first <= top and 0.0 <= second <= cap
        if inside:
            a, b = first, second
            best = dual(a, b, p, q, aa, cross, bb)
    if not inside:
        second = edge(q, bb, cross, top, cap)
        found = dual(top, second, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = top, second, found
        first = edge(p, aa, cross, 0.0, top)
        found = dual(first, 0.0, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = first, 0.0, found
        first = edge(p, aa, cross, cap, top)
        found = dual(first, cap, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = first, cap, found
    gained = best - dual(alpha, beta, p, q, aa, cross, bb)
    moves = (Move((a - alpha) * old.y), Move((b - beta) * new.y))
    return (a != alpha, b != beta), moves, Totals(totals.D + gained)


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.theta + move.a * x)


def cap(importance: float, h: Hyper) -> float:
    return importance * h.C


def tolerance(h: Hyper) -> float:
    return h.tolerance


def certificate(run: Run) -> list[Claim]:
    bound = 0.5 * float(run.u @ run.u) + run.h.C * run.hinge_u(1.0)
    return [Claim("dual value", run.totals["D"], bound, "P2, theorem 1")]


def live(totals: Totals, clock: float, h: Hyper) -> float:
    return totals.D


RULE = Rule(
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
    certificate=Certificate(claims=certificate, live=live, live_name="dual value"),
)
