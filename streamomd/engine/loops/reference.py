"""The reference of numeric columns: running means and scales, and z = (x - c) / s.

``reference``: (4, coordinates of the block): rows mu, M2 (Welford), c and s. Coordinate 0 is the
bias: c = 0, s = 1. Column j of a row is coordinate j + 1. An s of 0: one value only so far.
"""

from __future__ import annotations

import math
from typing import Any

MU, M2, C, S = 0, 1, 2, 3
LARGEST = 1e6
"""Of abs(z): powers of z must not overflow, nor one row outweigh what all others have shown."""


def observe(reference: Any, x: Any, low: int, high: int, importance: float, n: float) -> None:
    """Welford's step for columns (West 1979 for weights); n: all importance, this row's too.

    importance / n comes first: it is 1 in the first row, whose mean is then exact.
    """
    part = importance / n
    for j in range(low, high):
        d = x[j] - reference[MU, j]
        reference[MU, j] += d * part
        reference[M2, j] += importance * d * (x[j] - reference[MU, j])


def standardise(reference: Any, x: Any, p: int, z: Any) -> None:
    """z of every column, zeros included. The first value that is not c gives a column its scale."""
    c, s = reference[C], reference[S]
    for j in range(1, p + 1):
        d = x[j] - c[j]
        if s[j] == 0.0:
            if d != 0.0:
                s[j] = abs(d)  # constant until now: z was 0, and so is what was learned from it
                z[j] = d / s[j]
            else:
                z[j] = 0.0
        else:
            z[j] = d / s[j]


def inverses(reference: Any, size: int, r: Any) -> int:
    """Write r_j = 1 / s_j, 0 of a coordinate without a scale; return how many have no scale."""
    missing = 0
    for j in range(size):
        s = reference[S, j]
        r[j] = 1.0 / s if s > 0.0 else 0.0
        missing += s == 0.0
    return missing


def standardise_by(r: Any, reference: Any, x: Any, size: int, z: Any, limit: float) -> int:
    """z of the bias and every column; how many abs(z) are above the limit.

    r: inverses of scales, 0 of a column without a scale, whose z is 0. size: padded, x with zeros.
    """
    for j in range(size):
        z[j] = (x[j] - reference[C, j]) * r[j]
    above = 0
    for j in range(size):
        above += abs(z[j]) > limit
    return above


def is_beyond(z: Any, p: int, bound: float) -> bool:
    """Whether a column has left its reference: abs(z) is above ``LARGEST`` and, as s is of other
    rows, above what is possible, the root of their importance in units of this row's (Samuelson).
    """
    limit = max(LARGEST, bound)
    found = 0
    for j in range(1, p + 1):
        found += abs(z[j]) > limit
    return found > 0


def first_scales(reference: Any, x: Any, p: int, r: Any, z: Any) -> int:
    """The first value that is not c gives a column its scale; how many columns have none yet.

    Constant until now: z was 0, and so is what was learned from it.
    """
    missing = 0
    for j in range(1, p + 1):
        if reference[S, j] == 0.0:
            d = x[j] - reference[C, j]
            if d == 0.0:
                missing += 1
                continue
            reference[S, j] = abs(d)
            r[j] = 1.0 / abs(d)
            z[j] = d / abs(d)
    return missing


def next_reference(reference: Any, j: int, n: float) -> Any:
    """(c', s') of column j: the mean and the standard deviation of the rows observed.

    A column that has become constant to the last digit keeps its scale.
    """
    s = math.sqrt(reference[M2, j] / n)
    return reference[MU, j], s if s > 0.0 else reference[S, j]
