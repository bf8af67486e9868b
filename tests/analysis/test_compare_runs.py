"""streamomd compare: a table of runs, what differs, and which are comparable."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import everything, run, shards, train

from streamomd.analysis.history import compare_runs


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs in ``runs``: a and b differ in eta, copy learned a copy of the rows, other half of them,
    held held rows out."""
    place = tmp_path_factory.mktemp("compare")
    for name in ("data", "moved"):
        shards(place / name)
    shared = [*everything(), "--rule", "nag", "--loss", "logistic"]
    runs = {
        "a": ["data"], "b": ["data", "--eta", 0.1], "copy": ["moved"],
        "other": ["data/a.parquet"], "held": ["data", "--set", "data.holdout=4", "--epochs", 2],
        "two": ["data", "--epochs", 2],
    }  # fmt: skip
    for name, (data, *flags) in runs.items():
        train(place / str(data), *shared, *flags, "--checkpoint", place / "runs" / name)
    return place


@pytest.fixture(autouse=True)
def inside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)


def test_keys_that_differ_are_listed(here: Path) -> None:
    """No others, and no key of the rule's own defaults."""
    found = run("compare", "runs/a", "runs/b", "--json").result
    assert found["keys"] == {"model.params.eta": [0.5, 0.1]}
    assert [one["comparable"] for one in found["runs"]] == [True, True]
    assert all(one["seconds"] > 0.0 for one in found["runs"])
    text = run("compare", "runs/a", "runs/copy").out
    assert "no other key of the jobs differs" in text


def test_metrics_are_those_of_the_runs(here: Path) -> None:
    """Of new rows: those of the first epoch, which two epochs do not change."""
    one, two, held = compare_runs(["runs/a", "runs/two", "runs/held"])["runs"]
    result = run("resume", "runs/a", "--json").result
    assert [one[key] for key in ("loss", "error", "auc")] == [
        result[key] for key in ("loss", "error", "auc")
    ]
    assert (two["loss"], two["error"], two["auc"]) == (one["loss"], one["error"], None)
    expected = run("resume", "runs/held", "--json").result["holdout"]
    assert held["holdout"] == {
        key: expected[key] for key in ("rows", "loss", "error", "rmse", "auc", "r2")
    }
    assert one["holdout"] is None


def test_other_rows_are_not_comparable(here: Path) -> None:
    """Contents count, not URLs; hold-out rows are other rows."""
    done = run("compare", "runs/a", "runs/copy", "runs/other", "runs/held", "runs/two", "--json")
    assert [one["comparable"] for one in done.result["runs"]] == [True, True, False, False, True]
    text = run("compare", "runs/a", "runs/copy", "runs/other", "runs/held").out
    assert "not comparable with run 1, other rows were learned: 3, 4" in text
    assert [line.split()[-1] for line in text.splitlines()[1:5]] == ["yes", "yes", "NO", "NO"]


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["runs/a"], 2, "two or more"),
        (["runs/a", "runs/a"], 2, "two or more"),
        (["runs/a", "./runs/a"], 2, "two or more"),
        (["runs/a", "runs/x", "runs/y"], 4, "runs/x"),
        ([], 2, "RUN"),
    ],
)
def test_what_cannot_be_compared(words: list[str], code: int, message: str, here: Path) -> None:
    """All missing runs are named in one error."""
    done = run("compare", *words)
    assert (done.code, message in done.err) == (code, True), done.err
    assert code != 4 or "runs/y" in done.err
