"""Numbers from numeric and vector columns: finite, exact in float64, and quickly into a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamomd.features.bad import Bad, first, shown

Numbers = NDArray[Any]

_EXACT = 2**53
# Rows written together: the block stays in cache while column after column is strewn into it
# (54 int64 columns: 2.4 ns a cell; 6.8 when each column is written whole).
_BLOCK = 2048


def numbers(array: pa.Array, column: str, nulls: str, largest: float = math.inf) -> Numbers:
    """The values of a column of numbers or booleans, (n,), of the column's own dtype.

    Raises Bad at a null (unless nulls is "zero"), NaN, ±inf, an integer float64 cannot hold, or
    a number beyond ``largest``.
    """
    array = _plain(array)
    if array.null_count:
        array = _without_nulls(array, column, nulls)
    values: Numbers = array.to_numpy(zero_copy_only=False)
    found = first_unfit(values, largest)
    if found is not None:
        raise _unfit(column, values, *found)
    return values


def vectors(
    array: pa.FixedSizeListArray, column: str, nulls: str, largest: float = math.inf
) -> Numbers:
    """The values of a column of fixed-size lists, (n, width). Raises Bad as ``numbers`` does."""
    width = array.type.list_size
    child = _plain(array.values.slice(array.offset * width, len(array) * width))
    if array.null_count:
        _without_nulls(array, column, nulls)
        valid = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), width)
        child = pc.if_else(pa.array(valid), child, pa.scalar(0).cast(child.type))
    try:
        return numbers(child, column, nulls, largest).reshape(len(array), width)
    except Bad as bad:
        bad.column, bad.row = f"{column}[{bad.row % width}]", bad.row // width
        raise


def first_unfit(values: Numbers, largest: float = math.inf) -> tuple[int, str] | None:
    """The first value not finite, not exact in float64 or too large, and the reason: else None."""
    if values.dtype.kind == "f":
        return _first_not_finite(values) or _first_too_large(values, largest)
    if values.dtype.itemsize == 8 and len(values):
        return _first_inexact(values)
    return None


def matrix(parts: Sequence[Numbers], rows: int, dtype: Any) -> Numbers:
    """Columns (n,) and matrices (n, w) side by side in one C-order matrix of ``dtype``."""
    out = np.empty((rows, sum(_width(part) for part in parts)), dtype)
    for low in range(0, rows, _BLOCK):
        block, at = out[low : low + _BLOCK], 0
        for part in parts:
            width = _width(part)
            piece = part[low : low + _BLOCK]
            block[:, at : at + width] = piece.reshape(len(piece), width)
            at += width
    return out


def _unfit(column: str, values: Numbers, row: int, reason: str) -> Bad:
    expected, remedy = "a finite number", "mend or drop the row"
    if reason == "overflow":
        expected, remedy = "an integer float64 can hold", "write it as double, or hash the column"
        if values.dtype.kind == "f":
            expected, remedy = "a number float32 can hold", 'set model.dtype = "float64"'
    found = shown(values[row].item())
    return Bad(row, reason, column, found=found, expected=expected, remedy=remedy)


def _width(part: Numbers) -> int:
    return 1 if part.ndim == 1 else int(part.shape[1])


def _plain(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _without_nulls(array: pa.Array, column: str, nulls: str) -> pa.Array:
    if nulls != "zero":
        raise Bad(
            first(array.is_null().to_numpy(zero_copy_only=False)),
            "null",
            column,
            found="null",
            expected="a number",
            remedy='drop the row, or set data.nulls = "zero" if the column is a feature',
        )
    if pa.types.is_fixed_size_list(array.type):
        return array
    return array.fill_null(pa.scalar(0).cast(array.type))


def _first_not_finite(values: Numbers) -> tuple[int, str] | None:
    # A sum that is finite proves every term finite, at a third of the price of looking at each.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return None
    unfit = ~np.isfinite(values)
    if not unfit.any():
        return None
    row = first(unfit)
    return row, "nan" if np.isnan(values[row]) else "inf"


def _first_too_large(values: Numbers, largest: float) -> tuple[int, str] | None:
    if largest == math.inf or values.dtype.itemsize < 8:
        return None
    large = np.abs(values) > largest
    return (first(large), "overflow") if large.any() else None


def _first_inexact(values: Numbers) -> tuple[int, str] | None:
    if values.max() <= _EXACT and values.min() >= -_EXACT:
        return None
    for row in np.flatnonzero((values > _EXACT) | (values < -_EXACT)):
        whole = int(values[row])
        if int(float(whole)) != whole:
            return int(row), "overflow"
    return None
