"""The pipeline of a daily update: what its README says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from running import run, train

ROOT = Path(__file__).parents[2]


def test_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The bad day shows in its loss and is undone; then the state is that of one run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    runpy.run_path("pipelines/daily/daily.py", run_name="__main__")
    out = capfd.readouterr().out
    losses = [float(loss) for loss in re.findall(r"5,000 rows\): loss ([\d.]+)", out)]
    good, bad, repaired = losses
    assert bad > 1.4 * max(good, repaired)
    commands = re.findall(r"^\$ streamomd (\w+(?: (?:shards|list|restore))?)", out, re.M)
    assert commands == [
        *("train", "update", "update", "checkpoint shards", "checkpoint list"),
        *("checkpoint restore", "update", "checkpoint shards"),
    ]
    told = run("resume", "runs/daily", "--json").result
    whole = train("pipelines/daily/daily.toml", "--checkpoint", "runs/whole")
    assert told["state_sha256"] == whole["state_sha256"]
    assert told["rows"] == 15_000
