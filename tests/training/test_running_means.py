"""``data.nulls = "mean"``: a missing number is the mean of the values before it, to the bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, write

import streamomd
from streamomd.core.errors import UnsupportedError, UsageError

N = 120
RULES = ("auto", "nag", "ogd", "laplace", "adagrad_standardized", "arow", "ons", "ftrl_proximal")
QUICK = {
    ("auto", "dense"),
    ("auto", "hashed"),
    ("nag", "dense"),
    ("nag", "hashed"),
    ("ons", "dense"),
}


def table(count: int = N, seed: int = 0, *, hashed: bool = False, vector: bool = False) -> pa.Table:
    """Numbers with nulls and NaN, a weight, and what else is asked for."""
    random = np.random.default_rng(seed)
    age = random.normal(40.0, 9.0, count)
    income = random.normal(3.0, 1.0, count)
    y = (age / 9.0 + income + random.normal(size=count) > 7.4).astype(np.int64)
    columns: dict[str, Any] = {
        "age": pa.array(age, mask=random.random(count) < 0.3),
        "income": np.where(random.random(count) < 0.2, np.nan, income),
        "full": random.normal(size=count),
        "w": random.integers(0, 3, count).astype(np.float64),
        "y": y,
    }
    if hashed:
        columns["city"] = random.choice(["Rome", "Oslo", "Lima"], count)
    if vector:
        width2 = random.normal(size=(count, 2))
        width2[random.random((count, 2)) < 0.2] = np.nan
        columns["v"] = pa.FixedSizeListArray.from_arrays(pa.array(width2.reshape(-1)), 2)
    return pa.table(columns)


def oracle(given: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The table with each missing value replaced, row by row, one addition after the other."""
    weight = given["w"].to_numpy()
    for name in names:
        values = given[name].to_pylist()
        total = count = 0.0
        for at, value in enumerate(values):
            if value is None or value != value:
                values[at] = total / count if count > 0.0 else 0.0
            else:
                total, count = total + value * weight[at], count + weight[at]
        given = given.set_column(given.schema.get_field_index(name), name, [pa.array(values)])
    return given


def learn(path: Path, *words: str, checkpoint: str = "none", nulls: str = "mean") -> Any:
    """A run over a file, and its model."""
    job = {"data": {"nulls": nulls} if nulls else {}}
    return streamomd.train(
        job, shards=str(path), label="y", weight="w", checkpoint=checkpoint, quiet=True,
        sets=dict(word.split("=", 1) for word in words),
    )  # fmt: skip


@pytest.mark.parametrize(
    "rule, kind",
    # Two loops of each compile for a second or more: the quick run has one of each kind of storage.
    [
        pytest.param(rule, kind, marks=() if (rule, kind) in QUICK else pytest.mark.slow)
        for rule in RULES
        for kind in ("dense", "hashed")
    ],
)
def test_a_run_is_that_of_filled_rows(rule: str, kind: str, tmp_path: Path) -> None:
    """Weights and losses are those of the table that was filled beforehand, to the bit."""
    rows = table(hashed=kind == "hashed")
    write(tmp_path / "a.parquet", rows)
    write(tmp_path / "b.parquet", oracle(rows, ("age", "income")))
    words = (f"model.rule={rule}", "data.bits=6")
    found = learn(tmp_path / "a.parquet", *words)
    expected = learn(tmp_path / "b.parquet", *words, nulls="")
    assert found.result()["loss"] == expected.result()["loss"]
    size = found.plan.size
    weights = [one.engine.weights(one.state, 0, size) for one in (found, expected)]
    np.testing.assert_array_equal(*weights)


