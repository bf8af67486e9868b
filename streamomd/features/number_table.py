"""Numeric columns as a matrix of rows: read where Arrow has them, and checked, in one pass.

A null among whole numbers makes pandas write floats. A category is the text of a value, so it must
not depend on the type: 3.0 of a column of whole numbers is "3".
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.message import PerReader, shown_value
from streamomd.features.arrow_types import NUMBERS, family, plain
from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.numeric import EXACT, Numbers, as_stored, numbers
from streamomd.features.plan import Plan
from streamomd.features.plan_columns import LegalValues

KINDS = {"integer": pa.int64(), "float": pa.float64()}
EXPECTED = {"integer": "a whole number", "float": "a whole number below 2**53"}


def may_differ(plan: Plan, column: str, first: str, here: str) -> bool:
    """Whether a column of family ``first`` may be of family ``here`` in another shard."""
    if column == plan.time:  # a float has no exact time
        return False
    if column in plan.numeric and {first, here} <= {*NUMBERS, "decimal"}:
        return True
    return column in plan.categorical and {first, here} == set(NUMBERS)


def as_first(array: pa.Array, first: str, cells: CheckedValues) -> pa.Array:
    """The values with the family that the first shard had; others are noted as bad.

    >>> from streamomd.features.bad_rows import BadRows
    >>> cells = CheckedValues(BadRows(3), "k")
    >>> as_first(pa.array([3.0, None, 0.5]), "integer", cells).to_pylist(), bool(cells.flaws)
    ([3, None, 0], True)
    """
    here = family(array.type)
    if here == first or {first, here} != set(NUMBERS):
        return array
    values = array.cast(plain(array.type))
    there = values.cast(KINDS[first], safe=False)
    given, back = values.fill_null(0), there.fill_null(0).cast(values.type, safe=False)
    bad = np.flatnonzero(given.to_numpy() != back.to_numpy())
    cells.note(
        "fraction",
        bad,
        lambda row: shown_value(values[row].as_py()),
        EXPECTED[first],
        PerReader(
            "the first shard had another type of number: write the column with that type, or drop "
            "the row",
            "X of the first call had another type of number: pass that type, or drop the row",
        ),
    )
    return there


COMPILED_FROM = 1 << 14
"""Values of a batch from which compiled code reads them: to load it takes as long as numpy does."""
_FLOATS = float(np.finfo(np.float64).max)
_TOGETHER = 2048
"""Rows that columns of different types are written to one after another, while they are cached."""
_STORED = {
    getattr(pa, name)().id: name
    for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
        "float64",
    )
}  # fmt: skip


class _Column(NamedTuple):
    """A column as ``write_columns`` takes it."""

    address: int
    valid: int
    bit: int
    place: int
    nans: int
    of_null: float
    least: float
    most: float


def write_numbers(plan: Plan, arrays: Sequence[pa.Array], table: Numbers, flaws: BadRows) -> None:
    """Write the numeric columns to the first columns of a matrix of rows.

    Notes what ``numbers`` notes, column by column.
    """
    rows, legal = len(table), plan.legal
    nulls = [plan.nulls_of(name) for name in plan.numeric]
    unread = set(range(len(arrays)))
    noted = set(unread)
    if _is_worth(rows * len(arrays)):
        stored = [_plain(array) for array in arrays]
        written, outside = _write(stored, nulls, legal, table)
        unread -= written
        # The counts of nulls and of values outside do not have their rows: the check finds those.
        noted = unread | outside
    for place in sorted(noted):
        cells = CheckedValues(flaws, plan.numeric[place])
        column = numbers(arrays[place], cells, nulls[place], legal)
        if place in unread:
            # numpy warns of a signalling NaN, which a damaged shard may have; it is noted above.
            with np.errstate(invalid="ignore"):
                table[:, place] = column


def _is_worth(values: int) -> bool:
    # Not imported: a process that reads few rows may need no numba.
    jit = sys.modules.get("streamomd.core.jit")
    recording = jit is not None and jit.is_recording()
    return values > 0 and (values >= COMPILED_FROM or recording)


def _plain(array: pa.Array) -> pa.Array:
    if array.type.id in _STORED:
        return array
    array = as_stored(array)
    return array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array


def _write(
    arrays: Sequence[pa.Array], nulls: Sequence[str], legal: LegalValues, table: Numbers
) -> tuple[set[int], set[int]]:
    """Write the columns that are stored as plain numbers: their places, and which of them hold
    values that may be invalid."""
    from streamomd.features.kernels.write_columns import ROOM, column_writer

    groups: dict[str, list[_Column]] = {}
    refused = set()
    for place, (array, policy) in enumerate(zip(arrays, nulls, strict=True)):
        name = _STORED.get(array.type.id)
        column = _column(array, name, policy, legal, place) if name else None
        if name and column:
            groups.setdefault(name, []).append(column)
            if column.valid and policy == "error":
                refused.add(place)
    rows, width = table.shape
    calls = [_Call(name, columns, table.dtype.name) for name, columns in groups.items()]
    step, tile = rows if len(calls) == 1 else _TOGETHER, np.empty(ROOM)
    for low in range(0, rows, step):
        for call in calls:
            write = column_writer(call.stored, call.made)
            high = min(low + step, rows)
            write(*call.given, low, high, width, tile, table.reshape(-1), call.outside)
    written = {column.place for columns in groups.values() for column in columns}
    places = (call.places[call.outside > 0] for call in calls)
    return written, refused.union(*(some.tolist() for some in places))


class _Call:
    """What ``write_columns`` takes for columns of one dtype."""

    def __init__(self, stored: str, columns: Sequence[_Column], made: str) -> None:
        self.stored, self.made = stored, made
        *integers, of_null, least, most = zip(*columns, strict=True)
        given = [np.array(some, np.int64) for some in integers]
        given += [np.array(some, np.float64) for some in (of_null, least, most)]
        like = np.empty(0, stored), np.empty(0, np.uint8)
        self.places: NDArray[np.int64] = given[3]
        self.given = (*like, *given)
        self.outside = np.zeros(len(columns), np.int64)


def _column(
    array: pa.Array, name: str, policy: str, legal: LegalValues, place: int
) -> _Column | None:
    """None for values that are not aligned, which some writers of Arrow files leave so."""
    valid, data = array.buffers()
    size, nans, of_null, least, most = _checked(name, policy, legal)
    address = data.address + size * array.offset
    if address % size:
        return None
    bitmap = valid.address if array.null_count else 0
    return _Column(address, bitmap, array.offset, place, nans, of_null, least, most)


@functools.lru_cache(256)  # called for each column of each batch
def _checked(name: str, policy: str, legal: LegalValues) -> tuple[int, int, float, float, float]:
    """Bytes of a value; nans … most of a ``_Column``."""
    from streamomd.features.kernels.write_columns import MISSING, REFUSED, UNCHECKED, ZERO

    size, limits, is_float = np.dtype(name).itemsize, legal.limits, name[0] == "f"
    nans = {"indicator": ZERO, "mean": MISSING}.get(policy, REFUSED)
    least, most = (limits.least, min(limits.most, _FLOATS)) if is_float else (0.0, limits.most)
    if is_float and size == 8:
        most = min(most, legal.largest)
    if not is_float and size == 8:
        most = min(most, EXACT - 1.0)  # more may be exact: the slower check knows
    if not is_float and most >= 2.0 ** (8 * size):
        nans = UNCHECKED
    return size, nans, math.nan if policy == "mean" else 0.0, least, most
