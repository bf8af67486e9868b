r"""p-norm LMS with its own scale (P0, section 4, with its signs corrected).

f_t(w) = X_t^2 ||w||_q^2 / (2 (q-1)), 1/p + 1/q = 1, p >= 2, X_t = max ||x_s||_p over the rows so
far, the one to be predicted too. For the square loss, h the importance,

    theta <- theta + h (y - yhat) x,    w = grad f_t*(theta):
    w_i = (q-1) / X_t^2 ||theta||_p sign(theta_i) (|theta_i| / ||theta||_p)^(p-1).

O(nnz) a row: the state is theta, its (p-1)-th power, and the sum of p-th powers.

Certificate (adaptive filtering: what is measured is the distance to u's predictions, not to y): for
any u

    sum h (yhat - <u, x>)^2 <= X_T^2 ||u||_q^2 / (q-1) + sum h (y - <u, x>)^2;

with importances above 1 also + [sum h^2 (y - yhat)^2 ||x||_p^2 / X_t^2 - sum h (y - yhat)^2]_+.

For regression without parameters to tune: predictions stay the same when all features are
multiplied by one constant. p = 2 is LMS with step 1 / X_t^2; larger p, up to 2 ln d, suits dense
rows of which few features matter.

>>> from streamomd.training.demo import score
>>> score("pnorm_lms", p=2.0), score("pnorm_lms")
(0.769, 0.881)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.link_bounds import lms_certified
from streamomd.rules.common.linked import observe_share
from streamomd.rules.common.links import PNORM, Power, factor, first, image, norm
from streamomd.rules.contract import Coords, Losses, Max, Mean, Observe, Row, RowHooks, Rule, Slots


class Hyper(NamedTuple):
    p: Power = 4.0


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # of theta and ref: see links


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    scale: Max = 0.0  # w = scale * a in row ``at``
    at: Max = 0.0
    X: Max = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    p: float


def scaled(S: float, ref: float, X: float, p: float) -> float:
    """The weights are this times a."""
    return factor(PNORM, S, ref, 1.0, p) / (p - 1.0) / X / X if X != 0.0 else 0.0


def prepare(q: tuple[float, float, float], totals: Totals, clock: float, h: Hyper) -> Totals:
    S, ref = totals.S, totals.ref
    X = max(totals.X, norm(q[0], q[1], q[2], h.p))
    return Totals(S=S, ref=ref, scale=scaled(S, ref, X, h.p), at=clock, X=X)


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    if totals.at == clock:
        return totals.scale * own.a
    return scaled(totals.S, totals.ref, totals.X, h.p) * own.a


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    a = row.importance * (row.y - row.margin)
    if a == 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    ref = totals.ref
    if norm(row.q[0], row.q[1], row.q[2], h.p) > 0.0:
        ref = first(PNORM, ref, a)
    found = Totals(S=totals.S, ref=ref, scale=totals.scale, at=totals.at, X=totals.X)
    return True, Move(a, ref, h.p), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    return Own(theta, image(PNORM, theta, move.ref, 0.0, move.p)[0])


RULE = lms_certified(
    Rule(
        name="pnorm_lms",
        title="p-norm LMS: regression with nothing to tune, features on one scale",
        source="Orabona, Crammer & Cesa-Bianchi, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, totals=Totals),
        observe=Observe(observe_share, sums=3),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("square",)),
        row=RowHooks(importance="step", prepare=prepare),
    )
)
