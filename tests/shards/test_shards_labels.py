"""Distinct labels, found in the shards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from shard_rows import readers, small_set, write_arrow, write_parquet

from streamomd.core.errors import DataError, SchemaError
from streamomd.shards.distinct_values import distinct_labels
from streamomd.sources.find import find


def test_labels_are_of_the_first_shard_that_has_two(tmp_path: Path) -> None:
    """Sorted Python values, without null and NaN; following shards only while there is one."""
    for number, labels in enumerate(([None, 2.0, float("nan")], [1.0, 2.0], [7.0])):
        write_parquet(str(tmp_path / f"{number}.parquet"), pa.table({"y": labels}), 2)
    assert distinct_labels(find(str(tmp_path)), "y") == [1.0, 2.0]
    write_arrow(str(tmp_path / "3.arrow"), pa.table({"y": pa.array(["b", "a", "b", None])}), 2)
    text = find(str(tmp_path / "3.arrow"))
    assert distinct_labels(text, "y") == ["a", "b"]
    with pytest.raises(DataError, match="more than 1 distinct"):
        distinct_labels(text, "y", limit=1)


def test_labels_of_a_wrong_column_are_refused(tmp_path: Path) -> None:
    """A list is not a label, and a missing column is reported with similar names."""
    shards = small_set(tmp_path, "a.parquet", write_parquet)
    with pytest.raises(SchemaError, match="list"):
        distinct_labels(shards, "list")
    with pytest.raises(SchemaError, match="did you mean 'word'"):
        distinct_labels(shards, "wrod")
    assert readers() == []


def test_readers_end_where_it_raises(tmp_path: Path) -> None:
    """Not when the error is forgotten: who catches it may keep it."""
    path = str(tmp_path / "a.parquet")
    write_parquet(path, pa.table({"y": range(2_000), "n": range(2_000)}), 100)
    with pytest.raises(DataError, match="more than 1000 distinct") as kept:
        distinct_labels(find(path), "y")
    assert readers() == []
    assert kept.value
