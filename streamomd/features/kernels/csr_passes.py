"""Passes over CSR rows: checked, put in order and counted, joined.

It gives no reason and no place: the checks that do, of ``lists``, follow where it fails.

Plain Python that numba compiles, as all of ``features/kernels``. LANES rows are sorted side by
side by a network of exchanges: the same exchanges for every row, so that they become vector
instructions, and no branch depends on a coordinate.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from streamomd.core.jit import LazyCompiled, compiled, float64, int64, read, written

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


LANES = 64
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""


@functools.cache
def counter(dtype: str) -> Any:
    """``count``, compiled for values of a dtype."""
    given = [read(dtype), int64, read("int32"), read("int32"), int64, written("int32")]
    return compiled(count, *given, written("int64"), written("int32"), written(dtype))


@functools.lru_cache(64)
def exchanges(size: int) -> NDArray[np.int32]:
    """Batcher's merge exchange: pairs of places, one after another, that sort ``size`` numbers if
    each pair is put in order (Knuth, The Art of Computer Programming, 5.2.2, algorithm M).

    >>> exchanges(3).tolist()
    [0, 2, 0, 1, 1, 2]
    """
    pairs = [np.empty(0, np.int64)]
    top = 1 << max(0, (size - 1).bit_length() - 1)
    p = top if size > 1 else 0
    while p:
        q, remainder, distance = top, 0, p
        while True:
            first = np.arange(size - distance)
            first = first[(first & p) == remainder]
            pairs.append(np.stack([first, first + distance], axis=1).reshape(-1))
            if q == p:
                break
            distance, q, remainder = q - p, q >> 1, p
        p >>= 1
    return np.concatenate(pairs).astype(np.int32)


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def sort_lanes(columns: int, pairs: Any, tile: Any, equal: Any) -> None:
    """Put each row of a tile (columns * LANES,) in order. equal: where two places are the same."""
    for pair in range(len(pairs) >> 1):
        a, b = (pairs[2 * pair] * LANES) & _PLACE, (pairs[2 * pair + 1] * LANES) & _PLACE
        for row in range(LANES):
            x, y = tile[a + row], tile[b + row]
            tile[a + row] = x if x < y else y  # min and max compile a function each
            tile[b + row] = y if x < y else x
    for row in range(LANES):
        equal[row] = 0
    for c in range(1, columns):
        for row in range(LANES):
            equal[row] |= tile[c * LANES + row] == tile[(c - 1) * LANES + row]


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def write_counts(
    columns: int, tile: Any, row: int, shift: int, at: int, indices: Any, values: Any
) -> int:
    """Write how often each place of a row occurs, from entry ``at`` on; where they end."""
    c = 0
    while c < columns:
        place, times = tile[c * LANES + row], 1.0
        c += 1
        while c < columns and tile[c * LANES + row] == place:
            times += 1.0
            c += 1
        indices[at], values[at] = place + shift, times
        at += 1
    return at


def count(
    numbers: Any, hats: int, places: Any, pairs: Any, shift: int, tile: Any,
    begins: Any, indices: Any, values: Any,
) -> None:  # fmt: skip
    """Write rows of numbers at 0 … w − 1, then of how often each of the row's places occurs.

    numbers: (n * w,), row by row; from ``hats`` on zeros are no entries. places: (k * n,), column
    by column; each moved by ``shift``. pairs: ``exchanges(k)``. tile: ((k + 1) * LANES,).
    begins: (n + 1,), the first of which is 0.
    """
    n = len(begins) - 1
    if n == 0:
        return
    w, k, end = len(numbers) // n, len(places) // n, 0
    equal = tile[k * LANES :]
    for low in range(0, n, LANES):
        size = n - low if n - low < LANES else LANES
        for c in range(k):
            for row in range(size):
                tile[c * LANES + row] = places[c * n + low + row]
        sort_lanes(k, pairs, tile, equal)
        for row in range(size):
            at, given = end & _PLACE, (low + row) * w
            for j in range(hats):
                indices[at + j] = j
            for j in range(hats):
                values[at + j] = numbers[given + j]
            at += hats
            for j in range(hats, w):
                indices[at], values[at] = j, numbers[given + j]
                at += values[at] != 0.0  # no branch: a 0 is written over
            if equal[row]:
                end = write_counts(k, tile, row, shift, at, indices, values)
            else:
                for c in range(k):
                    indices[at + c] = tile[c * LANES + row] + shift
                for c in range(k):
                    values[at + c] = 1.0
                end = at + k
            begins[low + row + 1] = end


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
