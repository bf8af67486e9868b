"""The reference of numeric columns: running means and scales, and z = (x - c) / s.

``reference``: (4, coordinates of the block): rows mu, M2 (Welford), c and s. Coordinate 0 is the
bias: c = 0, s = 1. Column j of a row is coordinate j + 1. An s of 0: one value only so far.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    # A loop of its own without a branch: it becomes vector instructions.
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


T, N, NEXT = 0, 1, 2
"""``schedule``: rows learned, their importance, and the row of the next change of reference."""


def standardise_rows(
    reference: Any,
    schedule: Any,
    p: int,
    dense: bool,
    learns: bool,
    row: int,
    observed: bool,
    indptr: Any,
    indices: Any,
    values: Any,
    importance: Any,
    z_indptr: Any,
    z_indices: Any,
    z_values: Any,
) -> int:
    """Write rows from ``row`` on with z in place of x; the row after the last one written.

    p: numeric columns, the first of a row. It stops at a row at which a change of reference is due:
    that row is observed already, and ``observed`` says so in the next call. learns: False for a
    prediction, which observes nothing. Sparse rows get an entry for every numeric column.
    """
    x, z = np.zeros(p + 1), np.zeros(p + 1)
    for i in range(row, len(importance)):
        h = importance[i]
        start = i * indptr[0] if dense else indptr[i]
        end = start + indptr[0] if dense else indptr[i + 1]
        # The rest of the row begins behind them.
        start = read_numbers(indices, values, start, end, p, dense, x)
        if learns and h > 0.0:
            if not observed:
                schedule[T] += 1.0
                schedule[N] += h
                observe(reference, x, 1, p + 1, h, schedule[N])
                # Before this row is predicted, which then sees the new reference.
                if schedule[T] >= schedule[NEXT]:
                    return i
            observed = False
            standardise(reference, x, p, z)
        else:
            for j in range(1, p + 1):
                scale = reference[S, j]
                z[j] = (x[j] - reference[C, j]) / scale if scale > 0.0 else 0.0
        to = i * indptr[0] if dense else z_indptr[i]
        for j in range(1, p + 1):
            z_values[to + j - 1] = z[j]
        to += p
        for n in range(end - start):
            z_values[to + n] = values[start + n]
        if not dense:
            for j in range(p):
                # An entry for each numeric column: 0 is another number in standard units.
                z_indices[to - p + j] = j
            for n in range(end - start):
                z_indices[to + n] = indices[start + n]
            z_indptr[i + 1] = to + end - start
    return len(importance)


def read_numbers(
    indices: Any, values: Any, start: int, end: int, p: int, dense: bool, x: Any
) -> int:
    """Numeric columns of a row whose values are those from start to end; where the others begin."""
    if dense:
        for j in range(p):
            x[j + 1] = values[start + j]
        return start + p
    x[:] = 0.0
    while start < end and indices[start] < p:
        x[indices[start] + 1] = values[start]
        start += 1
    return start
