"""The quickstart, as a newcomer types it: what it prints, and that what it says next works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
ROWS = 45_211


def typed(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line as printed, in a process of its own."""
    first, *words = shlex.split(line)
    assert first == "streamomd"
    command = [sys.executable, "-W", "error", "-m", "streamomd", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like the repository's root, so that runs and predictions stay out of it."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    return folder


@pytest.fixture(scope="module")
def quickstart(there: Path) -> subprocess.CompletedProcess[str]:
    """The quickstart, run once."""
    done = typed("streamomd train pipelines/quickstart.toml --verbose", there)
    assert done.returncode == 0, done.stderr
    return done


def lines_to_type(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^  (streamomd .*)$", done.stdout.partition("next:\n")[2], re.M)


def result_of(line: str, cwd: Path) -> dict[str, Any]:
    done = typed(f"{line} --json", cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_loss_is_told_on_the_way(quickstart: subprocess.CompletedProcess[str]) -> None:
    """Columns in use come first, then the progressive loss at doubling rows, falling to 0.25."""
    err = quickstart.stderr
    assert "negative 'no', positive 'yes'" in err
    assert "numeric, one coordinate each (7): age, balance" in err
    assert "hashed into 2^18 coordinates (9): job" in err
    table = [line.split() for line in err.splitlines() if re.match(r" +[\d,]+ +\d+%", line)]
    counts = [int(line[0].replace(",", "")) for line in table]
    assert counts == [*(2**power for power in range(16)), ROWS]
    assert float(table[0][2]) == pytest.approx(0.693147)
    assert 0.2 < float(table[-1][2]) < 0.3
    assert 0.08 < float(table[-1][4]) < 0.12


def test_what_it_kept_is_said(quickstart: subprocess.CompletedProcess[str], there: Path) -> None:
    """The result, the checkpoint and its hash stand on stdout, and the checkpoint holds them."""
    out = quickstart.stdout
    assert out.startswith("45,211 rows, loss 0.2")
    assert "saved to runs/quickstart, commit 1" in out
    sha = re.search("^state ([0-9a-f]{64})$", out, re.M)
    assert sha
    assert result_of("streamomd resume runs/quickstart", there)["state_sha256"] == sha[1]


@pytest.mark.slow
def test_what_to_type_next_works(quickstart: subprocess.CompletedProcess[str], there: Path) -> None:
    """inspect, predict and resume work as printed, word for word, on real shards."""
    lines = lines_to_type(quickstart)
    assert [line.split()[1] for line in lines] == ["inspect", "report", "predict", "resume"]
    assert lines[:3] == [
        "streamomd inspect runs/quickstart",
        "streamomd report runs/quickstart -o report.html",
        "streamomd predict runs/quickstart pipelines/data/bank -o predictions/",
    ]
    for line in lines:
        done = typed(line, there)
        assert done.returncode == 0, done.stderr
    files = sorted((there / "predictions").iterdir())
    assert len(files) == len(list((ROOT / "pipelines" / "data" / "bank").glob("*.parquet")))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) == ROWS
    assert set(pq.read_table(files[0]).column("prediction").unique().to_pylist()) == {"no", "yes"}
    told = result_of("streamomd resume runs/quickstart", there)
    assert [epoch["rows"] for epoch in told["epochs"]] == [ROWS]  # the second brings little
    assert told["stopped_early"]
