"""The values of columns that ``encode`` gives, against literal ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.batch import DenseBatch, joined_values, taken
from streamomd.features import Plan, encode, make_plan
from streamomd.features.encode import category_columns

ROWS = pa.RecordBatch.from_pydict(
    {
        "y": [0, 1, 1, 0],
        "a": pa.array([1.5, None, float("nan"), -2.0]),
        "k": pa.array([7, 8, None, 9], pa.int32()),
        "job": ["x", None, "z", "x"],
        "tags": pa.array([["p", "q", "p"], [], None, ["q"]]),
        "when": [date(2026, 1, day) for day in (5, 6, 7, 12)],
        "city": pa.array(["u", "v", "u", None]).dictionary_encode(),
        "says": ["One two one", "", None, "two"],
    }
)
TABLE: dict[str, Any] = {
    "label": "y", "numeric": ["a", "k"], "hashed": ["job", "tags", "city"], "text": ["says"],
    "dates": ["when"], "crosses": [["job", "city"]],
}  # fmt: skip
NAMES = ("job", "city", "when.year", "when.month", "when.weekday", "job^city", "tags", "says")
NUMBERS = [[1.5, 7.0], [np.nan, 8.0], [np.nan, np.nan], [-2.0, 9.0]]
VALUES = [
    [["x"], ["u"], ["2026"], ["1"], ["1"], ["x^u"], ["p", "q", "p"], ["one", "two"]],
    [[None], ["v"], ["2026"], ["1"], ["2"], [r"\N^v"], [], []],
    [["z"], ["u"], ["2026"], ["1"], ["3"], ["z^u"], [None], []],
    [["x"], [None], ["2026"], ["1"], ["1"], [r"x^\N"], ["q"], ["two"]],
]


def plan_of(bits: int, **data: Any) -> Plan:
    described = Data.model_validate({**TABLE, "bits": bits, "nulls": "indicator", **data})
    model = Model.model_validate({"loss": "logistic"})
    plan = make_plan(described, model, ROWS.schema, lambda: [0, 1])
    return replace(plan, column_values=True)


def keys_of(row: list[list[Any]], bits: int) -> list[int]:
    """Column times 2^32 plus the lowest bits of murmur3 of column=value."""
    found = []
    for column, values in enumerate(row):
        for value in values:
            name = NAMES[column].encode()
            hashed = name + b"\xff" if value is None else name + b"=" + value.encode()
            place = mmh3.hash(hashed, 0, signed=False) % (1 << bits)
            found.append((column << 32) + place)
    return sorted(found)


@pytest.mark.parametrize("bits", [18, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_every_kind_of_column(bits: int, bias: bool) -> None:
    """Numbers, NaN where one is missing; each category once for each time a row has it, and words
    of a text once; no column hides another, however few coordinates there are."""
    plan = replace(plan_of(bits), bias=bias)
    assert category_columns(plan) == NAMES
    found = encode(plan, ROWS, shard="s", row=0).columns
    assert found is not None
    np.testing.assert_array_equal(found.numbers, NUMBERS)
    for row, values in enumerate(VALUES):
        mine = found.categories[found.indptr[row] : found.indptr[row + 1]].tolist()
        expected = keys_of(values, bits)
        if bits == 1:  # equal words of a text are one entry
            assert {*mine} == {*expected}
        else:
            assert sorted(mine) == expected


def test_rows_are_cut_taken_and_joined() -> None:
    """As those of the batch."""
    batch = encode(plan_of(18), ROWS, shard="s", row=0)
    whole = batch.columns
    parts = [batch.rows(low, high).columns for low, high in ((0, 1), (1, 1), (1, 4))]
    for name in ("numbers", "indptr", "categories"):
        expected = getattr(whole, name)
        np.testing.assert_array_equal(getattr(joined_values(parts), name), expected)
    some = taken(batch, np.array([3, 0])).columns
    assert some.numbers[:, 1].tolist() == [9.0, 7.0]
    assert sorted(some.categories[: some.indptr[1]].tolist()) == keys_of(VALUES[3], 18)
    assert batch.nbytes > replace(batch, columns=None).nbytes
    assert joined_values([whole, None]) is None


def test_only_those_who_ask_have_them() -> None:
    """The coordinates are the same; a saved plan does not ask."""
    plan = plan_of(18)
    plain = Plan.from_json(plan.to_json())
    assert plain == replace(plan, column_values=False)
    with_values, without = (encode(one, ROWS, shard="s", row=0) for one in (plan, plain))
    assert without.columns is None
    for name in ("indptr", "indices", "values", "y", "weight"):
        assert getattr(with_values, name).tobytes() == getattr(without, name).tobytes()


@pytest.mark.parametrize("nulls", ["indicator", "mean", "zero"])
def test_a_matrix_of_numbers(nulls: str) -> None:
    """A missing number is missing whatever takes its place, and skipped rows are not there."""
    columns = {"numeric": ["a", "k"], "hashed": [], "text": [], "dates": [], "crosses": []}
    ignored = {"ignore": ["job", "tags", "when", "city", "says"]}
    plan = replace(plan_of(18, **columns, **ignored, nulls=nulls), on_bad_row="skip")
    batch = encode(plan, ROWS, shard="s", row=0)
    assert isinstance(batch, DenseBatch)
    there = [0, 1, 3] if nulls == "zero" else [0, 1, 2, 3]  # there NaN is a bad row
    np.testing.assert_array_equal(batch.columns.numbers, [NUMBERS[row] for row in there])
    assert len(batch.columns.categories) == 0
