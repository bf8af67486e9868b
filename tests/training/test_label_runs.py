"""Rows that are sorted by their label: one warning at the end of a run, and none of other rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from estimating import uncompiled
from running import run, with_column, write

from streamomd.training.row_checks import LEAST, LabelRuns

ROWS = 1200
WARNING = "labels come in long runs"


def table(y: np.ndarray) -> pa.Table:
    x = np.random.default_rng(1).normal(size=len(y))
    return pa.table({"y": y, "x": x + y})


def warned(folder: Path, rows: pa.Table, *more: str) -> str:
    """What train prints to stderr of rows in two shards."""
    half = len(rows) // 2
    for name, low in (("a", 0), ("b", half)):
        write(folder / "data" / f"{name}.parquet", rows.slice(low, half), row_group_size=100)
    flags = ["--label", "y", "--numeric", "x", "--rule", "nag", "--checkpoint", "none"]
    done = run("train", folder / "data", *flags, *more, "--json")
    assert done.code == 0, done.err
    return done.err


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


def test_sorted_labels_are_reported(tmp_path: Path) -> None:
    """Two classes and three, by what their number of changes is and would be."""
    two = np.repeat([0, 1], ROWS // 2)
    text = warned(tmp_path / "two", table(two))
    assert text.count(WARNING) == 1
    assert "(1 change in 1,200 rows; shuffled rows have about 600)" in text
    assert "--epochs 3" in text
    three = np.repeat([0, 1, 2, 0], ROWS // 4)
    classes = ["--loss", "softmax", "--set", "model.classes=[0, 1, 2]"]
    text = warned(tmp_path / "three", table(three), *classes)
    assert "(3 changes in 1,200 rows; shuffled rows have about 750)" in text
    words = with_column(table(two), "y", np.array(["no", "yes"])[two])
    assert WARNING in warned(tmp_path / "words", words)


def test_other_rows_are_not(tmp_path: Path) -> None:
    """Shuffled rows, rows of one class in a hundred, three passes, few rows, and numbers."""
    two = np.repeat([0, 1], ROWS // 2)
    shuffled = np.random.default_rng(2).permutation(two)
    rare = (np.arange(ROWS) % 100 == 50).astype(int)
    assert WARNING not in warned(tmp_path / "shuffled", table(shuffled))
    assert WARNING not in warned(tmp_path / "rare", table(rare))
    assert WARNING not in warned(tmp_path / "passes", table(two), "--epochs", "3")
    assert WARNING not in warned(tmp_path / "few", table(np.repeat([0, 1], LEAST // 2 - 5)))
    numbers = np.sort(np.random.default_rng(3).normal(size=ROWS))
    assert WARNING not in warned(tmp_path / "numbers", table(numbers), "--loss", "square")


def test_counts_do_not_depend_on_batches() -> None:
    """Changes between two batches count, and empty batches do not matter."""
    y = np.random.default_rng(4).integers(0, 3, 500).astype(float)
    whole, cut = LabelRuns(), LabelRuns()
    whole.add(y)
    for low, high in ((0, 1), (1, 1), (1, 77), (77, 78), (78, 500)):
        cut.add(y[low:high])
    assert vars(cut) == vars(whole)
    assert whole.changes == np.count_nonzero(np.diff(y))
    shares = np.bincount(y.astype(int)) / 500
    assert whole.expected == pytest.approx(500 * (1 - (shares**2).sum()))
