r"""FTRL-Proximal, per coordinate (P3, sections 3 and 5): AdaGrad's steps, exact zeros by L1.

G_i = sum (g x_i)^2; h_i = (beta + sqrt(G_i)) / alpha, or if radius > 0 sqrt(G_i / 2) / radius, and
0 before the first gradient. phi(w) = l1 sum abs(w) + l2 sum w^2 / 2 with abs(w) <= box (0: any),

    f_T(w) = k phi(w) + sum_s sum_i (h_{s,i} - h_{s-1,i}) (w_i - w_{s,i})^2 / 2,

k = T, the rows finished, if phi is charged "every" row, k = 1 if "once". With z as kept below,

    w_i = clip(-soft(z_i, k l1) / (h_i + k l2), +-box),
    z_i <- z_i + g x_i - (h_i^new - h_i^old) w_i.

Certificate (P3, theorems 6 and 7), u inside the box, w_t the weights that predicted row t:

    regret <= sum_s sum_i (h_{s,i} - h_{s-1,i}) (u_i - w_{s,i})^2 / 2 + k phi(u)
              + sum_t sum_i (g x_i)^2 / (2 h_{t,i});

with radius R, box <= R and no L1, L2: at most 2 sqrt(2) R sum_i sqrt(G_i).

Cost: O(nnz); no weight is stored, so untouched ones shrink by themselves. The usual choice for
sparse, wide data (hashed categories, text): a step for each coordinate, and weights that are 0.
Without phi it is AdaGrad with eta = alpha, delta = beta (P3, lemma 8).

>>> from streamomd.demo import score
>>> score("ftrl_proximal"), score("ftrl_proximal", alpha=1.0, l1=1.0, charge="once")
(0.192, 0.152)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.rules.contract import Choice, Claim, NotNegative, Positive, Row, Rule, Run, Sum
from streamomd.rules.prox import into_box, lead, phi

EVERY, ONCE = 0.0, 1.0


class Hyper(NamedTuple):
    alpha: Positive = 0.1
    beta: NotNegative = 1.0
    radius: NotNegative = 0.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    box: NotNegative = 0.0
    charge: Annotated[float, Choice(("every", "once"))] = EVERY


class Own(NamedTuple):
    z: Sum = 0.0
    G: Sum = 0.0


class Move(NamedTuple):
    g: float


class Accounts(NamedTuple):
    z: Sum = 0.0
    G: Sum = 0.0
    s: Sum = 0.0  # of (h_new - h_old) w
    q: Sum = 0.0  # of (h_new - h_old) w^2 + (g x)^2 / h_new


def curvature(G: float, h: Hyper) -> float:
    """h_i; 0 where nothing was learned."""
    if G == 0.0:
        return 0.0
    if h.radius > 0.0:
        return math.sqrt(0.5 * G) / h.radius
    return (h.beta + math.sqrt(G)) / h.alpha


def charged(clock: float, h: Hyper) -> float:
    """k: how often phi counts beside the rows before this one."""
    return clock - 1.0 if h.charge == EVERY else 1.0


def solved(z: float, G: float, clock: float, h: Hyper) -> float:
    if G == 0.0:
        return 0.0
    return lead(-z, curvature(G, h), charged(clock, h), h.l1, h.l2, h.box)


def weight(own: Own, shared: object, totals: object, clock: float, h: Hyper) -> float:
    return solved(own.z, own.G, clock, h)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[Move, object]:
    return Move(row.importance * row.slope), totals


def update(own: Own, shared: object, x: float, move: Move, clock: float, h: Hyper) -> Own:
    gradient = move.g * x
    G = own.G + gradient * gradient
    growth = curvature(G, h) - curvature(own.G, h)
    return Own(own.z + gradient - growth * solved(own.z, own.G, clock, h), G)


def accounted_weight(
    own: Accounts, shared: object, totals: object, clock: float, h: Hyper
) -> float:
    return solved(own.z, own.G, clock, h)


def accounted_update(
    own: Accounts, shared: object, x: float, move: Move, clock: float, h: Hyper
) -> Accounts:
    gradient = move.g * x
    G = own.G + gradient * gradient
    now = curvature(G, h)
    growth = now - curvature(own.G, h)
    w = solved(own.z, own.G, clock, h)
    paid = gradient * (gradient / now) if now > 0.0 else 0.0
    z = own.z + gradient - growth * w
    return Accounts(z, G, own.s + growth * w, own.q + growth * w * w + paid)


def certificate(run: Run) -> list[Claim]:
    h, u, G = run.h, run.u, run.own["G"]
    root = G**0.5
    curved = root / (math.sqrt(2.0) * h.radius) if h.radius else (h.beta * (G > 0) + root) / h.alpha
    center = float((curved * u * u - 2.0 * u * run.own["s"] + run.own["q"]).sum())
    times = run.rows if h.charge == EVERY else 1
    bound = 0.5 * center + times * phi(u, h.l1, h.l2)
    measured = run.loss - run.loss_u
    theorem = "7" if h.charge == EVERY and h.l1 + h.l2 > 0.0 else "6"
    claims = [Claim("regret", measured, bound, f"Qian, theorem {theorem}")]
    if 0.0 < h.box <= h.radius and h.l1 == h.l2 == 0.0:
        closed = 2.0 * math.sqrt(2.0) * h.radius * float(root.sum())
        claims.append(Claim("regret", measured, closed, "Qian, section 5, AdaGrad FTRL-Proximal"))
    return claims


def fit(u: Any, slots: Any, h: Hyper) -> Any:
    return into_box(u, h.box)


PLAIN = Rule(
    name="ftrl_proximal",
    title="FTRL-Proximal: sparse and wide data, a step for each coordinate, weights that are 0",
    source="Qian, notes on adaptive FTRL, sections 3 and 5",
    hyper=Hyper,
    move=Move,
    own=Own,
    weight=weight,
    step=step,
    update=update,
    fit=fit,
)
RULE = replace(
    PLAIN,
    certificate=certificate,
    accounted=replace(
        PLAIN, own=Accounts, weight=accounted_weight, update=accounted_update,
        certificate=certificate,
    ),
)  # fmt: skip
