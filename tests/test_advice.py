"""Advice: what a message tells to do is what the one who reads it can do, and is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running import rows, run, with_column, write

import streamomd

NUMBERS = ["--label", "y", "--numeric", "n,k"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run kept in ``kept``, of the shard in ``data``."""
    monkeypatch.chdir(tmp_path)
    write(Path("data/a.parquet"), rows(40))
    assert run("train", "data", *NUMBERS, "--checkpoint", "kept").code == 0


def told(*words: object) -> str:
    """The error of a command that is bad usage or has bad input."""
    done = run(*words)
    assert done.code == 2
    return done.err.splitlines()[-1]


def test_a_model_and_a_sweep_are_shown_in_a_line() -> None:
    model = streamomd.load("kept")
    assert repr(model).startswith("Model(rule='nag', loss='logistic', classes=2, coordinates=3, ")
    flags: dict[str, Any] = {"label": "y", "numeric": ["n", "k"], "checkpoint": "none"}
    models = streamomd.sweep("data", grid={"eta": [0.1, 1.0]}, quiet=True, **flags)
    assert repr(models).startswith("Sweep(learners=2, active=2, rows=40, best={'eta': ")
    assert max(len(repr(model)), len(repr(models))) < 200


def test_a_path_that_is_not_there_comes_before_a_label() -> None:
    found = told("train", "cover.tml")
    assert "cover.tml" in found
    assert "no label" not in found
    assert "no label" in told("train", "data")


def test_predict_gives_no_advice_of_training() -> None:
    """Its model is made, so no key of the job can change what becomes of a null."""
    write(Path("holes/a.parquet"), with_column(rows(40), "n", pa.nulls(40, pa.float64())))
    found = told("predict", "kept", "holes", "--to", "out")
    assert "data.nulls" not in found
    assert "drop the row" in found
    assert "data.nulls" in told("train", "holes", *NUMBERS, "--checkpoint", "none")


def test_columns_that_are_not_there() -> None:
    assert "did you mean 'y'" not in told("evaluate", "kept", "data", "--by", "city")
    write(Path("long/a.parquet"), rows(40).append_column("elevation", pa.array([1.0] * 40)))
    assert "did you mean 'elevation'?" in told("evaluate", "kept", "long", "--by", "Elevaton")
    found = told("predict", "kept", "long", "--to", "out", "--keep", "Elevaton")
    assert "did you mean 'elevation'?" in found
    assert "it has" not in found


def test_evaluate_says_that_it_needs_the_label() -> None:
    write(Path("new/a.parquet"), rows(40).drop_columns(["y"]))
    found = told("evaluate", "kept", "new")
    assert "'y' (int64) is missing; it is the label" in found
    assert run("predict", "kept", "new", "--to", "out").code == 0


def test_a_type_is_that_of_the_training() -> None:
    write(Path("text/a.parquet"), with_column(rows(40), "k", pa.array(["a"] * 40)))
    assert "the model was trained on int64" in told("evaluate", "kept", "text")
    assert "first shard" not in told("predict", "kept", "text", "--to", "out")


def test_a_range_without_a_count() -> None:
    words = ["sweep", "data", *NUMBERS, "--checkpoint", "none"]
    assert "eta=1..10:8" in told(*words, "--grid", "eta=1..10")
