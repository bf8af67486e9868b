"""Whole numbers and floats of one column: the same features, or a bad row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from running import run, train, write

import streamomd
from streamomd.core.errors import BadRowError

FLAGS = ("--label", "y", "--numeric", "n", "--hashed", "h", "--rule", "nag", "--checkpoint", "none")


def rows(kind: pa.DataType, values: list[float | None]) -> pa.Table:
    """Three rows whose numbers and categories have this type."""
    column = pa.array(values, pa.float64()).cast(kind)
    return pa.table({"y": [0, 1, 1], "n": column.fill_null(1), "h": column})


@pytest.mark.parametrize("first, then", [(pa.int64(), pa.float64()), (pa.float64(), pa.int32())])
def test_the_type_of_a_later_shard_changes_no_feature(
    tmp_path: Path, first: pa.DataType, then: pa.DataType
) -> None:
    states = []
    for place, kind in enumerate((first, then)):
        write(tmp_path / f"{place}/a.parquet", rows(first, [1, 2, 3]))
        write(tmp_path / f"{place}/b.parquet", rows(kind, [3, None, 1]))
        states.append(train(tmp_path / f"{place}", *FLAGS)["state_sha256"])
    assert states[0] == states[1]


@pytest.mark.parametrize("value", [0.5, float("nan"), 1e300])
def test_a_fraction_is_a_bad_row_where_categories_were_whole_numbers(
    tmp_path: Path, value: float
) -> None:
    write(tmp_path / "a.parquet", rows(pa.int64(), [1, 2, 3]))
    table = rows(pa.float64(), [1, value, 2]).set_column(1, "n", pa.array([1.0, 1.0, 1.0]))
    write(tmp_path / "b.parquet", table)
    with pytest.raises(BadRowError, match=r"b.parquet, row 1, column 'h': .*whole number") as bad:
        streamomd.train(
            str(tmp_path), label="y", numeric=["n"], hashed=["h"], checkpoint="none", quiet=True
        )
    assert bad.value.reason == "fraction"
    told = run("train", tmp_path, *FLAGS, "--on-bad-row", "skip", "--json").result
    assert (told["rows"], told["skipped"]) == (5, {"fraction": 1})


def test_whole_numbers_that_no_float_has_are_bad_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", rows(pa.float64(), [1, 2, 3]))
    large = pa.table({"y": [0, 1], "n": [1, 2], "h": pa.array([2**53 + 1, 2])})
    write(tmp_path / "b.parquet", large)
    ran = run("train", tmp_path, *FLAGS)
    assert ran.code == 2
    assert "row 0, column 'h': found 9007199254740993" in ran.err