def test_a_vector_has_a_mean_for_each_element(tmp_path: Path) -> None:
    """NaN inside of a list, and a whole list that is null."""
    rows = table(vector=True)
    lists = rows["v"].to_pylist()
    lists[5] = None
    rows = rows.set_column(5, "v", [pa.array(lists, pa.list_(pa.float64(), 2))])
    write(tmp_path / "a.parquet", rows)
    job = {"data": {"nulls": "mean", "vectors": ["v"], "numeric": ["age"]}}
    model = streamomd.train(job, shards=str(tmp_path), label="y", checkpoint="none", quiet=True)
    values = np.array([one or [np.nan] * 2 for one in lists], dtype=np.float64)
    fill = model.fill_values()
    np.testing.assert_allclose(fill["v"], np.nanmean(values, axis=0), rtol=1e-12)
    ages = [one for one in rows["age"].to_pylist() if one is not None]
    assert fill["age"] == pytest.approx(np.mean(ages))


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, N - 1), max_size=6, unique=True))
@pytest.mark.slow
def test_splits_change_no_bit(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    """Shards and row groups of any size: the same state, means included."""
    root = tmp_path_factory.mktemp("cut")
    rows, edges = table(hashed=True), [0, *sorted(cuts), N]
    for at, (low, high) in enumerate(itertools.pairwise(edges)):
        write(root / f"{at:02}.parquet", rows.slice(low, high - low), row_group_size=7)
    write(root / "whole" / "a.parquet", rows)
    one, other = learn(root / "whole"), learn(root / "*.parquet")
    assert one.state_sha256 == other.state_sha256


def test_a_run_resumes_with_its_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs in two processes' worth of runs: those of one; predictions use the last means."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.parquet", table())
    learn(tmp_path / "a.parquet", checkpoint="run")
    again = streamomd.resume("run", sets={"train.epochs": 2}, quiet=True)
    whole = learn(tmp_path / "a.parquet", "train.epochs=2")
    assert again.state_sha256 == whole.state_sha256
    missing = pa.table({"age": [None], "income": [1.0], "full": [0.0]}).cast(
        pa.schema([("age", pa.float64()), ("income", pa.float64()), ("full", pa.float64())])
    )
    present = missing.set_column(0, "age", [[whole.fill_values()["age"]]])
    write(tmp_path / "new" / "a.parquet", pa.concat_tables([missing, present]))
    assert run("predict", "run", "new", "--to", "out").code == 0
    scores = pq.read_table("out/a.parquet")["score"].to_pylist()
    assert scores[0] == scores[1]


def test_a_word_for_each_column(tmp_path: Path) -> None:
    """A table, and the flag; columns that are not named are errors, * names all others."""
    write(tmp_path / "a.parquet", table())
    path = tmp_path / "a.parquet"
    words = ("train", path, "--label", "y", "--weight", "w", "--checkpoint", "none", "--nulls")
    assert run(*words, "age=mean,income=indicator").code == 0
    refused = run(*words, "age=mean")
    assert refused.code == 2
    assert "'income'" in refused.err
    assert run(*words, "age=mean,*=indicator").code == 0
    strange = run(*words, "aeg=mean,city=zero")
    assert "'aeg'" in strange.err
    assert "'city'" in strange.err
    assert "expected one of error, zero, indicator, mean" in run(*words, "means").err


def test_modes_that_do_not_know_the_rows_before(tmp_path: Path) -> None:
    """Averaged and sharded runs refuse it by name."""
    write(tmp_path / "a.parquet", table())
    for mode in ("averaged", "sharded"):
        with pytest.raises(UnsupportedError, match="mode exact"):
            learn(tmp_path / "a.parquet", f"train.mode={mode}", "model.rule=nag")


def test_holdout_rows_are_not_counted(tmp_path: Path) -> None:
    """Their missing values become the means of then; the means are those of the other rows."""
    rows = table()
    write(tmp_path / "a.parquet", rows)
    held = learn(tmp_path / "a.parquet", "data.holdout=4")
    assert held.result()["holdout"]["rows"] > 0
    weight, ages = rows["w"].to_numpy(), rows["age"].to_pandas().to_numpy()
    everything = np.average(ages[~np.isnan(ages)], weights=weight[~np.isnan(ages)])
    assert held.fill_values()["age"] != pytest.approx(everything, rel=1e-9)
    assert held.state.means[1].max() < weight.sum()


def test_a_job_that_names_no_column() -> None:
    """An unknown word is refused when the job is read."""
    with pytest.raises(UsageError, match="did you mean 'mean'"):
        streamomd.train({"data": {"nulls": "maen"}}, shards="x", label="y")
