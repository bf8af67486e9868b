"""The hats of numbers, in the same matrix of rows: see ``features.curves``."""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.hats import hat_at as _hat_at
from streamomd.core.jit import LazyCompiled, callable_part, int64, read, written

hat_at = callable_part(_hat_at)
UNCOMPILED = 1 << 14
"""Values before ``write_hats`` is compiled."""


@functools.cache
def hat_writer() -> Any:
    """``write_hats``, which begins uncompiled."""
    columns = [read("int64"), read("int64"), read("float64")]
    signature = [*columns, int64, int64, written("float64")]
    return LazyCompiled(write_hats, signature, UNCOMPILED)


def write_hats(
    places: Any, begins: Any, knots: Any, width: int, column: int, table: Any
) -> None:  # fmt: skip
    """Write the hats of each row's numbers, from ``column`` on, to a matrix (n * width,). A NaN has
    none. begins: of each curve's knots, and where all end."""
    curves, every = len(places), begins[len(places)]
    for row in range(len(table) // width):
        at = row * width
        first = at + column
        for j in range(every):
            table[first + j] = 0.0
        for c in range(curves):
            x = table[at + places[c]]
            if x == x:  # noqa: PLR0124
                k, share = hat_at(x, knots, begins[c], begins[c + 1] - 1)
                table[first + k] = 1.0 - share
                table[first + k + 1] = share
