r"""Winnow: multiplicative weights on the simplex (P2, section 4).

f(w) = sum w_i ln(n w_i) over the simplex of all n coordinates, seen or not;

    w_i = grad f*(theta)_i = e^theta_i / sum_j e^theta_j,    f*(theta) = ln(sum e^theta_i / n).

With C above 0 it is Winnow, on classes: on a mistake, y yhat <= 0, theta <- theta + C y x. With
C = 0 it follows any loss's slope g: theta <- theta - eta g x. The row's importance multiplies C
and g. O(nnz) a row: e^theta is stored, divided by that of the largest theta.

Certificates, for any u of the simplex. With C, h the importance, L(u, m) the summed hinge loss with
margin m, k = max h x^2 over all entries and m = C k: at most 2 (k ln n / m^2 + L(u, m) / m)
mistakes (section 4; it needs ``model.certificate``); and the dual value D = sum of the steps -
f*(theta) is at most f(u) + C L(u, 1) (theorem 1). With eta: regret is at most
(f(u) + f*(theta)) / eta + sum of g yhat (P0, lemma 1). In the progress line: the dual
value, without C -f*(theta) - eta sum of g yhat, so that regret <= (f(u) - it) / eta.

For a prediction that is a weighted mean of its inputs, most of which do not matter: experts. Keep
entries near 1 in size. No parameter makes a weight negative or their sum another than 1: where a
feature's weight has to be negative, or a prediction larger than any entry, use `eg`. On separable
rows of 12 Gaussian features `eg` makes 6 % errors, Winnow 28 %.

>>> from streamomd.training.demo import score
>>> score("winnow"), score("winnow", "hinge", C=0.1)
(0.274, 0.225)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.link_bounds import winnow_certified
from streamomd.rules.common.links import WINNOW, image
from streamomd.rules.contract import Coords, Losses, Max, Mean, Row, Rule, Slots
from streamomd.rules.params import NotNegative, Positive


class Hyper(NamedTuple):
    C: NotNegative = 0.0
    eta: Annotated[Positive, "any; weights stay shares of 1: for negative ones use eg"] = 0.1


class Own(NamedTuple):
    theta: Mean = 0.0
    e: Mean = 1.0  # e^(theta - ref)


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0


class Move(NamedTuple):
    a: float
    ref: float


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return own.e / totals.S


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    if h.C == 0.0:
        a = -h.eta * (row.importance * row.slope)
    elif row.y * row.margin > 0.0:
        return False, Move(0.0, 0.0), totals
    else:
        a = row.importance * h.C * row.y
    return a != 0.0, Move(a, totals.ref), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    e = image(WINNOW, theta, move.ref, 0.0, 0.0)[0]
    return Own(theta, e)


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (own.e,)


def losses_with(params: Mapping[str, Any]) -> tuple[str, ...]:
    return ("hinge",) if params["C"] > 0.0 else ()


RULE = winnow_certified(
    Rule(
        name="winnow",
        title="Winnow: experts, weights that are shares of 1",
        source="Shalev-Shwartz & Singer 2006, section 4",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, totals=Totals),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(narrowed=losses_with),
    ),
    mass,
)
