"""The times of rows: nanoseconds since 1970 in UTC, of timestamps, dates or whole seconds.

A timestamp with a time zone is an instant; one without is UTC, as a date is its midnight in UTC.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.batch import Times
from streamomd.features.arrow_types import plain
from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.labels import SKIP

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
