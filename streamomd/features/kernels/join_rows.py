"""Passes over CSR rows that combine features: blocks are put side by side, equal neighbours are
summed. Rows are indptr (n + 1,), int64, from 0; indices, int32; values, float32 or float64.
"""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.jit import compiled, read, written

_RUN = 16


@functools.cache
def faller() -> Any:
    """``count_falls``, compiled; a fifth of the time of numpy's comparison."""
    return compiled(count_falls, read("int32"))


@functools.cache
def joiner(dtype: str) -> Any:
    """``join``, compiled for values of a dtype."""
    block = [read("int64"), read("int32"), read(dtype)]
    return compiled(join, *block, *block, written("int32"), written(dtype))


@functools.cache
def sorter(dtype: str) -> Any:
    """``sort``, compiled for values of a dtype."""
    entries = [written("int32"), written(dtype)]
    return compiled(sort, read("int64"), read("int64"), *entries, *entries)


@functools.cache
def summer(dtype: str) -> Any:
    """``sum_equal``, compiled for values of a dtype."""
    made = [written("int64"), written("int32"), written(dtype)]
    return compiled(sum_equal, read("int64"), read("int32"), read(dtype), *made)


def count_falls(indices: Any) -> int:
    """How many entries are not above the one before, across all rows."""
    found = 0
    for k in range(1, len(indices)):
        found += 1 if indices[k] <= indices[k - 1] else 0
    return found


def join(
    begins: Any, indices: Any, values: Any, others: Any, more_indices: Any, more_values: Any,
    all_indices: Any, all_values: Any,
) -> None:  # fmt: skip
    """Write each row's entries of one block, then those of another, whose rows begin at others."""
    at = 0
    for row in range(len(begins) - 1):
        for k in range(begins[row], begins[row + 1]):
            all_indices[at], all_values[at] = indices[k], values[k]
            at += 1
        for k in range(others[row], others[row + 1]):
            all_indices[at], all_values[at] = more_indices[k], more_values[k]
            at += 1


def sort(
    begins: Any, rows: Any, indices: Any, values: Any, some_indices: Any, some_values: Any
) -> None:
    """Put the entries of some rows in order of their coordinates, equal ones as they are.

    some_indices, some_values: room for as many entries as a row has.
    """
    for row in rows:
        low, high, length = begins[row], begins[row + 1], _RUN
        for start in range(low, high, _RUN):
            for k in range(start + 1, min(start + _RUN, high)):
                index, value, at = indices[k], values[k], k
                while at > start and indices[at - 1] > index:
                    indices[at], values[at] = indices[at - 1], values[at - 1]
                    at -= 1
                indices[at], values[at] = index, value
        while length < high - low:  # pairs of runs become one
            for start in range(low, high - length, 2 * length):
                stop = min(start + 2 * length, high)
                for k in range(length):
                    some_indices[k], some_values[k] = indices[start + k], values[start + k]
                left, right, at = 0, start + length, start
                while left < length:
                    if right < stop and indices[right] < some_indices[left]:
                        indices[at], values[at] = indices[right], values[right]
                        right += 1
                    else:
                        indices[at], values[at] = some_indices[left], some_values[left]
                        left += 1
                    at += 1
            length *= 2


def sum_equal(
    begins: Any, indices: Any, values: Any, new_begins: Any, new_indices: Any, new_values: Any
) -> int:
    """Write rows in which equal neighbours are one, summed in float64 in their order; how many
    entries there are.
    """
    new_begins[0] = end = 0
    for row in range(len(begins) - 1):
        at, stop = begins[row], begins[row + 1]
        while at < stop:
            index, total = indices[at], float(values[at]) * 1.0  # float64 with numba too
            at += 1
            while at < stop and indices[at] == index:
                total += values[at]
                at += 1
            new_indices[end], new_values[end] = index, total
            end += 1
        new_begins[row + 1] = end
    return end
