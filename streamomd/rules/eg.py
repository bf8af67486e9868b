r"""EG+-, balanced Winnow: multiplicative weights of both signs (P2, section 4).

w_i = U (p_i+ - p_i-), p a distribution over 2n coordinates, each with its negative, all n counted,
met so far or not; f(w) = U times the least relative entropy of such a p to the uniform one, so
||w||_1 <= U and f(w) <= U ln 2n;

    w_i = grad f*(theta)_i = U (e^theta_i - e^-theta_i) / sum_j (e^theta_j + e^-theta_j),
    f*(theta) = U ln(sum (e^theta_i + e^-theta_i) / 2n).

With C above 0 it is balanced Winnow, on classes: on a mistake, y yhat <= 0, theta <- theta + C y x.
With C = 0 it is EG, for any loss with slope g: theta <- theta - eta g x. The row's importance
multiplies C and g. O(nnz) a row: both exponentials are kept, divided by the largest.

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
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.links import EG, complexity, conjugate, image, legal, unfit
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.contract import (
    Certificate,
    CoordinateSums,
    Coords,
    Losses,
    Max,
    Mean,
    Observe,
    Row,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import NotNegative, Positive


class Hyper(NamedTuple):
    U: Positive = 10.0
    C: NotNegative = 0.0
    eta: Positive = 0.1


class Own(NamedTuple):
    theta: Mean = 0.0
    a: Mean = 0.0  # e^(theta - ref) - e^(-theta - ref)
    b: Mean = 2.0  # their sum


class Totals(NamedTuple):
    S: Coords = 0.0
    ref: Max = 0.0
    n: Max = 0.0  # all coordinates
    steps: Sum = 0.0  # of h C on mistakes
    heaviest: Max = 0.0  # h of a mistake
    gain: Sum = 0.0  # of g yhat


class Accounts(NamedTuple):
    x: Max = 0.0  # largest of a coordinate


class Move(NamedTuple):
    a: float
    ref: float
    base: float


def begin(d: float, h: Hyper) -> Totals:
    return Totals(n=d)


def weight(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return h.U * (own.a / totals.S)


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    S, ref, n, steps, heaviest, gain = totals
    if h.C == 0.0:
        g = row.importance * row.slope
        found = Totals(S, ref, n, steps, heaviest, gain + g * row.margin)
        a = -h.eta * g
        return a != 0.0, Move(a, ref, math.exp(-ref)), found
    if row.y * row.margin > 0.0 or row.importance == 0.0:
        return False, Move(0.0, 0.0, 0.0), totals
    a = row.importance * h.C
    found = Totals(S, ref, n, steps + a, max(heaviest, row.importance), gain)
    return a != 0.0, Move(a * row.y, ref, math.exp(-ref)), found


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    theta = own.theta + move.a * x
    a, b = image(EG, theta, move.ref, move.base, 0.0)
    return Own(theta, a, b)


def mass(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (own.b,)


def stale(totals: Totals, clock: float, h: Hyper) -> bool:
    return unfit(EG, totals.S, totals.ref)


def peak(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> float:
    return abs(own.theta)


def rebase(totals: Totals, peak: float, clock: float, h: Hyper) -> Totals:
    return Totals(totals.S, peak, totals.n, totals.steps, totals.heaviest, totals.gain)


def refresh(own: Own, shared: object, totals: Totals, clock: float, h: Hyper) -> Own:
    base = math.exp(-totals.ref)
    a, b = image(EG, own.theta, totals.ref, base, 0.0)
    return Own(own.theta, a, b)


def observe(shared: Accounts, x: float, clock: float, h: Hyper) -> tuple[Accounts, tuple[()]]:
    return Accounts(max(shared.x, abs(x))), ()


def certificate(run: Run) -> list[Claim]:
    h, totals, n = run.h, run.totals, run.totals["n"]
    value = conjugate(EG, totals["S"], totals["ref"], n, h.U, 0.0)
    f = complexity(EG, run.u, h.U, 0.0)
    if h.C == 0.0:
        bound = (f + value) / h.eta + totals["gain"]
        return [Claim("regret", run.loss - run.loss_u, bound, OTHER)]
    bound = f + h.C * run.hinge_u(1.0)
    claims = [Claim("dual value", totals["steps"] - value, bound, f"{SOURCE}, theorem 1")]
    if "x" in run.shared:
        kappa = h.U * totals["heaviest"] * float(run.shared["x"].max()) ** 2
        margin = h.C * kappa
        if margin > 0.0:
            bound = 2.0 * (
                kappa * h.U * math.log(2.0 * n) / margin**2 + run.hinge_u(margin) / margin
            )
            claims.append(Claim("mistakes", totals["steps"] / h.C, bound, f"{SOURCE}, section 4"))
    return claims


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return legal(EG, h.U)


def live(totals: Totals, clock: float, h: Hyper) -> float:
    raised = totals.steps if h.C > 0.0 else -h.eta * totals.gain
    return raised - conjugate(EG, totals.S, totals.ref, totals.n, h.U, 0.0)


SOURCE = "Shalev-Shwartz & Singer 2006"
OTHER = "Orabona, Crammer & Cesa-Bianchi, lemma 1"


def losses_with(params: Mapping[str, Any]) -> tuple[str, ...]:
    return ("hinge",) if params["C"] > 0.0 else ()


PLAIN = Rule(
    name="eg",
    title="EG, balanced Winnow: many features of like size, few that matter",
    source=f"{SOURCE}, section 4",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, totals=Totals, begin=begin),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(narrowed=losses_with),
    sums=CoordinateSums(mass=mass, stale=stale, peak=peak, rebase=rebase, refresh=refresh),
    certificate=Certificate(claims=certificate, feasible=feasible, live=live, live_name="dual"),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        accounted=replace(
            PLAIN, state=replace(PLAIN.state, shared=Accounts), observe=Observe(observe)
        ),
    ),
)
