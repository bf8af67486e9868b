r"""FTRL-Centered AdaGrad (P3, end of section 5): dual averaging with a step for each coordinate.

M_i = max h abs(x_i) so far, h a row's importance, this row counted before its prediction, so that L
M_i bounds the gradient to come (L: the loss's Lipschitz constant); G_i = sum (g x_i)^2, theta = -
sum g x of the T finished rows; phi(w) = l1 sum abs(w) + l2 sum w^2 / 2:

    h_i = sqrt((L M_i)^2 + G_i) / radius,    f_T(w) = sum h_i w_i^2 / 2 + T phi(w),
    w_i = grad f_T*(theta)_i = soft(theta_i, T l1) / (h_i + T l2),    theta <- theta - g x.

Certificate (P3, theorem 5), h_t the curvature that row t is predicted with,

    regret <= sum_i h_{T,i} u_i^2 / 2 + (T - 1) phi(u) + sum_t sum_i (g x_i)^2 / (2 h_{t,i});

while abs(u_i) <= radius and no slope is above L, at most R sum_i (sqrt((L M_i)^2 + G_i) / 2
+ sqrt(G_i)) + (T - 1) phi(u), R the radius. (For h_T the state has the one after row T, which is
hardly larger.)

Cost: O(nnz). Use it like FTRL-Proximal, where the bound should not need a box.

>>> from streamomd.training.demo import score
>>> score("ftrl_centered"), score("ftrl_centered", l1=0.01)
(0.146, 0.189)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamomd.rules.certificates.ftrl_bounds import centered_certified
from streamomd.rules.common.schedules import centered_curvature
from streamomd.rules.common.sets import ComparatorSet, box, lead
from streamomd.rules.contract import Certificate, Losses, Max, Observe, Row, Rule, Saved, Slots, Sum
from streamomd.rules.params import Lipschitz, NotNegative, Positive


class Hyper(NamedTuple):
    radius: Positive = 1.0
    l1: NotNegative = 0.0
    l2: NotNegative = 0.0
    L: Lipschitz = 0.0


class Shared(NamedTuple):
    M: Max = 0.0


class Own(NamedTuple):
    theta: Sum = 0.0
    G: Sum = 0.0


class Move(NamedTuple):
    g: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.M, abs(x))), ()


def weight(own: Own, shared: Shared, totals: object, clock: float, h: Hyper) -> float:
    return lead(own.theta, centered_curvature(shared.M, own.G, h), clock - 1.0, h.l1, h.l2, 0.0)


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g), totals


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    gradient = move.g * x
    return Own(own.theta - gradient, own.G + gradient * gradient)


def older(saved: Saved) -> str:
    """Version 1 left the importance out of M."""
    return "M does not count importances" if saved.weighted else ""


def feasible(slots: Any, h: Hyper) -> ComparatorSet:
    return box(h.radius)


RULE = centered_certified(
    Rule(
        name="ftrl_centered",
        title="FTRL-Centered AdaGrad: dual averaging with a step for each coordinate",
        source="Qian, notes on adaptive FTRL, section 5",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, shared=Shared, version=2, older=older, curvature="G"),
        observe=Observe(observe, weighted=True),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(lipschitz="L"),
        certificate=Certificate(feasible=feasible),
    )
)
