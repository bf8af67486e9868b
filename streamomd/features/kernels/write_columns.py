"""Columns of numbers into the rows of a matrix: converted, checked and transposed in one pass.

Plain Python that numba compiles, as all of ``features/kernels``. A tile of rows and columns stays
in the processor's first cache: values are read as Arrow stores them, and no copy of a column is
made.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable
from numba.np.numpy_support import as_dtype, carray

from streamomd.core.jit import LazyCompiled, callable_part, compiled, int64, read, written
from streamomd.core.scalars import hat_at as _hat_at

TILE = 64
_STRIDE = TILE + 8
"""Between the columns of a tile: lines that are a power of two apart would share few cache sets."""
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""
ROOM = TILE * _STRIDE
"""Length of ``tile``."""
REFUSED, ZERO, MISSING, UNCHECKED = range(4)
"""What a NaN of a column is: outside of the limits; 0; a NaN; no value is outside."""


@functools.cache
def column_writer(stored: str, made: str) -> Any:
    """``write_columns``, compiled for columns and a matrix of these dtypes."""
    columns = [read("int64")] * 5
    limits = [read("float64")] * 3
    room = [written("float64"), written(made), written("int64")]
    like = read(stored), read("uint8")
    return compiled(write_columns, *like, *columns, *limits, int64, int64, int64, *room)


def memory(address: int, size: int, like: Any) -> Any:
    """The values at an address, (size,), with the dtype of an array."""
    kind = ctypes.c_char * (size * like.itemsize)
    return np.frombuffer(kind.from_address(int(address)), like.dtype)


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@overload(memory, inline="always")
def _compiled(address: Any, size: Any, like: Any) -> Any:
    pointer: Any = _pointer
    kind = as_dtype(like.dtype)

    def view(address: Any, size: Any, like: Any) -> Any:
        return carray(pointer(address), (size,), kind)

    return view


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def replace_nulls(bitmap: Any, bit: int, size: int, value: float, tile: Any, at: int) -> None:
    """Write a value where a bit is not set."""
    if bit == 0 and size == TILE:
        word = 0
        for k in range(TILE >> 3):
            word |= int(bitmap[k]) << (8 * k)
        for row in range(TILE):  # vector instructions
            x = tile[at + row]
            tile[at + row] = x if (word >> row) & 1 else value
        return
    for row in range(size):
        if not (bitmap[(bit + row) >> 3] >> ((bit + row) & 7)) & 1:
            tile[at + row] = value


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def zero_nans(size: int, tile: Any, at: int) -> None:
    """Write 0 where a NaN is."""
    for row in range(size):
        tile[at + row] = 0.0 if math.isnan(tile[at + row]) else tile[at + row]


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def count_outside(tile: Any, at: int, size: int, least: float, most: float, nans: int) -> int:
    """How many values are outside of the limits, or NaN where ``nans`` is REFUSED."""
    found = 0
    if nans == REFUSED:
        for row in range(size):
            found += not abs(tile[at + row]) <= most
    else:
        for row in range(size):
            found += abs(tile[at + row]) > most
    if least > 0.0:
        for row in range(size):
            x = abs(tile[at + row])
            found += (x < least) & (x != 0.0)
    return found


def write_columns(
    like: Any, byte: Any, addresses: Any, valid: Any, bits: Any, places: Any, nans: Any,
    of_null: Any, least: Any, most: Any,
    low: int, high: int, width: int, tile: Any, out: Any, outside: Any,
) -> None:  # fmt: skip
    """Write rows ``low`` … ``high`` − 1 of columns, and count their values outside of the limits.

    like, byte: of the columns' dtype, and uint8. addresses: of each column's first value. valid,
    bits: of its validity bitmap, and its first bit there; 0: no value is null. places: its place in
    the matrix, out (n * width,). nans: see ``REFUSED``. of_null: what a null becomes. least, most:
    a magnitude other than 0 below or above is outside. tile: (ROOM,). outside: (columns,), added
    to.
    """
    for first in range(0, len(addresses), TILE):
        columns = min(TILE, len(addresses) - first)
        for start in range(low, high, TILE):
            size = min(TILE, high - start)
            for c in range(columns):
                k, at = first + c, c * _STRIDE
                values = memory(addresses[k] + start * like.itemsize, size, like)
                for row in range(size):
                    tile[at + row] = values[row]
                if valid[k]:
                    bit = bits[k] + start
                    bitmap = memory(valid[k] + (bit >> 3), TILE // 8 + 1, byte)
                    replace_nulls(bitmap, bit & 7, size, of_null[k], tile, at)
                if nans[k] == ZERO:
                    zero_nans(size, tile, at)
                if nans[k] != UNCHECKED:
                    outside[k] += count_outside(tile, at, size, least[k], most[k], nans[k])
            for row in range(size):
                begin = ((start + row) * width) & _PLACE
                for c in range(columns):
                    out[begin + (places[first + c] & _PLACE)] = tile[c * _STRIDE + row]


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
