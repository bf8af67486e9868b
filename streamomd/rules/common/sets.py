"""The convex sets that rules constrain their weights to, and so the comparators of their theorems.

A set offers two operations, both for vectors of shape (d,): ``nearest(u)``, the Euclidean
projection, and ``least(g)``, the minimum of <g, v> over its members v, from which a lower bound on
a convex function over the set follows. ``scaled(unit)`` is the set of all z with unit * z in it.

>>> L1(1.0, 2.0).nearest(np.array([3.0, -2.0])), L1(1.0, 2.0).least(np.array([3.0, -4.0]))
(array([ 1.5, -0.5]), -8.0)
>>> Simplex().nearest(np.array([0.7, 0.7, -1.0])), Simplex().least(np.array([3.0, -4.0]))
(array([0.5, 0.5, 0. ]), -4.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamomd.rules.common.prox import power_drawn

HALVINGS = 200


@dataclass(frozen=True)
class Free:
    """All vectors."""

    bounded = False

    def nearest(self, u: Any) -> Any:
        return u

    def least(self, g: Any) -> float:
        return -math.inf if np.any(g) else 0.0

    def scaled(self, unit: Any) -> Free:
        return self


@dataclass(frozen=True)
class Box:
    """abs(u_i) <= bound_i; bound: a number, or (d,)."""

    bound: Any
    bounded = True

    def nearest(self, u: Any) -> Any:
        return np.clip(u, -np.asarray(self.bound), self.bound)

    def least(self, g: Any) -> float:
        return -float(np.sum(self.bound * np.abs(g)))

    def scaled(self, unit: Any) -> Box:
        return Box(self.bound / unit)


@dataclass(frozen=True)
class L1:
    """sum weight_i abs(u_i) <= radius. weight: a number, or (d,); 0 leaves a coordinate free."""

    weight: Any
    radius: float
    bounded = True

    def nearest(self, u: Any) -> Any:
        a, radius = _normal(self.weight, self.radius, u)
        size = np.abs(u)
        if float(a @ size) <= radius:
            return u
        drawn = np.maximum(size - _multiplier(size, a, radius) * a, 0.0)
        return np.copysign(_shrunk(drawn, a, radius), u)

    def least(self, g: Any) -> float:
        a = np.broadcast_to(self.weight, g.shape)
        if np.any(g[a == 0.0]):
            return -math.inf
        return -self.radius * float((np.abs(g[a > 0.0]) / a[a > 0.0]).max(initial=0.0))

    def scaled(self, unit: Any) -> L1:
        return L1(self.weight * unit, self.radius)


@dataclass(frozen=True)
class L2:
    """sum (weight_i u_i)^2 <= radius^2. weight: as of ``L1``."""

    weight: Any
    radius: float
    bounded = True

    def nearest(self, u: Any) -> Any:
        a, radius = _normal(self.weight, self.radius, u)
        size = float(np.linalg.norm(a * u))
        if size <= radius:
            return u
        if radius == 0.0:
            return np.where(a > 0.0, 0.0, u)
        if np.ndim(self.weight) == 0:
            return u * (radius / size)
        # ||a u / (1 + mu a^2)|| falls in mu; at ``high`` it is below the radius.
        low, high = 0.0, 1.0
        while float(np.linalg.norm(a * (u / (1.0 + high * a * a)))) > radius and high < 1e300:
            low, high = high, 4.0 * high
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            outside = float(np.linalg.norm(a * (u / (1.0 + middle * a * a)))) > radius
            low, high = (middle, high) if outside else (low, middle)
        return u / (1.0 + high * a * a)

    def least(self, g: Any) -> float:
        a = np.broadcast_to(self.weight, g.shape)
        if np.any(g[a == 0.0]):
            return -math.inf
        return -self.radius * float(np.linalg.norm(g[a > 0.0] / a[a > 0.0]))

    def scaled(self, unit: Any) -> L2:
        return L2(self.weight * unit, self.radius)


@dataclass(frozen=True)
class Lq:
    """sum (weight_i abs(u_i))^q <= radius^q, q > 1. weight: as of ``L1``."""

    weight: Any
    radius: float
    q: float
    bounded = True

    def nearest(self, u: Any) -> Any:
        a, radius = _normal(self.weight, self.radius, u)
        if self._size(a, u) <= radius:
            return u
        found, some = u.copy(), a > 0.0
        a, v = a[some], u[some]

        def drawn(mu: float) -> Any:
            pairs = zip(a * v, mu * a * a, strict=True)
            return np.array([power_drawn(span, m, self.q) for span, m in pairs]) / a

        low, high = 0.0, 1.0
        while self._size(a, drawn(high)) > radius and high < 1e300:
            low, high = high, 4.0 * high
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            outside = self._size(a, drawn(middle)) > radius
            low, high = (middle, high) if outside else (low, middle)
        found[some] = drawn(high)
        return found

    def _size(self, a: Any, u: Any) -> float:
        return float(np.linalg.norm(a * u, self.q))

    def least(self, g: Any) -> float:
        a = np.broadcast_to(self.weight, g.shape)
        if np.any(g[a == 0.0]):
            return -math.inf
        return -self.radius * float(np.linalg.norm(g[a > 0.0] / a[a > 0.0], self.q / (self.q - 1)))

    def scaled(self, unit: Any) -> Lq:
        return Lq(self.weight * unit, self.radius, self.q)


@dataclass(frozen=True)
class Simplex:
    """u_i >= 0, sum weight_i u_i = 1. weight > 0: a number, or (d,)."""

    weight: Any = 1.0
    bounded = True

    def nearest(self, u: Any) -> Any:
        a, total = _normal(self.weight, 1.0, u)
        raised = np.maximum(u - _multiplier(u, a, total) * a, 0.0)
        return _shrunk(raised, a, total)

    def least(self, g: Any) -> float:
        return float((g / self.weight).min())

    def scaled(self, unit: Any) -> Simplex:
        return Simplex(self.weight * unit)


ComparatorSet = Free | Box | L1 | L2 | Lq | Simplex


def box(radius: float) -> ComparatorSet:
    """The box of a rule's parameter, 0: none."""
    return Box(radius) if radius > 0.0 else Free()


def _normal(weight: Any, radius: float, u: Any) -> tuple[Any, float]:
    """Weights (d,) of at most 1 and the radius in their unit: their squares do not overflow."""
    a = np.broadcast_to(np.asarray(weight, dtype=np.float64), u.shape)
    top = float(a.max(initial=0.0))
    return (a / top, radius / top) if top > 0.0 else (a, radius)


def _multiplier(v: Any, a: Any, total: float) -> float:
    """The mu at which sum a_i max(v_i - mu a_i, 0) = total, which falls in mu."""
    some = a > 0.0
    ratio = v[some] / a[some]
    order = np.argsort(-ratio, kind="stable")
    ratio, weight = ratio[order], a[some][order]
    mu = (np.cumsum(weight * v[some][order]) - total) / np.cumsum(weight * weight)
    last = np.flatnonzero(ratio > mu)
    return float(mu[last[-1]]) if len(last) else float(ratio[0])


def _shrunk(v: Any, a: Any, total: float) -> Any:
    """v >= 0 with the rounding of a sum taken out: what moves it is of the order of 1e-16."""
    size = float(a @ v)
    return np.where(a > 0.0, v * (total / size), v) if size > 0.0 else v


def box_of(slots: Any, h: Any) -> ComparatorSet:
    """``Certificate.feasible`` of a rule with the parameter box."""
    return box(h.box)
