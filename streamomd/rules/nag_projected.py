r"""NAG projected: normalized adaptive gradient with the set its regret bounds need (P1, section 5).

Scale s_i = max abs(x_i), in ``passes`` = 1 (streaming) so far, this row counted, in 2
(transductive) over all rows, looked at before the first is learned. A_i = sqrt(G_i) s_i / (C eta)
with eta = sqrt(2); f_t(w) = <w, A_t w> / 2, whose conjugate has the gradient theta_i / A_i. With g
the loss's slope, no squash and no pace,

    G_i += (g x_i)^2,    w_i <- w_i - g x_i / A_i = w_i - C eta g x_i / (s_i sqrt(G_i)),

then the nearest w in the norm of A, after each row, with sum s_i abs(w_i) <= C (``norm`` "l1"):
soft(w_i, mu s_i / A_i). "l2" is sum (s_i w_i)^2 <= C^2, P1's p = 2: with S_i = 1 / (k s_i^2) and
C sqrt(k) for its C, k the most that sum x_i^2 / s_i^2 comes to, k cancels everywhere.

Certificate, u in the set, w_t the weights that predicted row t:

    regret <= sum_t <w_t - u, (A_t - A_{t-1}) (w_t - u)> / 2
              + sum_t sum_i (g x_i)^2 / (2 A_{t,i})                                     (lemma 1)
           <= 2 sqrt(2) C sum sqrt(G_i) / s_i                            (theorem 1, transductive)
           <= C sum sqrt(G_i) / s_i (1 + 6 D_i + D_i^2) / (2 sqrt(2))       (theorem 2, streaming)

D_i = s_i / the first abs(x_i).

Cost: O(nnz), and O(d) times some 80 halvings on rows that leave the set. Predictions do not change
when any feature is multiplied by any constant that leaves its values in range: G holds squares.
Choose it over NAG when a bound is wanted and a C is known that sum abs(w_i) max abs(x_i) of a good
w does not exceed; else NAG.

>>> from streamomd.training.demo import score
>>> score("nag_projected"), score("nag_projected", C=3.0), score("nag_projected", norm="l2")
(0.321, 0.301, 0.21)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common import sets
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.common.weighted_balls import L1, beyond, drawn, limit, size
from streamomd.rules.contract import (
    PROJECTED,
    Certificate,
    Constraint,
    CoordinateSums,
    Coords,
    Max,
    Mean,
    Observe,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Between, Choice, Positive, YesNo
from streamomd.rules.ranges import SQUARES

ETA = math.sqrt(2.0)


class Hyper(NamedTuple):
    C: Positive = 1.0
    passes: Annotated[float, Between(1, 2, whole=True)] = 1.0
    norm: Annotated[float, Choice(("l1", "l2"))] = 0.0
    clip: YesNo = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0


class Shared(NamedTuple):
    s: Max = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


class Totals(NamedTuple):
    size: Coords = 0.0


class Move(NamedTuple):
    g: float
    step: float


def ball(h: Hyper) -> float:
    return L1 + h.norm


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.s, abs(x))), ()


def align(own: Own, old: Shared, new: Shared, totals: Totals, clock: float, h: Hyper) -> Own:
    return own  # the engine asks anew what the coordinate adds to ``size``


def weight(own: Any, shared: Any, totals: Totals, clock: float, h: Hyper) -> float:
    return float(own.w)


def clamp(margin: float, totals: Totals, h: Hyper) -> float:
    return min(max(margin, -h.C), h.C) if h.clip != 0.0 else margin


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, h.C * ETA * g), totals


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    return Own(own.w - move.step * (x / (shared.s * math.sqrt(G))), G)


def mass(own: Any, shared: Any, totals: Totals, clock: float, h: Hyper) -> tuple[float]:
    return (size(own.w * shared.s, ball(h)),)


def outside(totals: Totals, clock: float, h: Hyper) -> bool:
    return beyond(totals.size, ball(h), h.C) and clock % h.project_every == 0.0


def inside(own: Any, shared: Any, mu: float, h: Hyper) -> float:
    """The coordinate of the nearest point in the set: s w weighs A / s^2, C eta goes into mu."""
    if own.G == 0.0:
        return 0.0
    span = drawn(own.w * shared.s, math.sqrt(own.G) / shared.s, ball(h), mu)
    return span / float(shared.s)


def reach(own: Any, shared: Any, mu: float, totals: Totals, clock: float, h: Hyper) -> float:
    return size(inside(own, shared, mu, h) * shared.s, ball(h))


def radius(h: Hyper) -> float:
    return limit(ball(h), h.C)


def project(own: Own, shared: Any, mu: float, totals: Totals, clock: float, h: Hyper) -> Own:
    return Own(inside(own, shared, mu, h), own.G)


def largest(params: Mapping[str, Any]) -> int | None:
    return PROJECTED if params["project_every"] == 1 else None


def looks(params: Mapping[str, Any]) -> bool:
    return bool(params["passes"] == 2)


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    """The weighted ball of the scales at the end; a coordinate that was never seen is free."""
    make = sets.L1 if ball(h) == L1 else sets.L2
    return make(slots["s"], h.C)


class First(NamedTuple):
    s: Max = 0.0
    first: Max = 0.0


class Accounts(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0
    p: Sum = 0.0  # of (A_t - A_{t-1}) w_t
    q: Sum = 0.0  # of (A_t - A_{t-1}) w_t^2
    paid: Sum = 0.0  # of (g x_i)^2 / A_t


def first_observe(shared: First, x: float, clock: float, h: Hyper) -> tuple[First, tuple[()]]:
    return First(max(shared.s, abs(x)), shared.first if shared.first > 0.0 else abs(x)), ()


def charged(own: Accounts, grown: float) -> Accounts:
    """A has grown so much while w predicted."""
    moved = grown * own.w
    return Accounts(own.w, own.G, own.p + moved, own.q + moved * own.w, own.paid)


def accounted_align(
    own: Accounts, old: First, new: First, totals: Totals, clock: float, h: Hyper
) -> Accounts:
    return charged(own, math.sqrt(own.G) * (new.s - old.s) / (h.C * ETA))


def accounted_update(
    own: Accounts, shared: First, x: float, move: Move, clock: float, h: Hyper
) -> Accounts:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0:
        return own
    root = math.sqrt(G)
    own = charged(own, (root - math.sqrt(own.G)) * shared.s / (h.C * ETA))
    paid = z * (z / root) / shared.s * (h.C * ETA)
    return Accounts(own.w - move.step * (x / (shared.s * root)), G, own.p, own.q, own.paid + paid)


def accounted_project(
    own: Accounts, shared: First, mu: float, totals: Totals, clock: float, h: Hyper
) -> Accounts:
    return Accounts(inside(own, shared, mu, h), own.G, own.p, own.q, own.paid)


def certificate(run: Run) -> list[Claim]:
    own, s, u, C = run.own, run.shared["s"], run.u, run.h.C
    if run.h.clip:
        raise ValueError("the theorems are about predictions that are not clipped")
    if run.h.project_every > 1.0:
        raise ValueError("the weights were not projected after each row")
    root, measured = np.sqrt(own["G"]), run.loss - run.loss_u
    center = float(root * s @ (u * u)) / (C * ETA) - 2.0 * float(u @ own["p"]) + own["q"].sum()
    lemma = 0.5 * float(center) + 0.5 * float(own["paid"].sum())
    claims = [Claim("regret", measured, lemma, "Ross et al., lemma 1")]
    share = np.divide(root, s, out=np.zeros_like(s), where=s > 0.0)
    if run.h.passes == 2.0:
        bound = 2.0 * math.sqrt(2.0) * C * float(share.sum())
        return [*claims, Claim("regret", measured, bound, "Ross et al., theorem 1")]
    far = np.divide(s, run.shared["first"], out=np.ones_like(s), where=s > 0.0)
    factor = (1.0 + 6.0 * far + far * far) / (2.0 * math.sqrt(2.0))
    bound = C * float(share @ factor)
    return [*claims, Claim("regret", measured, bound, "Ross et al., theorem 2")]


PLAIN = Rule(
    name="nag_projected",
    title="NAG in the set its regret bound needs: raw units, a bound on the weights known",
    source="Ross, Mineiro & Langford 2013, theorems 1 and 2",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, shared=Shared, totals=Totals, weight="w", curvature="G"),
    observe=Observe(observe, ahead=looks),
    align=align,
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(range=SQUARES, clamp=clamp),
    sums=CoordinateSums(mass=mass),
    constraint=Constraint(outside, reach, radius, project, largest=largest),
    certificate=Certificate(feasible=feasible),
)
RULE = replace(
    PLAIN,
    certificate=replace(
        PLAIN.certificate,
        claims=certificate,
        accounted=replace(
            PLAIN,
            state=replace(PLAIN.state, own=Accounts, shared=First),
            observe=Observe(first_observe, ahead=looks),
            align=accounted_align,
            update=accounted_update,
            constraint=Constraint(outside, reach, radius, accounted_project, largest=largest),
            certificate=replace(PLAIN.certificate, claims=certificate),
        ),
    ),
)
