"""Two runs in sharded mode on one cluster, at the same time: each with its own bits."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_faults import fresh
from clustered import long
from distributed import Client, LocalCluster
from elsewhere import newest
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.errors import ConcurrentWriterError
from streamomd.distributed import worker_group
from streamomd.distributed.sharded import PartitionOwners

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def second(workers: LocalCluster) -> Any:
    """Another client of the same cluster, as another driver has."""
    with Client(workers, set_as_default=False) as made:
        yield made


def owners(workers: LocalCluster) -> int:
    """How many tasks own partitions now."""
    held = [task for one in workers.scheduler.workers.values() for task in one.long_running]
    return sum("omd-owner" in str(task.key) for task in held)


@pytest.mark.parametrize("how", long("undisturbed", "kill"))
def test_two_groups_on_two_workers_of_one_thread(
    data: Path,
    client: Client,
    second: Client,
    workers: LocalCluster,
    tmp_path: Path,
    how: str,
) -> None:
    """Their owners sit on the same workers, and learn side by side; a worker that dies takes an
    owner of each."""
    jobs = [sharded_job(data, tmp_path / str(rows), rows, every_rows=2_000) for rows in (256, 512)]
    alone = [{**one, "checkpoint": {"url": "none"}} for one in jobs]
    expected = [streamomd.train(one, quiet=True).state_sha256 for one in alone]
    most, look = [0], PartitionOwners._report

    def counted(self: Any) -> Any:
        most.append(owners(workers))
        return look(self)

    def strike() -> None:
        while min(newest(tmp_path / name) for name in ("256", "512")) < 2:
            time.sleep(0.001)
        os.kill(sorted(pids.values())[0], signal.SIGKILL)

    pids = client.run(os.getpid)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as pool:
        patch.setattr(PartitionOwners, "_report", counted)
        running = [
            pool.submit(streamomd.train, one, client=given, quiet=True)
            for one, given in zip(jobs, (client, second), strict=True)
        ]
        struck = pool.submit(strike) if how == "kill" else None
        found = [one.result(timeout=120).state_sha256 for one in running]
        if struck:
            struck.result(timeout=120)
    assert found == expected
    assert max(most) == 4
    if struck:
        fresh(workers)


@pytest.mark.slow
def test_a_group_whose_run_is_taken_over_leaves(
    data: Path, client: Client, second: Client, workers: LocalCluster, tmp_path: Path
) -> None:
    """``resume`` of a run that another driver is at: that one's next commit is refused, by name."""
    url = tmp_path / "run"
    table = sharded_job(data, url, 16, every_rows=2_000, keep=99)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(streamomd.train, table, client=client, quiet=True)
        while newest(url) < 3:
            time.sleep(0.001)
        found = streamomd.resume(str(url), client=second, quiet=True)
        with pytest.raises(ConcurrentWriterError, match="took over"):
            first.result(timeout=60)
    alone = streamomd.train(sharded_job(data, "none", 16), quiet=True)
    assert found.state_sha256 == alone.state_sha256
    deadline = time.monotonic() + 60
    while owners(workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_workers_that_are_busy_are_waited_for_and_named(
    data: Path,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Threads held by other clients' tasks: the group starts when one is free."""
    monkeypatch.setattr(worker_group, "START_SECONDS", 2.0)
    busy = [client.submit(time.sleep, 5.0, pure=False) for _ in range(2)]
    there = streamomd.train(sharded_job(data, tmp_path / "run"), client=client)
    assert there.state_sha256 == streamomd.train(sharded_job(data, "none"), quiet=True).state_sha256
    assert "not started in 2 s, busy with other tasks?" in capfd.readouterr().err
    assert all(future.status == "finished" for future in busy)
