"""The column of the rows' times: types, zones, nulls, and what is out of range."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamomd.features.bad_rows import BadRows
from streamomd.features.times import MOST, times

NOON = 1_767_268_800
"""2026-01-01 12:00 UTC, in seconds."""
TOKYO = datetime.timezone(datetime.timedelta(hours=9))
AT_NOON = {
    **{f"timestamp {unit}": pa.array([NOON], pa.int64()).cast(pa.timestamp("s")).cast(
        pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "with a zone": pa.array(
        [datetime.datetime(2026, 1, 1, 21, tzinfo=TOKYO)], pa.timestamp("us", "Asia/Tokyo")
    ),
    **{str(kind): pa.array([NOON], kind) for kind in (pa.int64(), pa.uint64(), pa.uint32())},
    "dictionary": pa.array([NOON], pa.int64()).dictionary_encode(),
}  # fmt: skip


def found(array: pa.Array) -> tuple[list[int], BadRows]:
    flaws = BadRows(len(array))
    return times(array, "ts", flaws).tolist(), flaws


@pytest.mark.parametrize("kind", AT_NOON)
def test_an_instant_is_one_number(kind: str) -> None:
    """Timestamps of every unit, with a zone or in UTC, and whole seconds are nanoseconds in UTC."""
    assert found(AT_NOON[kind])[0] == [NOON * 10**9]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_a_date_is_its_midnight_in_utc(kind: Any) -> None:
    """Dates before 1970 too."""
    days = [datetime.date(2026, 1, 1), datetime.date(1969, 12, 31)]
    assert found(pa.array(days, kind))[0] == [1_767_225_600 * 10**9, -86_400 * 10**9]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_seconds_within_64_bits_or_noted(seconds: list[int]) -> None:
    """A time is exact in Python's whole numbers, or its row is noted as out of range."""
    numbers, flaws = found(pa.array(seconds, pa.int64()))
    for row, (second, number) in enumerate(zip(seconds, numbers, strict=True)):
        far = abs(second) > MOST // 10**9
        assert (flaws.reasons[row] >= 0) == far
        assert number == (0 if far else second * 10**9)


@pytest.mark.parametrize(
    "array, row, reason",
    [
        (pa.array([NOON, None], pa.int64()), 1, "null"),
        (pa.array([None, NOON], pa.timestamp("us")), 0, "null"),
        (pa.array([NOON, 2**64 - 1], pa.uint64()), 1, "out_of_range"),
        (pa.array([datetime.date(9999, 12, 31)], pa.date32()), 0, "out_of_range"),
        (pa.array([datetime.datetime(1800, 1, 1)], pa.timestamp("s")), 0, "out_of_range"),
    ],
)
def test_rows_without_a_time_are_bad(array: pa.Array, row: int, reason: str) -> None:
    """Null and far times are bad rows, with the row and the column in the message."""
    _, flaws = found(array)
    error = flaws.error("a.parquet", 40 + flaws.first)
    assert (flaws.first, error.reason) == (row, reason)
    assert f"row {40 + row}, column 'ts'" in str(error)


def test_no_times_of_no_rows() -> None:
    """An empty column is an empty array."""
    numbers, flaws = found(pa.array([], pa.timestamp("us")))
    assert np.array(numbers).shape == (0,)
    assert not flaws
