r"""EG+-, balanced Winnow: multiplicative weights of both signs (P2, section 4).

w_i = U (p_i+ - p_i-), p a distribution over 2n coordinates, each with its negative, all n counted,
seen or not; f(w) = U times the least relative entropy of such a p to the uniform one, so
||w||_1 <= U and f(w) <= U ln 2n;

    w_i = grad f*(theta)_i = U (e^theta_i - e^-theta_i) / sum_j (e^theta_j + e^-theta_j),
    f*(theta) = U ln(sum (e^theta_i + e^-theta_i) / 2n).

With C above 0 it is balanced Winnow, on classes: on a mistake, y yhat <= 0, theta <- theta + C y x.
With C = 0 it is EG, for any loss with slope g: theta <- theta - eta g x. The row's importance
multiplies C and g. O(nnz) a row: both exponentials are stored, divided by the largest.

Certificates, for any u with ||u||_1 <= U. With C, h the importance, L(u, m) the summed hinge loss
with margin m, k = U max h x^2 over all entries and m = C k: at most
2 (k U ln 2n / m^2 + L(u, m) / m) mistakes (section 4; it needs ``model.certificate``); and the dual
value D = sum of the steps - f*(theta) is at most f(u) + C L(u, 1) (theorem 1). With eta: regret is
at most (f(u) + f*(theta)) / eta + sum of g yhat (P0, lemma 1). In the progress line: the dual
value, without C -f*(theta) - eta sum of g yhat, so that regret <= (f(u) - it) / eta.

For many features of which few matter, all near 1 in size: the bound grows with ln n, where gradient
descent's grows with the rows' length. U has to be at least the l1 norm of good weights.

>>> from streamomd.training.demo import score
>>> score("eg"), score("eg", "square", eta=0.001), score("eg", "hinge", C=0.1)
(0.223, 0.794, 0.25)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.link_bounds import eg_certified
from streamomd.rules.common.links import EG, image
from streamomd.rules.contract import Coords, Losses, Max, Mean, Row, Rule, Slots
from streamomd.rules.params import NotNegative, Positive


class Hyper(NamedTuple):
    U: Annotated[Positive, "at least the l1 norm of good weights"] = 10.0
    C: NotNegative = 0.0
    eta: Positive = 0.1


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # e^(theta - ref) - e^(-theta - ref)
    b: Mean = 2.0  # their sum


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0


class Move(NamedTuple):
    a: float
    ref: float
    base: float


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return h.U * (own.a / totals.S)


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if h.C == 0.0:
        a = -h.eta * (row.importance * row.slope)
    elif row.y * row.margin > 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    else:
        a = row.importance * h.C * row.y
    return a != 0.0, Move(a, totals.ref, math.exp(-totals.ref)), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    a, b = image(EG, theta, move.ref, move.base, 0.0)
    return Own(theta, a, b)


def losses_with(params: Mapping[str, Any]) -> tuple[str, ...]:
    return ("hinge",) if params["C"] > 0.0 else ()


RULE = eg_certified(
    Rule(
        name="eg",
        title="EG, balanced Winnow: many features of similar size, few relevant ones",
        source="Shalev-Shwartz & Singer 2006, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, totals=Totals),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(narrowed=losses_with),
    )
)
