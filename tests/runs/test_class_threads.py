"""Runs whose classes are learned in threads: figures and errors are those of one thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import run, train, with_column, write
from sweeping import plain
from test_resume import cut

from streamomd.engine import walks
from streamomd.engine.divided import DividedState, Threads
from streamomd.training import training_threads
from streamomd.training.training_threads import LEAST_ROWS

CLASSES = 5
THREADS = (2, 9)
JOB = ["--label", "y", "--rule", "nag", "--loss", "logistic", "--bits", "4", "--weight", "w"]
OFTEN = ["--set", "checkpoint.every_rows=30", "--set", "checkpoint.every_seconds=0"]


@pytest.fixture(autouse=True)
def _always_in_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In plain Python, and batches of any size."""
    monkeypatch.setattr(walks, "LEAST_WORK", 0)
    with plain():
        yield


def rows(count: int, seed: int = 0) -> pa.Table:
    """Five classes, three columns far from 0, one with missing values, and a text."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(count, 4)) * [3.0, 0.01, 1.0, 1.0] + [50.0, -2.0, 0.0, 1.0]
    y = np.digitize((X[:, 0] - 50.0) / 3.0 + X[:, 2], [-1.5, -0.5, 0.5, 1.5])
    missing = pa.array(X[:, 3], mask=draw.random(count) < 0.2)
    return pa.table(
        {
            "y": pa.array([f"class {label}" for label in y]),
            "w": draw.choice([0.0, 0.5, 1.0, 2.0], count),
            **{name: X[:, at] for at, name in enumerate("abc")},
            "d": missing,
            "t": pa.array([f"t{code}" for code in draw.integers(0, 9, count)], pa.string()),
        }
    )


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards of 60 rows, in row groups of 20."""
    for place in range(2):
        write(tmp_path / "shards" / f"{place}.parquet", rows(60, place), row_group_size=20)
    return tmp_path / "shards"


def threads(count: int) -> list[str]:
    return ["--set", f"train.threads={count}"]


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """All that a run reports except times, places and memory."""
    return {
        key: value for key, value in result.items()
        if key not in ("seconds", "rows_per_second", "compile_seconds", "checkpoint", "peak_memory")
    }  # fmt: skip


