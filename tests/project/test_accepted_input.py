"""Input that is unusual and accepted: names, empty shards, equal indices, states that overflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import everything, rows, run, shards, train, with_column, write

import streamomd

EVERY = ["--set", "checkpoint.every_rows=16"]
NAMES = [
    "a[1].parquet",
    "with space.parquet",
    "per%20cent.parquet",
    "hash#tag.parquet",
    "star*.parquet",
    "what?.parquet",
    "é ☃.parquet",
    "k=v,w.parquet",
    "'quoted'.parquet",
]


@pytest.mark.parametrize("name", NAMES)
def test_awkward_names(name: str, tmp_path: Path) -> None:
    """A file of any name is that file, given alone or in its folder, and after a resume."""
    plain, data, kept = tmp_path / "p", tmp_path / "data", tmp_path / "run"
    table = rows(30)
    write(plain / "a.parquet", table)
    write(data / name, table)
    write(plain / "a1.parquet", rows(9))
    expected = train(plain / "a.parquet", *everything(), "--checkpoint", "none")["state_sha256"]
    done = train(data / name, *everything(), "--checkpoint", kept)
    assert done["state_sha256"] == expected
    assert train(data, *everything(), "--checkpoint", "none")["state_sha256"] == expected
    more = run("resume", kept, "--set", "train.epochs=2", "--json").result
    assert more["rows"] == 60
    out = run("predict", kept, data / name, "--to", tmp_path / "out", "--json").result["files"]
    assert [Path(file).name for file in out] == [name]
    assert pq.ParquetFile(out[0]).metadata.num_rows == 30


def accepted(tmp_path: Path, tables: dict[str, pa.Table], **options: Any) -> dict[str, Any]:
    for name, table in tables.items():
        write(tmp_path / f"{name}.parquet", table, **options)
    return train(tmp_path, *everything(), "--checkpoint", "none")


def pairs(indices: list[list[int]], values: list[list[float]]) -> pa.Table:
    table = rows(len(indices))
    table = with_column(table, "i", pa.array(indices, pa.list_(pa.int64())))
    return with_column(table, "v", pa.array(values, pa.list_(pa.float64())))


def test_equal_and_unsorted_indices(tmp_path: Path) -> None:
    """Unsorted indices give the bits of sorted ones, equal ones those of their sum in order."""
    draw = np.random.default_rng(5)
    keys = [draw.integers(0, 20, 12).tolist() for _ in range(60)]
    numbers = [draw.normal(size=12).tolist() for _ in keys]
    told, sums = [], []
    for row, values in zip(keys, numbers, strict=True):
        total: dict[int, float] = {}
        for key, value in zip(row, values, strict=True):
            total[key] = total[key] + value if key in total else value
        told.append(sorted(total))
        sums.append([total[key] for key in sorted(total)])
    given = accepted(tmp_path / "given", {"a": pairs(keys, numbers)})
    summed = accepted(tmp_path / "summed", {"a": pairs(told, sums)})
    assert given["state_sha256"] == summed["state_sha256"]
    backward = pairs([row[::-1] for row in told], [row[::-1] for row in sums])
    turned = accepted(tmp_path / "turned", {"a": backward})
    assert turned["state_sha256"] == summed["state_sha256"]


def test_weight_zero_counts_as_a_row(tmp_path: Path) -> None:
    """Rows of weight 0 are counted as rows, and neither in the loss nor in the mistakes."""
    table = with_column(rows(30), "w", pa.array([0.0] * 30))
    done = accepted(tmp_path, {"a": table})
    assert (done["rows"], done["loss"], done["error"]) == (30, None, None)
    model = streamomd.train(
        str(tmp_path), label="y", weight="w", numeric=["n"], checkpoint="none", quiet=True
    )
    assert not model.state.slot("w").any()


@pytest.mark.parametrize(
    "rule, loss",
    [
        pytest.param(
            rule, loss, marks=() if (rule, loss) == ("nag", "square") else pytest.mark.slow
        )
        for rule in ("nag", "adagrad", "ogd")
        for loss in ("logistic", "square")
    ],
)
def test_a_state_that_overflows(rule: str, loss: str, tmp_path: Path) -> None:
    """Where eta makes numbers overflow: exit 6, a log of legal JSON, and a checkpoint whose model
    is finite and predicts."""
    data, kept, log = tmp_path / "data", tmp_path / "run", tmp_path / "log.jsonl"
    shards(data)
    flags = [*everything(), "--rule", rule, "--loss", loss, "--eta", "1e308"]
    done = run("train", data, *flags, "--checkpoint", kept, *EVERY, "--log", log)
    assert done.code == 6, done.err
    assert "the model diverged" in done.err
    for line in log.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert run("resume", kept).code == 6
    assert run("inspect", kept).code == 0
    assert run("checkpoint", "verify", kept).code == 0
    files = run("predict", kept, data, "--to", tmp_path / "out", "--json").result["files"]
    table = pa.concat_tables([pq.read_table(file) for file in files])
    assert np.isfinite(table.column("score").to_numpy()).all()
