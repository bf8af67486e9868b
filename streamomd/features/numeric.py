"""Numbers from numeric and vector columns: finite, and exact in float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.message import Key, PerReader, Words, shown_value
from streamomd.features.bad_rows import BadRows, CheckedValues, Places
from streamomd.features.plan_columns import LegalValues
from streamomd.rules.ranges import FLOAT32_MAX, Limits

Numbers = NDArray[Any]

ANYTHING = LegalValues()
EXACT = 2**53
REPLACED = PerReader(
    "pass --nulls mean, zero or indicator (data.nulls) to replace missing numbers, or "
    "--on-bad-row skip to leave out the row",
    'drop the row, or fit with nulls="mean", "zero" or "indicator"',
)
FLOAT64 = PerReader('set model.dtype = "float64"', 'scale the column, or pass dtype="float64"')
"""What to do about a feature that is null."""
TICKS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Ticks in a second, by unit."""
# Values that Python checks before numba compiles the check: few rows need nothing compiled.
_UNCOMPILED = 1 << 14


def numbers(
    array: pa.Array,
    cells: CheckedValues,
    nulls: str,
    legal: LegalValues = ANYTHING,
    null_remedy: Words = REPLACED,
) -> Numbers:
    """The values of a column of numbers or booleans, (n,), of the column's own dtype.

    Notes nulls, NaN, ±inf, integers float64 cannot hold, and numbers that are not ``legal``. With
    nulls "zero" a null is 0, with "indicator" NaN too. With "mean" both are NaN, in float64: the
    engine knows the mean. null_remedy: what to do about a null that is an error.
    """
    array, gone = as_stored(array), None
    if nulls in ("indicator", "mean"):
        gone = _gone(array)
        array = _zeroed(array, gone)
    if array.null_count:
        if nulls == "error":
            _note_nulls(array, cells, null_remedy)
        array = array.fill_null(pa.scalar(0).cast(array.type))
    values: Numbers = array.to_numpy(zero_copy_only=False)
    for reason, places in unfit(values, legal):
        _note_unfit(reason, places, values, cells, legal)
    if nulls == "mean" and gone is not None and gone.true_count:
        values = values.astype(np.float64)
        values[_as_numpy(gone)] = np.nan
    return values


def vectors(
    array: pa.FixedSizeListArray,
    flaws: BadRows,
    column: str,
    nulls: str,
    legal: LegalValues = ANYTHING,
) -> Numbers:
    """The values of a column of fixed-size lists, (n, width). Notes what ``numbers`` does."""
    width = array.type.list_size
    child = as_stored(array.values.slice(array.offset * width, len(array) * width))
    if array.null_count:
        if nulls == "error":
            _note_nulls(array, CheckedValues(flaws, column))
        gone = np.repeat(array.is_null().to_numpy(zero_copy_only=False), width)
        child = _nulled(child, gone) if nulls == "mean" else _zeroed(child, pa.array(gone))
    cells = CheckedValues(flaws, column, width=width)
    return numbers(child, cells, nulls, legal).reshape(len(array), width)


def missing(array: pa.Array) -> NDArray[np.bool_]:
    """Which rows have no value (n,): a null or NaN; of a vector, itself or one of its elements."""
    if not pa.types.is_fixed_size_list(array.type):
        return _as_numpy(_gone(as_stored(array)))
    width = array.type.list_size
    child = as_stored(array.values.slice(array.offset * width, len(array) * width))
    within = _as_numpy(_gone(child)).reshape(len(array), width).any(axis=1)
    found: NDArray[np.bool_] = within | _as_numpy(array.is_null())
    return found


def unfit(values: Numbers, legal: LegalValues = ANYTHING) -> Iterator[tuple[str, Places]]:
    """The places of values not finite, not exact in float64, too large or out of range, by reason.

    A place may occur twice; its first reason counts.
    """
    limited = narrow(values.dtype, legal.limits)
    if values.dtype.kind == "f":
        if limited and _within(values, legal.limits):
            return  # finite too: one pass instead of two
        yield from _not_finite(values)
        if legal.largest < math.inf and values.dtype.itemsize == 8:
            large = np.abs(values)
            yield "overflow", np.flatnonzero((large > legal.largest) & (large < math.inf))
    elif values.dtype.itemsize == 8 and len(values):
        yield "overflow", _inexact(values)
    if limited and not _within(values, legal.limits):
        size, (least, most) = np.abs(values.astype(np.float64)), legal.limits
        yield "out_of_range", np.flatnonzero(((size < least) & (size > 0.0)) | (size > most))