VARIANTS = {
    "two epochs, commits": ["--epochs", "2", *OFTEN],
    "hold-out rows": ["--holdout", "7", "--epochs", "2", "--patience", "1"],
    "standardised, means": ["--set", "data.standardize=running", "--nulls", "mean"],
    "a matrix": [
        "--rule",
        "arow",
        "--loss",
        "hinge",
        "--numeric",
        "a,b,c",
        "--ignore",
        "d,t",
        "--nulls",
        "error",
    ],
    "looks ahead": ["--rule", "snag", "--set", "model.params.squash=true"],
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.sample(2)
def test_threads_change_no_figure(variant: str, shards: Path, tmp_path: Path) -> None:
    """State, loss, error, metrics per class, hold-out loss and epochs."""
    words = [shards, *JOB, "--nulls", "zero", *VARIANTS[variant]]
    if variant == "two epochs, commits":
        words += ["--checkpoint", tmp_path / "run", "--restart"]
    else:
        words += ["--checkpoint", "none"]
    expected = figures(train(*words, *threads(1)))
    for count in THREADS:
        assert figures(train(*words, *threads(count))) == expected


@pytest.mark.slow
def test_a_run_resumes_with_other_threads(shards: Path, tmp_path: Path) -> None:
    """From commits in either epoch, with fewer threads, more, or one; the default is obeyed."""
    url = tmp_path / "run"
    more = ["--nulls", "mean", "--epochs", "2", "--set", "checkpoint.keep=99", *OFTEN]
    words = [shards, *JOB, *more, "--checkpoint"]
    expected = figures(train(*words, tmp_path / "straight", *threads(1)))
    for before, steps in ((3, ((210, 2), (90, 1))), (1, ((150, 9), (30, 3)))):
        train(*words, url, "--restart", *threads(before))
        for rows_left, after in steps:
            cut(url, rows_left)
            resumed = run("resume", url, *threads(after), "--json").result
            assert figures(resumed) == expected


def test_a_checkpoint_does_not_choose_the_threads(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is recorded; resume uses the cores of its own machine."""
    url, used = tmp_path / "run", list[int]()
    words = [shards, *JOB, "--nulls", "zero", *OFTEN, "--set", "checkpoint.keep=99"]
    train(*words, "--checkpoint", url, *threads(3))
    commit = json.loads(min((url / "commits").iterdir()).read_text().splitlines()[0])
    assert commit["document"]["job"]["train"]["threads"] == 3
    cut(url, 30)
    monkeypatch.setattr(training_threads, "usable_cores", lambda: 2)
    monkeypatch.setattr(training_threads, "LEAST_ROWS", 0)
    made = Threads.__init__

    def noted(self: Threads, count: int, stage: str = "") -> None:
        used.append(count)
        made(self, count, stage)

    monkeypatch.setattr(Threads, "__init__", noted)
    assert run("resume", url, "--json").code == 0
    assert used == [2]


def test_few_rows_are_learned_by_one_thread(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the job names the threads; and so are two classes, and coupled ones."""
    assert 120 * CLASSES < LEAST_ROWS
    divided, of = list[int](), DividedState.of

    def noted(state: Any, pool: Threads) -> DividedState:
        divided.append(pool.count)
        return of(state, pool)

    monkeypatch.setattr(DividedState, "of", noted)
    monkeypatch.setattr(training_threads, "usable_cores", lambda: 4)
    words = [shards, *JOB, "--nulls", "zero", "--checkpoint", "none"]
    train(*words)
    train(*words, "--loss", "softmax", *threads(2))
    assert divided == []
    train(*words, *threads(2))
    assert divided == [2]
    monkeypatch.setattr(training_threads, "LEAST_ROWS", 120 * CLASSES)
    train(*words)
    assert divided == [2, 4]
    monkeypatch.setattr(training_threads, "available_memory", lambda: 1.0)
    train(*words)
    assert divided == [2, 4]


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_bad_rows_are_those_of_one_thread(on_bad_row: str, shards: Path) -> None:
    """The same error, or the same figures with the rows skipped."""
    table = rows(60, 1)
    values = table["a"].to_pylist()
    values[37], values[51] = float("nan"), 1e300
    write(shards / "1.parquet", with_column(table, "a", values), row_group_size=20)
    words = [shards, *JOB, "--nulls", "zero", "--on-bad-row", on_bad_row, "--checkpoint", "none"]
    found = [run("train", *words, *threads(count), "--json") for count in (1, *THREADS)]
    assert {one.code for one in found} == {2 if on_bad_row == "error" else 0}
    if on_bad_row == "skip":
        assert found[0].result["skipped"] != {}
        assert all(figures(one.result) == figures(found[0].result) for one in found)
    else:
        assert "row 37" in found[0].err
        assert {one.err for one in found} == {found[0].err}


def test_a_model_diverges_as_on_one_thread(shards: Path, tmp_path: Path) -> None:
    """The error names the same rows and the same number, and the same commit."""
    words = [shards, *JOB, "--nulls", "zero", "--rule", "ogd", "--loss", "square", "--task"]
    words += ["classify", "--eta", "1e160", *OFTEN, "--checkpoint"]
    with np.errstate(over="ignore", invalid="ignore"):  # which only plain Python warns of
        found = [
            run("train", *words, tmp_path / f"run {count}", *threads(count))
            for count in (1, *THREADS)
        ]
    assert [one.code for one in found] == [6] * len(found)
    texts = [
        one.err.replace(f"run {count}", "run")
        for one, count in zip(found, (1, *THREADS), strict=True)
    ]
    assert "diverged" in texts[0]
    assert set(texts) == {texts[0]}


def test_a_sweep_of_few_learners_divides_their_classes(shards: Path, tmp_path: Path) -> None:
    """Two learners of five classes in six threads, three for each; halving leaves one for all."""
    words = ["sweep", shards, *JOB, "--nulls", "zero", "--grid", "eta=0.1,1", "--halve", "50"]
    words += [*OFTEN, "--checkpoint"]
    found = {}
    for count in (1, 2, 6):
        url = tmp_path / f"sweep {count}"
        found[count] = run(*words, url, *threads(count), "--json").result["learners"]
    states = {
        count: [(one["state_sha256"], one["loss"], one["rows"]) for one in learners]
        for count, learners in found.items()
    }
    assert states[2] == states[1]
    assert states[6] == states[1]
