"""The pipelines of tables and of rows with times: what their READMEs say."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from running import run, train

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")


def test_delta() -> None:
    """The newest version without deleted rows, an older one, and the glob that is refused."""
    pytest.importorskip("deltalake", reason="needs deltalake, which writes the table")
    command = [sys.executable, "pipelines/delta/make_table.py"]
    subprocess.run(command, check=True, capture_output=True)
    job = ("pipelines/delta/delta.toml", "--rule", "nag")
    assert train(*job)["rows"] == 44_211
    assert train(*job, "--version", 1, "--checkpoint", "runs/delta-1")["rows"] == 30_142
    assert run("evaluate", "runs/delta", "runs/bank-delta", "--json").result["rows"] == 44_211
    assert run("train", "runs/bank-delta/*.parquet", "--label", "y").code == 2


def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and an update have the bits of one run over the table as it is then."""
    pytest.importorskip("pyiceberg", reason="needs pyiceberg, which reads catalogs")
    pytest.importorskip("sqlalchemy", reason="needs a catalog in SQLite")
    from pyiceberg.utils.config import Config

    place = "PYICEBERG_CATALOG__EXAMPLE__"
    monkeypatch.setenv(f"{place}TYPE", "sql")
    monkeypatch.setenv(f"{place}URI", f"sqlite:///{tmp_path}/runs/iceberg.db")
    monkeypatch.setenv(f"{place}WAREHOUSE", f"file://{tmp_path}/runs/warehouse")
    # It reads the environment when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    job = ("pipelines/iceberg/iceberg.toml", "--rule", "nag")
    runpy.run_path("pipelines/iceberg/make_table.py", run_name="__main__")
    assert train(*job)["rows"] == 30_000
    runpy.run_path("pipelines/iceberg/make_table.py", run_name="__main__")
    updated = run("update", "runs/iceberg", "--json").result
    assert updated["rows"] == 45_211
    whole = train(*job, "--checkpoint", "runs/whole")
    assert updated["state_sha256"] == whole["state_sha256"]


@pytest.mark.slow
def test_by_time() -> None:
    """The loss of the week of the change is above those around it; the run reports an alert."""
    runpy.run_path("pipelines/by_time/make_rows.py", run_name="__main__")
    job = ("pipelines/by_time/clicks.toml", "--rule", "nag")
    weeks = run("backtest", *job, "--by", "week", "--json").result["periods"]
    losses = [one["loss"] for one in weeks]
    worst = losses.index(max(losses))
    assert weeks[worst]["period"] == "2026-02-09"  # day 40 is Tuesday, 10 February
    assert losses[worst] > 2.0 * losses[worst - 1]
    assert losses[-1] < 0.5 * losses[worst]
    found = train(*job, "--calibrate", "sigmoid", "--set", "alert.loss=true")
    assert [one["kind"] for one in found["alerts"]] == ["loss"]
    assert 40_000 < found["alerts"][0]["row"] < 41_000
    assert run("report", "runs/clicks", "--by", "day", "-o", "clicks.html").code == 0
    late = train(*job, "--delay", "2d", "--checkpoint", "runs/clicks-late")
    assert 1_500 < late["delay"]["waiting"] < 2_500
