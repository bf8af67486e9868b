"""Evaluation by slices: each is evaluated as its rows alone would be, whatever the column holds."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from running import both, rows, run, with_column, write

import streamomd
from streamomd.core.errors import DataError, SchemaError
from streamomd.shards import distinct_values as values
from streamomd.training import predict

FLAGS: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "bits": 8}
SAME = ("rows", "loss", "error", "rmse")
COUNT = 120


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two shards with columns of many kinds beside the features, nulls among their values."""
    day = datetime.date(2026, 11, 22)
    for place, name in enumerate("ab"):
        table = rows(COUNT, first=place)
        code = np.random.default_rng(place).integers(0, 4, COUNT)
        beside = {
            "text": pa.array([None if c == 3 else f"v{c}" for c in code]),
            "flag": pa.array((code > 1).tolist()),
            "day": pa.array([day + datetime.timedelta(int(c)) for c in code]),
            "bytes": pa.array([bytes([c, 255]) for c in code.tolist()]),
            "number": pa.array([float("nan") if c == 2 else c / 2 for c in code]),
        }
        for key, column in beside.items():
            table = table.append_column(key, column)
        write(tmp_path / "data" / f"{name}.parquet", table, row_group_size=50)
    return tmp_path


@pytest.fixture
def model(data: Path) -> streamomd.Model:
    return streamomd.train(str(data / "data"), checkpoint="none", quiet=True, **FLAGS)


def alone(model: streamomd.Model, table: pa.Table, folder: Path) -> dict[str, Any]:
    """What is evaluated of these rows by themselves."""
    return model.evaluate(str(write(folder / "alone.parquet", table)), quiet=True)


@pytest.mark.parametrize("column", ["text", "flag", "day", "bytes", "number", "h", "c", "y"])
@pytest.mark.sample(3)
def test_a_slice_is_its_rows_alone(column: str, data: Path, model: streamomd.Model) -> None:
    """Figures of a slice are, to the bit, those of a shard of its rows."""
    told = model.evaluate(str(data / "data"), by=[column], quiet=True)
    table = both(data / "data")
    words = [str(value) for value in table[column].to_pylist()]
    if column == "bytes":
        words = [value.decode(errors="backslashreplace") for value in table[column].to_pylist()]
    found = told["slices"][column]
    assert sum(one["rows"] for one in found) == told["rows"] == 2 * COUNT
    assert sorted(str(one["value"]) for one in found) == sorted(set(words))
    assert [one["weight"] for one in found] == sorted((o["weight"] for o in found), reverse=True)
    for one in found:
        mask = pa.array([word == str(one["value"]) for word in words])
        expected = alone(model, table.filter(mask), data / column)
        assert {key: one[key] for key in SAME} == {key: expected[key] for key in SAME}
        assert one["weight"] == pytest.approx(pc.sum(table.filter(mask)["w"]).as_py())
        if expected["auc"] is not None:
            apart = abs(expected["auc"] - one["auc"])
            assert apart <= one["auc_error"] + expected["auc_error"] + 1e-12


def test_where_batches_are_cut_leaves_no_trace(data: Path, model: streamomd.Model) -> None:
    """The same rows in one shard, and rows that are left out between them: the same slices."""
    whole = write(data / "one" / "all.parquet", both(data / "data"))
    by = ["text", "day"]
    told = model.evaluate(str(data / "data"), by=by, quiet=True)["slices"]
    assert model.evaluate(str(whole), by=by, quiet=True)["slices"] == told
    good = both(data / "data")
    bad = with_column(good.slice(0, 5), "n", [float("nan")] * 5)
    mixed = pa.concat_tables([bad, good.slice(0, 7), bad, good.slice(7)])
    shard = write(data / "mixed" / "all.parquet", mixed, row_group_size=9)
    skipping = streamomd.train(
        str(whole), checkpoint="none", quiet=True, on_bad_row="skip", **FLAGS
    )
    assert skipping.evaluate(str(shard), by=by, quiet=True)["slices"] == told


def test_the_heaviest_values_stand_alone(
    data: Path, model: streamomd.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more values than are told, those with the most weight are; the rest come together."""
    told = model.evaluate(str(data / "data"), by=["h"], quiet=True)["slices"]["h"]
    monkeypatch.setattr(predict, "MOST_SLICES", 3)
    few = model.evaluate(str(data / "data"), by=["h"], quiet=True)["slices"]["h"]
    assert few[:3] == told[:3]
    assert few[3]["value"] == "(other)"
    assert few[3]["rows"] == sum(one["rows"] for one in told[3:])
    assert few[3]["loss"] * few[3]["weight"] == pytest.approx(
        sum(one["loss"] * one["weight"] for one in told[3:])
    )


def test_what_cannot_be_sliced_is_refused(
    data: Path, model: streamomd.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such column, a column of lists, and one that tells single rows apart."""
    shards = str(data / "data")
    with pytest.raises(SchemaError, match="no column 'jobs'"):
        model.evaluate(shards, by=["jobs"], quiet=True)
    with pytest.raises(SchemaError, match=r"'i' of .* is list"):
        model.evaluate(shards, by=["i"], quiet=True)
    monkeypatch.setattr(values, "MOST", 100)
    with pytest.raises(DataError, match="column 'n' has more than 100 values"):
        model.evaluate(shards, by=["n"], quiet=True)


@pytest.mark.parametrize("task", ["regress", pytest.param("several", marks=pytest.mark.slow)])
def test_other_tasks(task: str, data: Path) -> None:
    """Numbers have RMSE, MAE and R²; several classes an error, and no ranking by slice."""
    shards = str(data / "data")
    told = {"label": "n", "loss": "square", "rule": "adagrad"} if task == "regress" else {}
    told = told or {"label": "k", "sets": {"model.task": "classify"}}
    model = streamomd.train(
        shards, checkpoint="none", quiet=True, hashed=["h"], numeric=[], bits=6, **told
    )
    one = model.evaluate(shards, by="flag", quiet=True)["slices"]["flag"][0]
    known = {key for key, value in one.items() if value is not None}
    shared = {"value", "rows", "weight", "loss"}
    assert known == shared | ({"rmse", "mae", "r2"} if task == "regress" else {"error"})


def test_the_command_prints_a_table(data: Path) -> None:
    """--by is repeatable; a table each on stdout, lists in --json."""
    kept, shards = data / "kept", data / "data"
    run("train", shards, "--label", "y", "--numeric", "n,k", "--checkpoint", kept)
    words = ["evaluate", kept, shards, "--by", "text", "--by", "flag"]
    out = run(*words).out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("by ")] == [
        ["by", "text"],
        ["by", "flag"],
    ]
    assert "null" in out
    told = run(*words, "--json").result
    assert [*told["slices"]] == ["text", "flag"]
    assert {one["value"] for one in told["slices"]["text"]} == {"v0", "v1", "v2", None}
    assert pq.read_table(shards)["text"].null_count == next(
        one["rows"] for one in told["slices"]["text"] if one["value"] is None
    )
