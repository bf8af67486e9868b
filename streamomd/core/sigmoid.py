"""The logistic function, where neither losses nor numba are loaded."""

from __future__ import annotations

import math


def sigmoid(margin: float) -> float:
    """1 / (1 + exp(-margin)), without overflow on either side.

    >>> sigmoid(0.0), sigmoid(-800.0), sigmoid(800.0)
    (0.5, 0.0, 1.0)
    """
    if margin >= 0.0:
        return 1.0 / (1.0 + math.exp(-margin))
    e = math.exp(margin)
    return e / (1.0 + e)
