"""Dates and times as parts, each a category: year, month, weekday, and the hour of a timestamp.

A timestamp with a time zone is an instant, whose parts are those in UTC, on every machine;
one without has the parts as written. A null date gives nulls, which are categories of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streamomd.features.plan import DATE_PARTS, Date

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
    found = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        "weekday": 1 + (days + 3) % 7,  # the first of January 1970 was a Thursday
        "hour": rest // max(1, a_day // 24),
    }
    for part, name in zip(date.parts, date.names, strict=True):
        yield name, pa.array(found[part], mask=missing)


def _ticks_a_day(kind: pa.DataType) -> int:
    if pa.types.is_date(kind):
        return 1 if pa.types.is_date32(kind) else _DAY["ms"]
    return _DAY[kind.unit]
