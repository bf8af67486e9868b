"""Half the squared difference to the target's logarithm, (log y - p)^2 / 2.

The prediction exp(p) is the median where the errors of the logarithm are symmetric.
"""

from __future__ import annotations

import math
import sys

from streamomd.losses.contract import Loss
from streamomd.losses.poisson import rate

SMALLEST = sys.float_info.min
"""The smallest legal target; rows that are only predicted have 0 in its place."""


def value(margin: float, y: float, p: object) -> float:
    r = margin - math.log(max(y, SMALLEST))
    return 0.5 * r * r


def slope(margin: float, y: float, p: object) -> float:
    return margin - math.log(max(y, SMALLEST))


LOSS = Loss(
    name="log_square",
    title="half the squared difference to the logarithm; regression of sizes to the median",
    value=value,
    slope=slope,
    mean=rate,
    classifies=False,
    least=SMALLEST,
)
