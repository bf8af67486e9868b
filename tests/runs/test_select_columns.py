"""A run learns the best N columns alone, which a first pass over the rows chooses."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run, train

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError
from streamomd.runs.select_columns import screening

ROWS = 3000
DAY = datetime.date(2026, 1, 5)  # a Monday


def rows(kind: str = "number", seed: int = 0, **more: Any) -> pa.Table:
    """A column ``best`` of a kind that says much of y, ``good`` that says less, and noise."""
    draw = np.random.default_rng(seed)
    code, good = draw.integers(0, 3, ROWS), draw.normal(size=ROWS)
    y = (code - 1.0 + 0.3 * good + 0.3 * draw.normal(size=ROWS) > 0.0).astype(np.int64)
    best = {
        "number": pa.array(1000.0 * code),
        "curve": pa.array(np.array([0.0, 9.0, 3.0])[code]),
        "category": pa.array(np.array(["a", "b", "c"])[code]),
        "date": pa.array([DAY + datetime.timedelta(int(k)) for k in code]),
        "text": pa.array([f"film {['bad', 'so', 'good'][k]}" for k in code]),
        "vector": pa.array(np.column_stack([draw.normal(size=ROWS), code]).tolist()),
        "tags": pa.array([["x", "abc"[k]] for k in code]),
    }[kind]
    noise = {f"n{i}": draw.normal(size=ROWS) for i in range(8)}
    words = {f"w{i}": draw.choice(["u", "v", "w"], ROWS) for i in range(2)}
    return pa.table({**noise, "best": best, **words, "good": good, "y": y, **more})


NAMED = {"date": {"dates": ["best"]}, "text": {"text": ["best"]}, "vector": {"vectors": ["best"]}}
NOISE = {"numeric": [*(f"n{i}" for i in range(8)), "good"], "hashed": ["w0", "w1"]}


@pytest.mark.parametrize("kind", ["number", "curve", "category", "date", "text", "vector", "tags"])
def test_the_best_column_of_each_kind(tmp_path: Path, kind: str) -> None:
    """It is the only feature, also where no column has a role that the job has to name."""
    pq.write_table(rows(kind), tmp_path / "rows.parquet")
    given = {**NOISE, **NAMED[kind]} if kind in NAMED else {}
    shapes = "columns" if kind == "curve" else "none"
    more = {"shapes": shapes, "checkpoint": "none", "quiet": True, "epochs": 2}
    shard = str(tmp_path / "rows.parquet")
    model = streamomd.train(shards=shard, label="y", select=1, **given, **more)
    assert model.plan.features == ("best",)
    assert model.result()["loss"] < 0.35


def test_a_cross(tmp_path: Path) -> None:
    """Both columns together say what neither says."""
    draw = np.random.default_rng(1)
    a, b = draw.integers(0, 2, (2, ROWS))
    words = {"a": a.astype(str), "b": b.astype(str)}
    table = pa.table({**words, "n": draw.normal(size=ROWS), "y": a ^ b})
    pq.write_table(table, tmp_path / "rows.parquet")
    data = {"shards": str(tmp_path / "rows.parquet"), "label": "y", "crosses": [["a", "b"]]}
    model = streamomd.train({"data": {**data, "select": 1}}, checkpoint="none", quiet=True)
    assert (model.plan.numeric, model.plan.hashed, model.plan.crosses) == ((), (), (("a", "b"),))
    assert model.result()["error"] < 0.05


def test_the_job_of_the_run_has_the_columns(tmp_path: Path) -> None:
    """An update needs no others, and learns them alone."""
    pq.write_table(rows(), tmp_path / "1.parquet")
    url, shards = tmp_path / "run", f"{tmp_path}/*.parquet"
    words = (shards, "--label", "y", "--select", 2, "--checkpoint", url)
    done = run("train", *words)
    assert "selecting 2 of 12 feature columns" in done.err
    assert "selected, the best first: best, good" in done.err
    model = streamomd.load(str(url))
    assert model.plan.features == ("best", "good")
    assert model.spec.data.select == 2
    assert run("inspect", url, "--json").result["selected"] == ["best", "good"]
    assert "best 2 of them" in run("plan", shards, "--label", "y", "--select", 2).out
    assert run("resume", url, "--epochs", 2, "--json").result["rows"] == 2 * ROWS
    pq.write_table(rows(seed=1).select(["good", "best", "y"]), tmp_path / "2.parquet")
    assert run("update", url, "--json").code == 0
    assert streamomd.load(str(url)).plan.features == ("best", "good")
    again = train(shards, "--label", "y", "--numeric", "best,good", "--checkpoint", "none")
    assert again["rows"] == 2 * ROWS


def test_a_column_that_is_not_selected_may_have_a_null_word(tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    data = {"shards": str(tmp_path / "rows.parquet"), "label": "y", "select": 1}
    nulls = {"n0": "mean", "best": "zero"}
    model = streamomd.train({"data": {**data, "nulls": nulls}}, checkpoint="none", quiet=True)
    assert model.spec.data.nulls == {"best": "zero"}


@pytest.mark.parametrize("shapes, found", [("none", "none"), ("all", "columns")])
def test_the_first_pass_grows_no_trees(shapes: str, found: str) -> None:
    delay = 0 if shapes == "all" else 3600
    data = {"shards": "rows", "label": "y", "select": 2, "delay": delay, "time": "t"}
    given = {"data": data, "model": {"shapes": shapes}}
    spec = screening(Spec.parse(given))
    assert (spec.model.rule, spec.model.shapes) == ("auto", found)
    assert (spec.data.select, spec.data.delay, spec.data.time) == (0, 0.0, "t")


def test_no_more_columns_than_asked_for(tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    done = run("train", tmp_path / "rows.parquet", "--label", "y", "--select", 12,
               "--checkpoint", "none")  # fmt: skip
    assert "data.select = 12: the job has 12 feature columns" in done.err


def test_commands_that_select_nothing(tmp_path: Path) -> None:
    when = pa.array([DAY] * ROWS)
    pq.write_table(rows(when=when), tmp_path / "rows.parquet")
    words = (tmp_path / "rows.parquet", "--label", "y", "--select", 2)
    sweep, backtest = ["--grid", "eta=1,2", "--rule", "nag"], ["--by", "day", "--time", "when"]
    for command, more in (("sweep", sweep), ("backtest", backtest)):
        done = run(command, *words, *more)
        assert done.code == UnsupportedError("").exit_code, done.err
        assert "selects no columns (data.select)" in done.err
