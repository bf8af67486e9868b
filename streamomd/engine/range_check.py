"""One pass over values: whether all of them are 0 or within limits."""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.jit import LazyCompiled, float64, read

_AS_IS = 1 << 14
"""Python checks up to this number of values: few rows need nothing compiled."""


@functools.cache
def checker(dtype: str) -> Any:
    """``within`` for values of a dtype, compiled once there is enough to look at."""
    return LazyCompiled(within, [read(dtype), float64, float64], _AS_IS)


def within(values: Any, least: float, most: float) -> bool:
    """Whether each value is 0, or at least ``least`` and at most ``most`` in size; NaN is not."""
    outside = 0
    for k in range(len(values)):
        size = abs(float(values[k]) * 1.0)  # float64, also of a float32
        # No branch, so that it becomes vector instructions.
        outside += (not size <= most) | ((size < least) & (size != 0.0))
    return outside == 0
