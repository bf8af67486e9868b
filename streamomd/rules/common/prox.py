r"""The closed form of every rule with phi(w) = l1 abs(w) + l2 w^2 / 2, abs(w) <= box.

prox(v, h, k) = argmin over w of (h / 2) (w - v)^2 + k phi(w)
              = clip(soft(v, k l1 / h) / (1 + k l2 / h), +-box),    box = 0: none,

for one coordinate; ``lead`` is the same from the dual side, v = theta / h, by one division. A
weight of no curvature, h = 0, is one that nothing has moved: 0.

>>> prox(3.0, 2.0, 1.0, 2.0, 2.0, 0.0), prox(3.0, 2.0, 1.0, 2.0, 2.0, 0.5)
(1.0, 0.5)
>>> lead(6.0, 2.0, 1.0, 2.0, 2.0, 0.0)
1.0
"""

from __future__ import annotations

from typing import Any


def soft(v: float, k: float) -> float:
    """v drawn towards 0 by k, no further."""
    return v - max(min(v, k), -k)  # no branch: the sign of v is anyone's guess


def clip(w: float, box: float) -> float:
    """w, at most ``box`` away from 0; box = 0: anything goes."""
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


def phi(u: Any, l1: float, l2: float) -> float:
    """phi of a whole vector inside the box: what a certificate charges a comparator."""
    return float(l1 * abs(u).sum() + 0.5 * l2 * (u * u).sum())
