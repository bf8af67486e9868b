"""``plan --scan-labels``: every label of every shard, counted."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import alone, run, write

LABELS: dict[str, list[Any]] = {
    "words": ["no", "yes", None, "yes", 'a "b"', "no"] * 3,
    "whole numbers": [3, 1, 2, 2, None, 1] * 3,
    "booleans": [True, False, None, True, True, False] * 3,
    "floats": [0.0, 1.0, float("nan"), 1.0, 0.0, 0.0] * 3,
}


@pytest.mark.parametrize("name", LABELS)
def test_counts_are_those_of_python(name: str, tmp_path: Path) -> None:
    """Over two shards; null and NaN are no values; the printed line is TOML of all classes."""
    values = LABELS[name]
    for place, part in enumerate((values[:7], values[7:])):
        write(tmp_path / f"{place}.parquet", {"y": pa.array(part), "n": np.arange(len(part))})
    done = alone(run("plan", tmp_path, "--label", "y", "--scan-labels", "--json"))
    known = [value for value in values if value is not None and value == value]
    assert {one["value"]: one["rows"] for one in done["by_value"]} == Counter(known)
    assert (done["rows"], done["missing"]) == (len(values), len(values) - len(known))
    assert tomllib.loads(done["classes"])["classes"] == sorted(set(known))
    assert done["rare"] == sorted(value for value, rows in Counter(known).items() if rows < 5)


def test_a_class_that_appears_later(tmp_path: Path) -> None:
    """The run names the command; its line makes the job work; rare classes are mentioned."""
    write(tmp_path / "0.parquet", {"y": ["a", "b"] * 20, "n": np.arange(40)})
    write(tmp_path / "1.parquet", {"y": ["a", "c"] * 2, "n": np.arange(4)})
    words = ("train", tmp_path, "--label", "y", "--checkpoint", "none")
    refused = run(*words)
    assert refused.code == 2
    assert "1.parquet, row 1" in refused.err
    assert "streamomd plan --scan-labels" in refused.err
    found = run("plan", tmp_path, "--label", "y", "--scan-labels")
    assert "classes of fewer than 5 rows: c" in found.out
    line = next(line for line in found.out.splitlines() if "classes = " in line)
    classes = json.dumps(tomllib.loads(line.strip())["classes"])
    assert run(*words, "--set", f"model.classes={classes}").code == 0


def test_targets_of_a_regression(tmp_path: Path) -> None:
    """Fractions have no line of classes, and the reason is printed."""
    write(tmp_path / "0.parquet", {"y": np.linspace(0, 1, 50), "n": np.arange(50)})
    found = run("plan", tmp_path, "--label", "y", "--scan-labels")
    assert "targets of a regression: it has fractions" in found.out
    assert "classes = " not in found.out


def test_rare_classes_of_the_first_shard(tmp_path: Path) -> None:
    """A run mentions them once, with their rows; targets and few rows have none."""
    labels = {"rare": ["a", "b"] * 100 + ["c", None, "d", "c"], "few": ["a"] * 10 + ["c"]}
    labels["targets"] = [*np.arange(200).tolist()]
    notes = {}
    for name, y in labels.items():
        write(tmp_path / f"{name}.parquet", {"y": pa.array(y), "n": np.arange(len(y))})
        words = ("--label", "y", "--rule", "nag", "--on-bad-row", "skip", "--checkpoint", "none")
        done = run("train", tmp_path / f"{name}.parquet", *words)
        assert done.code == 0, done.err
        notes[name] = [line for line in done.err.splitlines() if "fewer than" in line]
    assert notes["few"] == notes["targets"] == []
    (line,) = notes["rare"]
    assert "in the first shard: 'c' (2), 'd' (1); streamomd plan --scan-labels" in line
