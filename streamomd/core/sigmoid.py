"""The logistic function, where neither losses nor numba are loaded."""

from __future__ import annotations

import math


def sigmoid(margin: float) -> float:
    """1 / (1 + exp(-margin)), without overflow on either side.

    >>> sigmoid(0.0), sigmoid(-800.0), sigmoid(800.0)
    (0.5, 0.0, 1.0)
    """
    e = math.exp(-abs(margin))  # without a branch: the sign is not predictable
    return (1.0 if margin >= 0.0 else e) / (1.0 + e)
