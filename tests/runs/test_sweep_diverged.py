"""A sweep in which learners diverge: they are dropped and reported, the others learn on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diverging import commits
from running import run
from sweeping import alone, bits, job, plain, shards

import streamomd
from streamomd.core.errors import DivergedError

# Plain Python says of scalars that overflow what compiled loops do not.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in scalar")
GRID = {"rule": ["adagrad"], "loss": ["square"], "eta": [0.1, 1e308, 0.02, 1e200]}
EVERY = {"every_rows": 16}


def told(folder: str, url: str = "none") -> dict[str, Any]:
    return job(folder, url, checkpoint=EVERY, model={"task": "regress"})


def test_the_others_have_the_bits_of_one_trained_alone(tmp_path: Path) -> None:
    """Two of four learners diverge: they are dropped by name, the others are bit-identical to
    learners trained alone, and every commit of every learner is finite."""
    data, url = shards(tmp_path / "data", 40, 30), tmp_path / "run"
    with plain():
        found = streamomd.sweep(told(data, str(url)), grid=GRID, quiet=True)
        for learner in (found.learners[0], found.learners[2]):
            assert bits(learner.model) == bits(alone(told(data), learner.chosen))
            assert not learner.diverged
    for learner in (found.learners[1], found.learners[3]):
        assert 0 < learner.dropped < 70
        assert "0.parquet" in learner.diverged
        with pytest.raises(DivergedError):
            learner.model.predict(data, str(tmp_path / "out"))
    for at in range(4):
        assert all(one["ok"] for one in commits(url / "learners" / f"{at:03d}"))
    assert found.best in (found[0], found[2])
    result = found.result()
    assert [bool(one["diverged"]) for one in result["learners"]] == [False, True, False, True]
    assert result["learners"][1]["loss"] is None
    assert run("predict", url / "best", data, "--to", tmp_path / "out").code == 0


def test_a_resumed_sweep_still_reports_them(tmp_path: Path) -> None:
    """What diverged stays dropped and reported; a further epoch goes on with the others."""
    data, url = shards(tmp_path / "data", 40, 30), str(tmp_path / "run")
    with plain():
        first = streamomd.sweep(told(data, url), grid=GRID, quiet=True).result()
        again = streamomd.resume_sweep(url, quiet=True).result()
        assert [one["diverged"] for one in again["learners"]] == [
            one["diverged"] for one in first["learners"]
        ]
        assert [one["rows"] for one in again["learners"]] == [
            one["rows"] for one in first["learners"]
        ]
        more = streamomd.resume_sweep(url, sets={"train.epochs": 2}, quiet=True)
    assert more.rows == 140
    assert [bool(one.diverged) for one in more.learners] == [False, True, False, True]


def test_a_slot_is_found_when_a_learner_is_committed(tmp_path: Path) -> None:
    """A slot that no figure shows yet: its learner is dropped at the commit, and the last commit of
    that learner is finite."""
    data, url = shards(tmp_path / "data", 40, 30), tmp_path / "run"
    from streamomd.runs.sweep import sweep_checkpoint

    before = sweep_checkpoint.SweepCheckpoint.commit

    def commit(self: Any, sides: Any) -> None:
        if self._sweep.rows >= 32 and not any(one.dropped for one in self._sweep.learners):
            sides[0].state.table[-1, 0] = np.inf  # of the first learner
        before(self, sides)

    with plain(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_checkpoint.SweepCheckpoint, "commit", commit)
        patch.setattr("streamomd.runs.sweep.batched.LEAST", 10**9)
        grid = {"rule": ["ogd"], "loss": ["square"], "eta": [0.1, 0.02]}
        found = streamomd.sweep(told(data, str(url)), grid=grid, quiet=True)
        assert bits(found[1]) == bits(alone(told(data), found.learners[1].chosen))
    assert "slot" in found.learners[0].diverged
    for at in range(2):
        assert all(one["ok"] for one in commits(url / "learners" / f"{at:03d}"))


def test_a_sweep_whose_learners_all_diverge(tmp_path: Path) -> None:
    """Exit 6, all of them reported."""
    data, url = shards(tmp_path / "data", 40, 30), tmp_path / "run"
    grid = {**GRID, "eta": [1e308, 1e307]}
    with plain(), pytest.raises(DivergedError, match="every learner"):
        streamomd.sweep(told(data, str(url)), grid=grid, quiet=True)


def test_the_command_reports_them(tmp_path: Path) -> None:
    """In the table and in the JSON."""
    data = shards(tmp_path / "data", 40, 30)
    words = [
        "sweep",
        data,
        "--label",
        "y",
        "--numeric",
        "a,b,c,d",
        "--hashed",
        "t",
        "--weight",
        "w",
    ]
    words += ["--bits", "3", "--loss", "square", "--grid", "eta=0.1,1e308", "--rule", "ogd"]
    with plain():
        done = run(*words, "--checkpoint", "none")
        assert done.code == 0, done.err
        assert "diverged" in done.out
        assert "is dropped" in done.err
        found = json.loads(run(*words, "--checkpoint", "none", "--json").out.splitlines()[-1])
    assert [bool(one["diverged"]) for one in found["learners"]] == [False, True]
