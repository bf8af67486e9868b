r"""The closed form of every rule with phi(w) = l1 abs(w) + l2 w^2 / 2, abs(w) <= box.

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
"""

from __future__ import annotations

import math
from typing import Any


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
