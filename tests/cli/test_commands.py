"""The command line as a person and a script meet it: every command of the Surface that exists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, both, everything, run

from streamomd.losses import all_losses
from streamomd.rules import all_rules

COMMANDS = [
    (),
    ("train",),
    ("resume",),
    ("evaluate",),
    ("predict",),
    ("inspect",),
    ("convert",),
    ("plan",),
    ("warm",),
    ("report",),
    ("backtest",),
    ("watch",),
    ("checkpoint",),
    ("checkpoint", "list"),
    ("checkpoint", "verify"),
    ("checkpoint", "shards"),
    ("checkpoint", "restore"),
    ("list",),
]
FIGURES = {"rows", "loss", "error", "rmse"}
RESULT = {
    "saved_loss",
    *FIGURES,
    *("epochs", "seconds", "rows_per_second", "compile_seconds"),
    *("skipped", "filtered", "checkpoint", "state_sha256"),
    *("auc", "auc_error", "average_precision", "average_precision_error", "mae", "r2"),
    *("confusion", "per_class", "calibration", "holdout", "stopped_early", "baseline"),
    *("calibration_error", "calibrated", "alerts", "sampled_out"),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command: tuple[str, ...]) -> None:
    """``--help`` and ``-h`` of every command exit 0, say what it does, and fit 100 columns."""
    done = run(*command, "--help")
    assert done.code == 0
    assert done.out.startswith("Usage: ")
    again = run(*command, "-h")
    assert done.out == again.out, again
    assert max(map(len, done.out.splitlines())) <= 100
    assert run(*command, "--nosuch").code == 2


def test_version() -> None:
    """``--version`` prints the version that is installed."""
    assert re.search(r"\d+\.\d+", run("--version").out)


def test_every_flag_of_the_surface_is_there() -> None:
    """``train --help`` names every flag that the Surface lists."""
    flags = "label weight numeric hashed rule loss eta epochs mode bits dtype checkpoint start"
    more = "restart scheduler storage-options checkpoint-storage-options log json set"
    text = run("train", "--help").out
    for flag in (flags + " " + more).split():
        assert f"--{flag} " in text or f"--{flag}\n" in text, flag


def test_json_of_the_figures(here: Path) -> None:
    """train, resume and evaluate print one JSON object with the documented keys, and no more."""
    done = run("train", "data", *everything(), "--checkpoint", "kept", "--epochs", "2", "--json")
    result = alone(done)
    assert set(result) == RESULT
    assert result["rows"] == 240
    assert [epoch["rows"] for epoch in result["epochs"]] == [120, 120]
    assert all(set(epoch) == FIGURES for epoch in result["epochs"])
    losses = [epoch["loss"] for epoch in result["epochs"]]
    assert result["loss"] == pytest.approx(sum(losses) / 2)
    assert 0 < result["error"] < 1
    assert result["rmse"] is None
    assert result["seconds"] > 0
    assert result["rows_per_second"] == pytest.approx(240 / result["seconds"])
    assert result["skipped"] == {}
    assert result["checkpoint"] == {"url": str(here / "kept"), "sequence": 1}
    assert re.fullmatch("[0-9a-f]{64}", result["state_sha256"])
    again = alone(run("resume", "kept", "--json"))
    assert {**again, **dict.fromkeys(("seconds", "rows_per_second", "compile_seconds"))} == {
        **result,
        **dict.fromkeys(("seconds", "rows_per_second", "compile_seconds")),
    }
    told = alone(run("evaluate", "kept", "data", "--json"))
    assert set(told) == RESULT | {"slices"}
    assert told["rows"] == 120


def test_json_of_regression(here: Path) -> None:
    """In regression ``error`` is null and ``rmse`` is the root of the mean square error."""
    flags = ["--label", "n", "--numeric", "k", "--loss", "square", "--checkpoint", "kept"]
    result = alone(run("train", "data", *flags, "--json"))
    assert result["error"] is None
    assert result["rmse"] > 0
    told = alone(run("evaluate", "kept", "data", "--json"))
    files = alone(run("predict", "kept", "data", "--to", "out", "--json"))["files"]
    mean = pa.concat_tables([pq.read_table(file) for file in files]).column("prediction")
    y = both(here / "data").column("n").to_numpy()
    assert told["rmse"] == pytest.approx(np.sqrt(np.mean((mean.to_numpy() - y) ** 2)))


def test_text_goes_to_stdout_and_progress_to_stderr(here: Path) -> None:
    """Results alone are on stdout; what is told on the way is on stderr."""
    done = run("train", "data", *everything(), "--checkpoint", "kept", "--verbose")
    assert done.code == 0
    assert done.out.startswith("120 rows, loss ")
    assert "saved to kept, commit 1" in done.out
    assert "rows/s" in done.err.splitlines()[-9]
    assert len(run("resume", "kept").out.splitlines()) == 3
    assert "since last" not in done.out
    for line in re.findall(r"^  (streamomd .*)$", done.out, re.M):
        assert run(*line.split()[1:]).code == 0, line


def test_lists() -> None:
    """``list X --json`` is {X: [{name, …}]} with every rule and loss there is; text is a table."""
    for kind in ("rules", "losses", "formats", "modes"):
        listed = alone(run("list", kind, "--json"))
        assert list(listed) == [kind]
        names = [one["name"] for one in listed[kind]]
        text = run("list", kind).out.splitlines()
        assert [line.split()[0] for line in text] == ["name", *names]
        if kind == "rules":
            assert set(names) == set(all_rules())
            assert all("exact" in one["modes"] for one in listed[kind])
        if kind == "losses":
            assert set(names) == set(all_losses())
    assert run("list", "colours").code == 2