def expected(legal: LegalValues) -> str:
    """What a value out of range should have been.

    >>> expected(LegalValues(limits=Limits(1e-140, 1e140)))
    "0 or a magnitude from 1e-140 to 1e+140, the rule's range"
    """
    least, most = legal.limits
    span = f"0 or a magnitude from {least:g} to {most:g}" if least else f"a magnitude to {most:g}"
    return f"{span}, the rule's range"


def narrow(dtype: Any, limits: Limits) -> bool:
    """Whether values of a dtype may lie outside."""
    if dtype.kind == "f":
        smallest, largest = (1e-45, FLOAT32_MAX) if dtype.itemsize == 4 else (5e-324, 1.7e308)
        return smallest < limits.least or largest > limits.most
    return dtype.kind in "iu" and bool(np.iinfo(dtype).max > limits.most)


def _within(values: Numbers, limits: Limits) -> bool:
    """Whether every value is 0 or inside; NaN and infinities are not."""
    if values.dtype.kind != "f":
        return not len(values) or bool(-limits.most <= values.min() <= values.max() <= limits.most)
    return bool(_range_check(values.dtype.name)(len(values), values, *limits))


@functools.cache
def _range_check(dtype: str) -> Any:
    """``all_within`` for values of a dtype."""
    from streamomd.core.jit import LazyCompiled, float64, read  # numba only for training

    return LazyCompiled(all_within, [read(dtype), float64, float64], _UNCOMPILED)


def all_within(values: Any, least: float, most: float) -> bool:
    """Whether each value is 0, or at least ``least`` and at most ``most`` in size; NaN is not."""
    outside = 0
    for k in range(len(values)):
        size = abs(float(values[k]) * 1.0)  # float64, also of a float32
        # No branch, so that it becomes vector instructions.
        outside += (not size <= most) | ((size < least) & (size != 0.0))
    return outside == 0


def as_stored(array: pa.Array) -> pa.Array:
    """The values as integers, booleans, float32 or float64."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_decimal(kind):
        return array.cast(pa.float64())
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return _seconds(array)
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _seconds(array: pa.Array) -> pa.Array:
    """Durations and times of day as float64."""
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    ticks = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return pc.divide(ticks.cast(pa.float64(), safe=False), TICKS[array.type.unit])


def _gone(array: pa.Array) -> pa.BooleanArray:
    return array.is_null(nan_is_null=True)


def _zeroed(array: pa.Array, where: pa.BooleanArray) -> pa.Array:
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    return pc.if_else(where, pa.scalar(0).cast(array.type), array)


def _nulled(array: pa.Array, where: NDArray[np.bool_]) -> pa.Array:
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    return pc.if_else(pa.array(where), pa.scalar(None, array.type), array)


def _as_numpy(array: pa.BooleanArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return found


def _note_nulls(array: pa.Array, cells: CheckedValues, remedy: Words = REPLACED) -> None:
    places = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    cells.note("null", places, lambda _: "null", "a number", remedy)


def _note_unfit(
    reason: str, places: Places, values: Numbers, cells: CheckedValues, legal: LegalValues
) -> None:
    wanted: str = "a finite number"
    remedy: Words = "fix or drop the row"
    if reason == "out_of_range":
        wanted = expected(legal)
        remedy = "write 0 or rescale the column, or choose another rule"
        if legal.largest < math.inf:
            dtype = Key("model.dtype")
            remedy = ("write 0, rescale the column, or set ", dtype, ' = "float64"')
    if reason == "overflow":
        wanted, remedy = "an integer float64 can hold", "write it as double, or hash the column"
        if values.dtype.kind == "f":
            wanted, remedy = "a number float32 can hold", FLOAT64
    cells.note(reason, places, lambda place: shown_value(values[place].item()), wanted, remedy)


def _not_finite(values: Numbers) -> Iterator[tuple[str, Places]]:
    # A sum that is finite proves every term finite, at a third of the cost of checking each.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    yield "nan", np.flatnonzero(np.isnan(values))
    yield "inf", np.flatnonzero(np.isinf(values))


def _inexact(values: Numbers) -> Places:
    if values.max() <= EXACT and values.min() >= -EXACT:
        return np.empty(0, np.int64)
    large = np.flatnonzero((values > EXACT) | (values < -EXACT))
    # Exact is what has at most 53 bits between its highest and its lowest one.
    bits = values[large].view(np.uint64)
    size = np.where(values[large] < 0, np.negative(bits), bits)
    lowest = size & np.negative(size)
    return large[size // lowest > EXACT]
