"""Owners on workers: the bits of one process, whatever is lost on the way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from clustered import long, sized
from distributed import Client, LocalCluster
from distributed.security import Security
from running import rows, with_column, write
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.errors import BadRowError, UsageError
from streamomd.distributed.sharded import PartitionOwners
from streamomd.distributed.worker_group import WorkerGroup

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def one(data: Path) -> dict[int, Any]:
    """The runs of one process, by B."""
    found: dict[int, Any] = {}

    class Alone(dict[int, Any]):
        def __missing__(self, rows: int) -> Any:
            found[rows] = streamomd.train(sharded_job(data, "none", rows), quiet=True)
            self[rows] = found[rows]
            return found[rows]

    return Alone()


@pytest.mark.slow
def test_more_owners_than_partitions_and_other_numbers_of_them(
    data: Path, client: Client, workers: LocalCluster, tmp_path: Path
) -> None:
    """P = 3 on 2 workers, started; P = 3 on 4, resumed: three own one each."""
    table = sharded_job(data, tmp_path / "kept", every_rows=7000)
    table["train"] |= {"parts": 3, "epochs": 1}
    streamomd.train(table, client=client, quiet=True)
    sized(workers, 4)
    url = str(tmp_path / "kept")
    done = streamomd.resume(url, client=client, sets={"train.epochs": 2}, quiet=True)
    sized(workers, 2)
    again = {**sharded_job(data, "none"), "train": {**table["train"], "epochs": 2}}
    assert done.state_sha256 == streamomd.train(again, quiet=True).state_sha256


@pytest.mark.parametrize("owners", [2, *long(1, 3, 4)])
@pytest.mark.parametrize("rows", [256, *long(1, 4096)])
def test_owners_leave_no_trace(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    owners: int,
    rows: int,
) -> None:
    """P = 16: the bits and figures of one process."""
    sized(workers, owners)
    url = tmp_path / "kept"
    there = streamomd.train(
        sharded_job(data, url, rows, every_rows=7000), client=client, quiet=True
    )
    assert there.state_sha256 == one[rows].state_sha256
    assert there.result()["epochs"] == one[rows].result()["epochs"]
    assert there.inspect(5) == one[rows].inspect(5)
    assert there.result()["per_class"] == one[rows].result()["per_class"] is not None
    assert there.metrics.curve.tobytes() == one[rows].metrics.curve.tobytes()
    kept = streamomd.load(str(url))
    assert kept.state_sha256 == one[rows].state_sha256
    assert kept.finished
    sized(workers, 2)


@pytest.mark.slow
def test_where_all_is_encrypted_so_are_the_numbers(data: Path, one: Any, tmp_path: Path) -> None:
    """A tls:// cluster has the bits of one process."""
    security = Security.temporary()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", security=security
        ) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        there = streamomd.train(sharded_job(data, tmp_path / "kept"), client=client)
    assert there.state_sha256 == one[256].state_sha256


def test_a_bad_row_is_the_error_that_is_reported(
    data: Path, client: Client, tmp_path: Path
) -> None:
    """Every owner meets it; the driver raises it as one process does."""
    bad = tmp_path / "data"
    shutil.copytree(data, bad)
    write(bad / "9.parquet", with_column(rows(50), "n", [float("nan")] * 50))
    with pytest.raises(BadRowError) as alone:
        streamomd.train(sharded_job(bad, "none"), quiet=True)
    with pytest.raises(BadRowError) as there:
        streamomd.train(sharded_job(bad, tmp_path / "kept"), client=client, quiet=True)
    assert str(there.value) == str(alone.value)


def test_tasks_are_as_many_as_owners(data: Path, client: Client, tmp_path: Path) -> None:
    """However many rounds: what the scheduler knows is a task an owner."""
    most = []

    def looked(dask_scheduler: Any) -> int:
        return len(dask_scheduler.tasks)

    look = PartitionOwners._report
    patch = pytest.MonkeyPatch()
    patch.setattr(
        PartitionOwners,
        "_report",
        lambda self: (most.append(client.run_on_scheduler(looked)), look(self))[1],
    )
    try:
        streamomd.train(sharded_job(data, tmp_path / "kept", 64), client=client, quiet=True)
    finally:
        patch.undo()
    assert set(most) <= {0, 1, 2}
    assert 2 in most


@pytest.mark.parametrize("mode", ["sharded", *long("averaged")])
def test_workers_without_a_part_are_reported_and_shards_are_sent_once(
    data: Path, client: Client, tmp_path: Path, capfd: Any, mode: str
) -> None:
    """One part and two workers; of the owners' setups only the leader's has the shards."""
    setups: list[Any] = []
    start = WorkerGroup._submit_tasks
    patch = pytest.MonkeyPatch()
    patch.setattr(
        WorkerGroup, "_submit_tasks", lambda self: (setups.extend(self.setups), start(self))[1]
    )
    table = sharded_job(data, tmp_path / "kept")
    table["train"] |= {"mode": mode, "parts": 1, "epochs": 1}
    try:
        streamomd.train(table, client=client)
        table["train"]["parts"], table["checkpoint"]["url"] = 2, str(tmp_path / "both")
        streamomd.train(table, client=client, quiet=True)
    finally:
        patch.undo()
    assert "1 of 2 workers are used; set train.parts" in capfd.readouterr().err
    assert [len(setup.shards) for setup in setups] == ([4, 4, 0] if mode == "sharded" else [])


def test_owners_need_a_checkpoint(data: Path, client: Client) -> None:
    """Said before a row is read."""
    with pytest.raises(UsageError, match="needs a checkpoint"):
        streamomd.train(sharded_job(data, "none"), client=client, quiet=True)
