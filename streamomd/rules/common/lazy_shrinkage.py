r"""Missed rounds of L1 and L2 shrinkage, in one step.

One round is w <- argmin over v of (v - w)^2 / 2 + rate (l1 abs(v) + l2 v^2 / 2): a soft threshold
by rate l1, then a division by 1 + rate l2. With a = 1 / (1 + rate l2), k of them come to

    sign(w) [abs(w) a^k + (l1 / l2) (a^k - 1)]_+,    for l2 = 0: soft(w, k rate l1),

because the weight, once 0, stays there. A box does nothing to a weight that lies in it already.

>>> shrunk(4.0, 3.0, 0.5, 1.0, 0.0), shrunk(4.0, 2.0, 1.0, 1.0, 1.0)
(2.5, 0.25)
"""

from __future__ import annotations

import math

from streamomd.rules.common.prox import soft


def shrunk(w: float, k: float, rate: float, l1: float, l2: float) -> float:
    """w after k rounds in which nothing else happened."""
    if k <= 0.0 or w == 0.0:
        return w
    m = rate * l2 if l2 > 0.0 else 0.0
    if m == 0.0:
        return soft(w, k * rate * l1) if l1 > 0.0 else w
    # of log(1 + m); up to 1e-4 these terms are all that a double holds, at a third of the price
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
