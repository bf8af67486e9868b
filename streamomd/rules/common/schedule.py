"""The three step-size schedules of online gradient descent."""

from __future__ import annotations

import math
from typing import Annotated

from streamomd.rules.params import Choice

Schedule = Annotated[float, Choice(("constant", "sqrt", "inverse"))]
CONSTANT, SQRT, INVERSE = 0.0, 1.0, 2.0


def rate(eta: float, schedule: float, t: float) -> float:
    """eta, eta / sqrt(t) or eta / t (t from 1).

    >>> rate(0.5, SQRT, 4.0)
    0.25
    """
    if schedule == CONSTANT:
        return eta
    if schedule == SQRT:
        return eta / math.sqrt(t)
    return eta / t
