"""The convex sets that rules constrain their weights to, and so the comparators of their theorems.

prox(v, h, k) = argmin over w of (h / 2) (w - v)^2 + k phi(w)
              = clip(soft(v, k l1 / h) / (1 + k l2 / h), +-box),    box = 0: none,

for one coordinate; ``lead`` is the same from the dual side, v = theta / h, by one division. A
weight without curvature, h = 0, has not been updated: 0.

>>> prox(3.0, 2.0, 1.0, 2.0, 2.0, 0.0), prox(3.0, 2.0, 1.0, 2.0, 2.0, 0.5)
(1.0, 0.5)
>>> lead(6.0, 2.0, 1.0, 2.0, 2.0, 0.0)
1.0

k missed rounds of L1 and L2 shrinkage come to one step. A round is the prox of rate phi with h = 1:
a soft threshold by rate l1, then a division by 1 + rate l2. With a = 1 / (1 + rate l2), k of them
come to

    sign(w) [abs(w) a^k + (l1 / l2) (a^k - 1)]_+,    for l2 = 0: soft(w, k rate l1),

because the weight, once 0, stays there. A box does nothing to a weight that lies in it already.

>>> shrunk(4.0, 3.0, 0.5, 1.0, 0.0), shrunk(4.0, 2.0, 1.0, 1.0, 1.0)
(2.5, 0.25)

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


def soft(v: float, k: float) -> float:
    """v shrunk towards 0 by k, at most to 0."""
    return v - max(min(v, k), -k)  # no branch: the sign of v is unpredictable


def clip(w: float, box: float) -> float:
    """w, at most ``box`` away from 0; box = 0: no limit."""
    if box > 0.0:
        return max(-box, min(box, w))
    return w


def prox(v: float, h: float, k: float, l1: float, l2: float, box: float) -> float:
    """argmin over w of (h / 2) (w - v)^2 + k phi(w)."""
    if h <= 0.0:
        return 0.0
    return clip(soft(v, k * l1 / h) / (1.0 + k * l2 / h), box)


def lead(theta: float, h: float, k: float, l1: float, l2: float, box: float) -> float:
    """argmin over w of (h / 2) w^2 - theta w + k phi(w)."""
    curvature = h + k * l2
    if curvature <= 0.0:
        return 0.0
    return clip(soft(theta, k * l1) / curvature, box)


def shrunk(w: float, k: float, rate: float, l1: float, l2: float) -> float:
    """w after k rounds of shrinkage alone."""
    if k <= 0.0 or w == 0.0:
        return w
    m = rate * l2 if l2 > 0.0 else 0.0
    if m == 0.0:
        return soft(w, k * rate * l1) if l1 > 0.0 else w
    # of log(1 + m); up to 1e-4 these terms are all that a double holds, at a third of the cost
    log = m * (1.0 - m * (1 / 2 - m * (1 / 3 - m / 4))) if m < 1e-4 else math.log1p(m)
    if l1 == 0.0 or k * log > 0.5:
        decay = math.exp(-k * log)
        lost = 1.0 - decay
    else:
        lost = -math.expm1(-k * log)
        decay = 1.0 - lost
    if l1 == 0.0 or decay == 0.0:
        return w * decay
    return soft(w * decay, l1 * rate * (lost / m))  # a + ... + a^k = (1 - a^k) / m


def power_drawn(v: float, m: float, q: float) -> float:
    """argmin over w of (w - v)^2 / 2 + m abs(w)^q / q, q > 1.

    abs(w) = e^t with e^t + m e^((q - 1) t) = abs(v): convex in t, so that Newton's steps from above
    fall to the root.
    """
    size = abs(v)
    if size == 0.0 or m == 0.0:
        return v
    high, k = math.log(m), q - 1.0
    t = min(math.log(size), (math.log(size) - high) / k)
    for _ in range(100):
        first, second = math.exp(t), math.exp(high + k * t)
        after = t - (first + second - size) / (first + k * second)
        if not after < t:
            break
        t = after
    return math.copysign(math.exp(t), v)


def phi(u: Any, l1: float, l2: float) -> float:
    """phi of a whole vector inside the box: what a certificate adds for a comparator."""
    return float(l1 * abs(u).sum() + 0.5 * l2 * (u * u).sum())


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
