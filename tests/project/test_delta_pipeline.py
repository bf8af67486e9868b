"""The pipeline of Delta tables: what its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from running import run, train

pytest.importorskip("deltalake", reason="needs deltalake, which writes the table")
ROOT = Path(__file__).parents[2]


def test_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest version without deleted rows, an older one, and the glob that is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    command = [sys.executable, "pipelines/delta/make_table.py"]
    subprocess.run(command, check=True, capture_output=True)
    job = ("pipelines/delta/delta.toml", "--rule", "nag")
    assert train(*job)["rows"] == 44_211
    assert train(*job, "--version", 1, "--checkpoint", "runs/delta-1")["rows"] == 30_142
    assert run("evaluate", "runs/delta", "runs/bank-delta", "--json").result["rows"] == 44_211
    assert run("train", "runs/bank-delta/*.parquet", "--label", "y").code == 2
