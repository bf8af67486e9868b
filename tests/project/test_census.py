"""The pipeline of Census-Income: its report shows the sampling weight."""

from __future__ import annotations

import gzip
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from paging import parsed, section
from running import run, train

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / ".." / "shared" / "data" / "census-income-kdd" / "census-income.data.gz"
MOST_BYTES = 3_000_000


def made(source: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of the file, as the README makes them, in a directory like the repository's root."""
    monkeypatch.chdir(there)
    (there / "pipelines").symlink_to(ROOT / "pipelines")
    command = [sys.executable, "pipelines/census/convert.py", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check(there: Path, rows: int) -> None:
    """The report of the job: finished, light, and the trap in it."""
    found = run("report", "runs/census", "runs/census-rows", "-o", "census.html", "--json").result
    assert found["bytes"] < MOST_BYTES
    assert ("instance weight", "named like a weight of rows") in [
        (one["name"], one["title"]) for one in found["look"]
    ]
    page = parsed(there / "census.html")
    assert f"Finished: {rows:,} rows" in page.text
    assert "instance weight" in section(page, "Things to look at").text
    # From the checkpoint alone, too.
    alone = run("report", "runs/census", "-o", "alone.html", "--json").result
    assert "instance weight" in [one["name"] for one in alone["look"]]


@pytest.mark.slow
def test_some_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 3,000 people."""
    if not SOURCE.exists():
        pytest.skip(f"{SOURCE} is not there")
    with gzip.open(SOURCE, "rb") as whole, gzip.open(tmp_path / "some.gz", "wb") as some:
        some.writelines(itertools.islice(whole, 3000))
    made(tmp_path / "some.gz", tmp_path, monkeypatch)
    train("pipelines/census/census.toml")
    check(tmp_path, 3000)


@pytest.mark.slow
def test_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 199,523."""
    if not SOURCE.exists():
        pytest.skip(f"{SOURCE} is not there")
    made(SOURCE, tmp_path, monkeypatch)
    train("pipelines/census/census.toml")
    check(tmp_path, 199_523)
