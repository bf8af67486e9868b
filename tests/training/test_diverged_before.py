"""Checkpoints of versions that committed what was not finite: what every command makes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import DictStore, begin, numbers
from diverging import GOLDEN, golden
from running import run

import streamomd
from streamomd.checkpoint import list_commits, open_store, read_commit
from streamomd.core.errors import DivergedError, NoCommitError

SHARD = GOLDEN / "_diverged" / "a.parquet"
FINITE, NOT = [0, 1, 2], [3, 4, 5]


def test_verify_reports_what_is_not_finite(tmp_path: Path) -> None:
    """checkpoint verify exits 6 and names the commits and a number of each; damage is exit 4."""
    url = golden(tmp_path / "run")
    done = run("checkpoint", "verify", url)
    assert done.code == 6
    assert done.err.count("it is not finite: slot") == len(NOT)
    found = list_commits(open_store(str(url)), deep=True)
    assert [one["sequence"] for one in found if one["ok"]] == FINITE
    damaged = url / "data"
    path = next(damaged.glob("000000000000-*/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert run("checkpoint", "verify", url).code == 4


def test_looking_is_possible(tmp_path: Path) -> None:
    """inspect, report, checkpoint list and load take the newest commit, finite or not."""
    url = golden(tmp_path / "run")
    assert "nan" in run("inspect", url).out
    assert json.loads(run("inspect", url, "--json").out.splitlines()[-1])["rows"] == 120
    assert run("report", url, "-o", tmp_path / "report.html").code == 0
    assert run("checkpoint", "list", url).code == 0
    assert streamomd.load(str(url)).state.problem()


def test_predictions_are_refused(tmp_path: Path) -> None:
    """predict, evaluate and export exit 6 and write nothing, unless --allow-non-finite is given."""
    url, out = golden(tmp_path / "run"), tmp_path / "out"
    asked = [
        ("predict", url, SHARD, "--to", out),
        ("evaluate", url, SHARD),
        ("export", url, "--as", "parquet", "--to", tmp_path / "w.parquet"),
        ("export", url, "--as", "vw", "--to", tmp_path / "w.vw"),
    ]
    for words in asked:
        done = run(*words)
        assert done.code == 6, done.err
        assert "--allow-non-finite" in done.err
    assert not out.exists()
    assert not list(tmp_path.glob("w.*"))
    for words in asked:
        assert run(*words, "--allow-non-finite").code == 0


def test_resume_goes_back_to_the_last_finite_commit(tmp_path: Path) -> None:
    """Unchanged it exits 6 and names that commit; with something changed it continues from there,
    and then the commits that are not finite are older than those that are made."""
    url = golden(tmp_path / "run")
    before = sorted(path.name for path in (url / "commits").iterdir())
    done = run("resume", url)
    assert done.code == 6
    assert "The last finite commit is 2, after 60 rows" in done.err
    assert sorted(path.name for path in (url / "commits").iterdir()) == before
    done = run("resume", url, "--on-bad-row", "skip")
    assert done.code == 6
    assert "resuming from commit 2" in done.err
    assert "after 60 rows" in done.err
    model = streamomd.load(str(url))
    assert (model.metrics.total_rows, model.state.problem()) == (60, "")
    assert model.sequence > 5
    assert model.state_sha256 == streamomd.load(str(golden(tmp_path / "b")), at=2).state_sha256


def test_a_run_without_a_finite_commit(tmp_path: Path) -> None:
    """Where retention left none that is finite, resume exits 6 and says to start over."""
    url = golden(tmp_path / "run")
    for sequence in FINITE:
        commit = read_commit(open_store(str(url)), sequence)
        shutil.rmtree(url / "data" / commit.directory)
        (url / "commits" / f"{sequence:012d}.json").unlink()
    done = run("resume", url)
    assert done.code == 6
    assert "no finite commit is left" in done.err
    with pytest.raises(DivergedError):
        streamomd.resume(str(url), quiet=True)
    shutil.rmtree(url / "data")
    with pytest.raises(NoCommitError):
        streamomd.resume(str(url), quiet=True)


def test_start_takes_the_last_finite_commit(tmp_path: Path) -> None:
    """train --start begins from it, also with another eta, and says which it is."""
    url = golden(tmp_path / "run")
    words = ["--label", "y", "--rule", "adagrad", "--loss", "square", "--eta", "0.1"]
    done = run("train", SHARD, *words, "--start", url, "--checkpoint", "none")
    assert done.code == 6  # the row is still there
    assert "starting from 2" in done.err
    assert "after rows 64 to" in done.err


@pytest.mark.parametrize("keep", [1, 2])
def test_retention_keeps_the_last_finite_commit(keep: int) -> None:
    """However many commits follow that do not say that they are finite; one more that does frees
    it."""
    store = DictStore()
    writer = begin(store, keep=keep)
    writer.commit({"rows": 1, "finite": True}, numbers(1))
    for at in range(2, 7):
        writer.commit({"rows": at}, numbers(at))
    found = list_commits(store, deep=True)
    assert [one["rows"] for one in found if one["ok"]] == [1, *range(7 - keep, 7)]
    writer.commit({"rows": 7, "finite": True}, numbers(7))
    assert 1 not in [one["rows"] for one in list_commits(store, deep=True)]


def test_the_numbers_are_those_of_the_earlier_version(tmp_path: Path) -> None:
    """The golden run is what it was: finite to row 60, NaN from the extreme value in row 70 on."""
    url = str(golden(tmp_path / "run"))
    assert np.isfinite(streamomd.load(url, at=2).state.cells).all()
    assert np.isnan(streamomd.load(url, at=3).state.cells).all()
