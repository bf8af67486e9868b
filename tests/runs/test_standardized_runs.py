"""Runs of the learners on standardised inputs: resumed, cut into other shards, diverged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from diverging import commits
from running import everything, rows, run, train, with_column, write
from test_resume import cut, figures, fill, words

CASES = [
    ("auto", "logistic", "float64"),
    ("auto", "square", "float64"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("auto", "softmax", "float64"),
            ("auto", "logistic", "float32"),
            ("auto", "hinge", "float64"),
            ("laplace", "logistic", "float64"),
            ("laplace", "softmax", "float32"),
            ("adagrad_standardized", "logistic", "float64"),
            ("adagrad_standardized", "absolute", "float32"),
        )
    ),
]


@pytest.mark.parametrize("rule, loss, dtype", CASES)
def test_a_resumed_run_is_an_undisturbed_one(
    rule: str, loss: str, dtype: str, tmp_path: Path
) -> None:
    """From a commit within a shard, before and after changes of the reference, in either epoch."""
    model = ["--rule", rule, "--loss", loss, "--dtype", dtype, "--epochs", "2"]
    shards = fill(tmp_path / "shards", 2)
    undisturbed = figures(train(*words(shards, tmp_path / "run", *model)))
    assert undisturbed["rows"] == 1200
    for after in (1100, 700, 500, 100):
        cut(tmp_path / "run", after)
        assert figures(run("resume", tmp_path / "run", "--json").result) == undisturbed


@pytest.mark.parametrize(
    "loss", ["logistic", "square", pytest.param("softmax", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_a_run_of_passes_resumes(loss: str, tmp_path: Path) -> None:
    """From commits within a later pass, at the end of one, and of a finished run of fewer."""
    model = ["--rule", "auto", "--loss", loss]
    shards = fill(tmp_path / "shards", 2)
    straight = train(*words(shards, tmp_path / "run", *model, "--epochs", "3"))
    undisturbed = figures(straight)
    assert undisturbed["rows"] == 1800
    for after in (1300, 1200, 900, 600):
        cut(tmp_path / "run", after)
        assert figures(run("resume", tmp_path / "run", "--json").result) == undisturbed
    for epochs in (1, 2):
        url = tmp_path / f"finished after {epochs}"
        train(*words(shards, url, *model, "--epochs", str(epochs)))
        done = run("resume", url, "--set", "train.epochs=3", "--json")
        assert figures(done.result) == undisturbed


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_shards_and_commits_of_any_size(loss: str, tmp_path: Path) -> None:
    """The same rows in one shard, in many, and with a commit after every 7 rows."""
    table = rows(200)
    more = [*everything(), "--rule", "auto", "--loss", loss]
    whole = train(write(tmp_path / "a.parquet", table), *more, "--checkpoint", "none")
    for place, low in enumerate(range(0, 200, 23)):
        piece = table.slice(low, 23)
        write(tmp_path / "cut" / f"{place:02d}.parquet", piece, row_group_size=5)
    sets = ["--set", "checkpoint.every_rows=7", "--checkpoint", tmp_path / "run"]
    for one in (train(tmp_path / "cut", *more, "--checkpoint", "none"),
                train(tmp_path / "cut", *more, *sets)):  # fmt: skip
        assert figures(one) == figures(whole)


@pytest.mark.parametrize("case", ["a huge target", "a sparse value beyond all others"])
def test_what_overflows_stops_the_run(case: str, tmp_path: Path) -> None:
    """Exit 6, and what is committed is finite."""
    table = rows(600)
    if case == "a huge target":
        loss, y = "square", np.where(np.arange(600) == 500, 1e200, table["n"].to_numpy())
        table = with_column(table, "y", y)
    else:
        loss = "logistic"
        values = [[1e150 if n == 500 else 1e-150] for n in range(600)]
        table = with_column(table, "v", values)
        table = with_column(table, "i", [[3]] * 600)
    write(tmp_path / "a.parquet", table, row_group_size=50)
    sets = ["--set", "checkpoint.every_rows=100", "--set", "checkpoint.every_seconds=0"]
    more = [*everything(), "--rule", "auto", "--loss", loss, *sets]
    done = run("train", tmp_path / "a.parquet", *more, "--checkpoint", tmp_path / "run")
    assert done.code == 6, done.err
    assert all(one["ok"] for one in commits(tmp_path / "run"))
