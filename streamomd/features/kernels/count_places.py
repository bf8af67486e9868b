"""Rows of numbers and of hashed coordinates, which are put in order and counted.

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

from streamomd.core.jit import compiled, int64, read, written

LANES = 64
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""


@functools.cache
def counter(dtype: str) -> Any:
    """``count``, compiled for values of a dtype."""
    given = [read(dtype), read("int32"), read("int32"), int64, written("int32")]
    return compiled(count, *given, written("int64"), written("int32"), written(dtype))


@functools.lru_cache(64)
def exchanges(size: int) -> NDArray[np.int32]:
    """Batcher's merge exchange: pairs of places, one after another, that sort ``size`` numbers if
    each pair is put in order (Knuth, The Art of Computer Programming, 5.2.2, algorithm M).

    >>> exchanges(3).tolist()
    [0, 2, 0, 1, 1, 2]
    """
    found = [np.empty(0, np.int64)]
    top = 1 << max(0, (size - 1).bit_length() - 1)
    p = top if size > 1 else 0
    while p:
        q, remainder, distance = top, 0, p
        while True:
            first = np.arange(size - distance)
            first = first[(first & p) == remainder]
            found.append(np.stack([first, first + distance], axis=1).reshape(-1))
            if q == p:
                break
            distance, q, remainder = q - p, q >> 1, p
        p >>= 1
    return np.concatenate(found).astype(np.int32)


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
    numbers: Any, places: Any, pairs: Any, shift: int, tile: Any,
    begins: Any, indices: Any, values: Any,
) -> None:  # fmt: skip
    """Write rows of numbers at 0 … w − 1, then of how often each of the row's places occurs.

    numbers: (n * w,), row by row. places: (k * n,), column by column; each moved by ``shift``.
    pairs: ``exchanges(k)``. tile: ((k + 1) * LANES,). begins: (n + 1,), the first of which is 0.
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
            for j in range(w):
                indices[at + j] = j
            for j in range(w):
                values[at + j] = numbers[given + j]
            at += w
            if equal[row]:
                end = write_counts(k, tile, row, shift, at, indices, values)
            else:
                for c in range(k):
                    indices[at + c] = tile[c * LANES + row] + shift
                for c in range(k):
                    values[at + c] = 1.0
                end = at + k
            begins[low + row + 1] = end
