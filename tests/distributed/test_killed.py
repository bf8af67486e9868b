"""Runs of every mode, killed repeatedly, end bit-identical to an undisturbed run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from clustered import job, spread
from distributed import LocalCluster
from killed import counted, killed
from sharded_jobs import sharded_job

import streamomd

pytestmark = pytest.mark.filterwarnings("ignore")

RUNS = 200


def jobs(data: Path, url: str) -> dict[str, dict[str, Any]]:
    """One of each mode; commits every few hundredths of a second."""
    exact = job(data, checkpoint={"url": url, "every_rows": 700, "every_seconds": 0})
    return {
        "exact": exact,
        "averaged": spread(data, Path(url), {"rounds_per_epoch": 4}),
        "sharded": sharded_job(data, url, 64, every_rows=2000, every_seconds=0),
    }


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("runs", [3, RUNS])
def test_runs_that_are_killed_end_with_the_same_bits(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: int
) -> None:
    """kill -9 of the learner or driver, 1 to 5 times a run; the workers stay, as on a cluster."""
    with LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=None) as workers:
        address, modes = workers.scheduler_address, list(jobs(data, ""))

        def undisturbed(mode: str) -> str:
            table = jobs(data, str(tmp_path / f"undisturbed-{mode}"))[mode]
            sets = {"cluster.scheduler": address} if mode != "exact" else {}
            return streamomd.train(table, sets=sets, quiet=True).state_sha256

        expected = {mode: undisturbed(mode) for mode in modes}

        def one(seed: int) -> Any:
            mode = modes[seed % len(modes)]
            table = jobs(data, str(tmp_path / str(seed)))[mode]
            return killed(table, address if mode != "exact" else "", seed)

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(one, range(runs)))
    with capsys.disabled():
        print("\n" + "\n".join(counted(outcomes, expected)))
    assert all(one.state_sha256 == expected[one.mode] for one in outcomes)
    assert sum(one.kills for one in outcomes) >= runs
