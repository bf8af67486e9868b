"""A check that rows of indices and values are as they should be, in one pass over memory.

It gives no reason and no place: the checks that do, of ``sparse_pairs``, follow where it fails.
"""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.jit import LazyCompiled, float64, int64, read

TILE = 4096
"""Entries whose passes find them in the processor's first cache."""
UNCOMPILED = 1 << 13
"""Entries that Python checks before numba compiles the check."""


@functools.cache
def checker(dtype: str) -> LazyCompiled:
    """``are_canonical`` for values of a dtype, called with the number of entries first."""
    arrays = read("int64"), read("int32"), read(dtype)
    return LazyCompiled(are_canonical, [*arrays, int64, float64], UNCOMPILED)


def are_canonical(begins: Any, indices: Any, values: Any, highest: int, most: float) -> bool:
    """Whether indices are 0 to ``highest`` and ascend in each row, and values are -most to most.

    begins: (n + 1,), from 0: where each row begins, and the last one ends. NaN is refused.
    """
    last, limit = indices.dtype.type(highest), values.dtype.type(most)
    row, rows = 0, len(begins) - 1
    while row < rows:
        first = row
        row += 1
        while row < rows and begins[row + 1] - begins[first] <= TILE:
            row += 1
        start = begins[first]
        some, numbers = indices[start : begins[row]], values[start : begins[row]]
        wrong = False
        for k in range(len(some)):
            wrong |= (some[k] < 0) | (some[k] > last)
        for k in range(len(numbers)):
            wrong |= not abs(numbers[k]) <= limit
        falls = 0
        for k in range(1, len(some)):
            falls += some[k] <= some[k - 1]
        before = 0
        for inner in range(first + 1, row):  # there an index may fall, once for rows without any
            place = begins[inner] - start
            if before < place < len(some):
                falls -= some[place] <= some[place - 1]
                before = place
        if wrong or falls != 0:
            return False
    return True
