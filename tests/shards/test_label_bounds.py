"""Classes of later shards that footers show, before a row of them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

import streamomd
from streamomd.shards.distinct_values import label_bounds
from streamomd.sources.find import find


def write(path: Path, labels: Any, **options: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    x = np.arange(len(labels), dtype=np.float64)
    pq.write_table(pa.table({"y": labels, "x": x}), str(path), **options)


@pytest.mark.parametrize("kind", ["int8", "uint64", "int64", "float32", "float64"])
def test_bounds_of_each_group(tmp_path: Path, kind: str) -> None:
    """Of all types of numbers; none where the footer has none, or of another column."""
    values = [3, 1, 2, 7, 5, 6]
    write(tmp_path / "rows" / "a.parquet", pa.array(values).cast(kind), row_group_size=3)
    write(tmp_path / "rows" / "b.parquet", pa.array([0, 9]).cast(kind), write_statistics=False)
    shards = find(str(tmp_path / "rows"), statistics=["y"])
    assert label_bounds(shards, "y") == {1, 3, 5, 7}
    assert label_bounds(shards, "x") == set()
    assert label_bounds(find(str(tmp_path / "rows")), "y") == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_a_class_of_a_later_shard_is_learned(tmp_path: Path, kind: str) -> None:
    """Its rows came with an error in the middle of the run before."""
    rows = tmp_path / "rows"
    write(rows / "a.parquet", pa.array([0, 1] * 20).cast(kind))
    write(rows / "b.parquet", pa.array([0, 1, 4] * 20).cast(kind))
    done = run("train", rows, "--label", "y", "--rule", "nag", "--checkpoint", tmp_path / "run")
    assert done.code == 0, done.err
    assert "label 'y': 4 from the footers of later shards" in done.err.replace("4.0", "4")
    assert [*streamomd.load(str(tmp_path / "run")).plan.classes] == [0, 1, 4]
    again = streamomd.train(
        str(rows), label="y", rule="nag", sets={"model.classes": [0, 1, 4]}, checkpoint="none",
        quiet=True,
    )  # fmt: skip
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == again.state_sha256


def test_a_filter_may_drop_all_rows_of_a_class(tmp_path: Path) -> None:
    """So it is not learned, and a line says how it would be."""
    rows = tmp_path / "rows"
    write(rows / "a.parquet", pa.array([0, 1] * 20))
    write(rows / "b.parquet", pa.array([0, 1, 4] * 20))
    flags = ["--label", "y", "--rule", "nag", "--where", "y < 3"]
    done = run("train", rows, *flags, "--checkpoint", tmp_path / "run")
    assert done.code == 0, done.err
    assert "4 from the footers of later shards are unknown; to learn rows of them" in done.err
    assert [*streamomd.load(str(tmp_path / "run")).plan.classes] == [0, 1]


def test_texts_are_not_taken_from_bounds(tmp_path: Path) -> None:
    """They may be cut: a bound need not be a value."""
    rows = tmp_path / "rows"
    write(rows / "a.parquet", pa.array(["a", "b"] * 20))
    write(rows / "b.parquet", pa.array(["a", "c"] * 20))
    done = run("train", rows, "--label", "y", "--checkpoint", "none")
    assert done.code == 2
    assert "plan" in done.err
    assert "--scan-labels" in done.err
