r"""AdaGrad, full matrix (P4, sections 1.1 and 4): a step for each direction, correlations included.

S = (sum of g g')^(1/2) over all gradients g x of the loss, this row's included, H = delta I + S,
phi(w) = l1 |w|_1 + l2 |w|^2 / 2 inside abs(w_i) <= box (0: no box), or with ``ball`` "l2" a ball
|w| <= radius alone (section 1.2: sqrt(d)). After each row, T of them done,

    "mirror":  w <- argmin over v of eta <g x, v> + eta phi(v) + <v - w, H (v - w)> / 2,
    "dual":    w <- argmin over v of -eta <theta, v> + eta T phi(v) + <v, H v> / 2,

theta = - sum of g x. Without l1 and box both are a division by H + eta l2 I (eta T l2); else
coordinate descent, until no weight moves by more than 1e-14 of what its equation adds up. S comes
from rotations that keep small eigenvalues' digits; where H is singular (delta = 0) its
pseudo-inverse is taken. In the ball the point v without phi becomes (H + mu I)^-1 H v, the nearest
in the norm of H, mu by Newton's steps on a secular equation. ``every`` = k renews S every k rows
only, without a certificate.

Certificate, phi included: regret is at most (delta |u|^2 + D tr S) / (2 eta) + eta tr S with D a
bound on every |u - w_t|^2 (mirror; in the ball at most 4 radius^2), or
(delta |u|^2 + u'S u) / (2 eta) + eta tr S (dual, and delta at least the longest g x). O(d^3) a row:
some hundred features. For few, strongly correlated features; a rotation of all of them changes
nothing.

>>> from streamomd.training.demo import score
>>> score("adagrad_full")
0.138
>>> score("adagrad_full", ball="l2", radius=1.0)
0.216
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.adagrad_bounds import MIRROR, full_certified
from streamomd.rules.common import sets
from streamomd.rules.common.full_matrix import Limit, largest
from streamomd.rules.common.lazy_ball import NONE, L2Ball
from streamomd.rules.common.weighted_balls import legal
from streamomd.rules.contract import (
    Certificate,
    Mean,
    Nothing,
    RootMatrix,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Between, Choice, NotNegative, Positive, YesNo


class Hyper(NamedTuple):
    update: Annotated[float, Choice(("mirror", "dual"))] = MIRROR
    eta: Positive = 0.5
    delta: NotNegative = 0.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0
    ball: L2Ball = NONE
    radius: NotNegative = 0.0
    every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    implicit: YesNo = 0.0
    limit: Limit = 1024.0


class Own(NamedTuple):
    w: Mean = 0.0
    theta: Sum = 0.0


class Move(NamedTuple):
    g: float


def begin(d: float, h: Any) -> Nothing:
    legal(h)
    return Nothing()


def weight(own: Any, shared: object, totals: object, clock: float, h: Hyper) -> float:
    w: float = own.w
    return w


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g), totals


def update(own: Own, shared: object, w: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(w, own.theta)


def feasible(slots: Any, h: Any) -> sets.ComparatorSet:
    """The ball or box of these parameters."""
    return sets.L2(1.0, h.radius) if h.ball != NONE else sets.box(h.box)


RULE = full_certified(
    Rule(
        name="adagrad_full",
        title="adaptive gradient, full matrix: few and correlated features",
        source="Duchi, Hazan & Singer 2011, sections 1.1 and 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, begin=begin),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(implicit="implicit"),
        storage=RootMatrix(largest),
        certificate=Certificate(feasible=feasible),
    )
)
