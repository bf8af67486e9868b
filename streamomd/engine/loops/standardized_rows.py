"""The standardised rows of a batch, for the loops of rules that learn without a reference of
their own: see ``engine.standardize``."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamomd.engine.loops.reference import C, S, observe, standardise

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
        start = read_numbers(indices, values, start, end, p, dense, x)
        if learns and h > 0.0:
            if not observed:
                schedule[T] += 1.0
                schedule[N] += h
                observe(reference, x, 1, p + 1, h, schedule[N])
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
