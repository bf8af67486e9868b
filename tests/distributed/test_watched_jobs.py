"""Watching a submitted job: until its end, and from the cluster's events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clustered import ROWS, job
from distributed import Client, LocalCluster
from running import run

import streamomd
from streamomd.distributed import jobs

# Of a cluster: the long run's, and Dask's own warnings at its end are not ours.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def submitted(data: Path, url: Path, client: Client, epochs: int) -> str:
    """The id of a job that commits seldom."""
    table = job(data, checkpoint={"url": str(url), "every_rows": 40_000})
    return streamomd.submit({**table, "train": {"epochs": epochs}}, client=client)


def test_to_its_end(data: Path, workers: LocalCluster, client: Client, tmp_path: Path) -> None:
    """The reported rows grow, also between commits, and end with the metrics of the run."""
    name = submitted(data, tmp_path / "run", client, 40)
    done = run("watch", name, "--scheduler", workers.scheduler_address, "--every", "0.1", "--json")
    found: dict[str, Any] = done.result
    assert (found["state"], found["rows"]) == ("finished", 160 * ROWS)
    result = streamomd.load(str(tmp_path / "run")).result()
    assert found["loss"] == pytest.approx(result["loss"])
    assert found["error"] == pytest.approx(result["error"])
    told = [line for line in done.out.splitlines() if line.startswith("rows ")]
    rows = [int(line.split()[1].replace(",", "")) for line in told]
    assert rows == sorted(rows)
    assert f"of {160 * ROWS:,}" in told[0]


def test_one_that_is_cancelled(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """It ends with exit code 1 and says how to resume; with --once it only reports."""
    name = submitted(data, tmp_path / "run", client, 400)
    jobs.cancel(jobs.find(client, name))
    address = workers.scheduler_address
    done = run("watch", name, "--scheduler", address, "--every", "0.1")
    assert done.code == 1
    assert "streamomd resume" in done.err
    assert run("watch", name, "--scheduler", address, "--once", "--json").result["rows"] >= 0
    assert run("watch", "omd-job-00000000", "--scheduler", address).code == 2
