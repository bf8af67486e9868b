"""Dates and times: their parts as categories, and the times of rows in nanoseconds.

A timestamp with a time zone is an instant, whose parts are those in UTC, on every machine;
one without has the parts as written. A null date gives nulls, which are categories of their own.

A timestamp with a time zone is an instant; one without is UTC, as a date is its midnight in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.batch import Times
from streamomd.features.arrow_types import plain
from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.labels import SKIP
from streamomd.features.plan_columns import DATE_PARTS, Date

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def parts_of(kind: pa.DataType) -> tuple[str, ...]:
    """The parts that values of a type have.

    >>> parts_of(pa.date32()), parts_of(pa.timestamp("us"))
    (('year', 'month', 'weekday'), ('year', 'month', 'weekday', 'hour'))
    """
    return DATE_PARTS if pa.types.is_timestamp(kind) else DATE_PARTS[:-1]


def date_parts(array: pa.Array, date: Date) -> Iterator[tuple[str, pa.Array]]:
    """Each part of a column by its name, as whole numbers (n,); weekdays go from Monday, 1, to 7.

    >>> days = pa.array([20_000, None], pa.int32()).view(pa.date32())
    >>> {name: part.to_pylist() for name, part in date_parts(days, Date("d", parts_of(days.type)))}
    {'d.year': [2024, None], 'd.month': [10, None], 'd.weekday': [5, None]}
    """
    whole = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    ticks = array.view(whole).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    a_day = _ticks_a_day(array.type)
    days, rest = np.divmod(ticks, a_day)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    parts = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        "weekday": 1 + (days + 3) % 7,  # the first of January 1970 was a Thursday
        "hour": rest // max(1, a_day // 24),
    }
    for part, name in zip(date.parts, date.names, strict=True):
        yield name, pa.array(parts[part], mask=missing)


def _ticks_a_day(kind: pa.DataType) -> int:
    if pa.types.is_date(kind):
        return 1 if pa.types.is_date32(kind) else _DAY["ms"]
    return _DAY[kind.unit]


SECOND = 10**9
TICKS = {"s": SECOND, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds of a unit."""
MOST = 1 << 62
"""Times are nearer to 1970 than this, so that a time and a delay add up within 64 bits."""


def times(array: pa.Array, column: str, flaws: BadRows) -> Times:
    """The times of a column, (n,). Notes nulls, and times before 1824 or after 2115."""
    cells = CheckedValues(flaws, column)
    kind = plain(array.type)
    given = array.cast(kind) if pa.types.is_dictionary(array.type) else array
    if given.null_count:
        missing = np.flatnonzero(given.is_null().to_numpy(zero_copy_only=False))
        cells.note("null", missing, lambda row: "null", "a time", SKIP)
    ticks, unit = _ticks(given, kind), _unit(kind)
    most = MOST // unit
    if len(ticks) and (ticks.max() > most or ticks.min() < -most):
        far = (ticks > most) | (ticks < -most)
        given_ticks = ticks
        cells.note(
            "out_of_range",
            np.flatnonzero(far),
            lambda row: f"{given_ticks[row]} as {kind}",
            "a time from 1824 to 2115 (an integer is in seconds since 1970)",
            SKIP,
        )
        ticks = np.where(far, 0, ticks)
    return ticks * unit


def _ticks(array: pa.Array, kind: Any) -> Times:
    """The stored integers, int64 (n,), 0 for null."""
    whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    stored = array if pa.types.is_integer(kind) else array.view(whole)
    filled = stored.fill_null(0) if stored.null_count else stored
    ticks = filled.to_numpy(zero_copy_only=False)
    if ticks.dtype == np.uint64:
        ticks = np.minimum(ticks, np.uint64(2 * MOST - 1))
    whole_ticks: Times = ticks.astype(np.int64, copy=False)
    return whole_ticks


def _unit(kind: Any) -> int:
    """Nanoseconds of one tick."""
    if pa.types.is_timestamp(kind):
        return TICKS[kind.unit]
    if pa.types.is_date32(kind):
        return 86_400 * SECOND
    return TICKS["ms"] if pa.types.is_date64(kind) else SECOND
