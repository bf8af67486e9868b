"""Classification or regression, where the job leaves it to the labels, and the constant's line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import alone, run, write

from streamomd.features.labels import targets
from streamomd.training.metrics.ranking import baseline_of

N = 600
LABELS: dict[str, tuple[Any, str]] = {
    "zero and one": (np.arange(N) % 2, "classify"),
    "minus one and one": (np.arange(N) % 2 * 2 - 1, "classify"),
    "booleans": (np.arange(N) % 2 == 0, "classify"),
    "strings": (pa.array(["a", "b", "c"] * 200), "classify"),
    "floats zero and one": ((np.arange(N) % 2).astype(float), "classify"),
    "50 whole numbers": (np.arange(N) % 50, "classify"),
    "51 whole numbers": (np.arange(N) % 51, "regress"),
    "51 whole floats": ((np.arange(N) % 51).astype(float), "regress"),
    "one fraction": (np.where(np.arange(N) == 7, 0.5, np.arange(N) % 2), "regress"),
    "fractions": (np.linspace(0.0, 1.0, N), "regress"),
}


def figures(name: str, tmp_path: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """``train`` of a label next to a number: its result and messages."""
    labels, _ = LABELS[name]
    path = write(tmp_path / "a.parquet", {"y": labels, "n": np.linspace(-1, 1, N)})
    done = run("train", path, "--label", "y", "--checkpoint", "none", "--json", *flags)
    return alone(done), done.err


COMPILES = "50 whole numbers"  # loops of 50 classes take seven seconds to compile


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == COMPILES else ()) for name in LABELS],
)
def test_the_labels_choose_the_task(name: str, tmp_path: Path) -> None:
    """A classifier has an error, a regression an RMSE; what is no plain pair is printed."""
    result, messages = figures(name, tmp_path)
    regression = LABELS[name][1] == "regress"
    assert (result["error"] is None) == regression
    assert ("task: regression" in messages) == regression


@pytest.mark.parametrize(
    ("flag", "regression"),
    [pytest.param("classify", False, marks=pytest.mark.slow), ("regress", True)],
)
def test_a_task_that_is_named_wins(flag: str, regression: bool, tmp_path: Path) -> None:
    """50 whole numbers may be either."""
    result, messages = figures("50 whole numbers", tmp_path, "--task", flag)
    assert (result["error"] is None) == regression
    assert "task: " not in messages


@pytest.mark.slow
def test_a_loss_that_is_named_wins(tmp_path: Path) -> None:
    """As before: a loss says what labels are."""
    assert figures("50 whole numbers", tmp_path, "--loss", "square")[0]["error"] is None
    assert figures("51 whole numbers", tmp_path, "--loss", "logistic")[0]["rmse"] is None


def test_a_rule_of_classes_refuses_a_regression(tmp_path: Path) -> None:
    """The perceptron has no other loss, and the message says what to pass."""
    path = write(tmp_path / "a.parquet", {"y": np.linspace(0, 1, 90), "n": np.arange(90.0)})
    done = run("train", path, "--label", "y", "--rule", "perceptron", "--checkpoint", "none")
    assert done.code == 2
    assert "--task classify" in done.err


def test_values_that_are_no_labels_choose_nothing() -> None:
    """Null, NaN and infinities are bad rows, not fractions."""
    assert targets([None, math.nan, math.inf, 1, 0]) == ""


def test_a_model_without_a_signal_says_so(tmp_path: Path) -> None:
    """Random labels: the last line compares with the constant; a signal has no such line."""
    random = np.random.default_rng(3)
    noise = {"y": random.integers(0, 2, N), "n": random.normal(size=N)}
    signal = {"y": noise["n"] + 0.1 * random.normal(size=N), "n": noise["n"]}
    for columns, worse in ((noise, True), (signal, False)):
        path = write(tmp_path / f"{worse}.parquet", columns)
        done = run("train", path, "--label", "y", "--checkpoint", "none")
        last = done.out.strip().splitlines()[-1]
        # By log loss, whose interval may include 0 on random labels.
        lines = ("no better than a constant: ", "not clearly better than a constant: ")
        assert last.startswith(lines) == worse, last


def test_the_constant_is_that_of_numpy() -> None:
    """Error of the most common class, and the standard deviation of the labels."""
    confusion = np.array([[50, 10, 3], [4, 20, 5], [0, 0, 9]])
    wrong = 1.0 - confusion.sum(axis=1).max() / confusion.sum()
    found = baseline_of({"confusion": confusion.tolist(), "error": 0.2, "rmse": None, "r2": None})
    assert found == {"error": pytest.approx(wrong)}
    y, p = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    rmse = float(np.sqrt(np.mean((y - p) ** 2)))
    r2 = 1.0 - np.sum((y - p) ** 2) / np.sum((y - y.mean()) ** 2)
    found = baseline_of({"confusion": None, "error": None, "rmse": rmse, "r2": r2})
    assert found == {"rmse": pytest.approx(float(np.std(y)))}
