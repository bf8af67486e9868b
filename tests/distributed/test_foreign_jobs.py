"""What a task on a worker obeys: the settings that were sent with it, not those of the manifest."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caching import entries, settled
from clustered import ROWS, job, sized
from distributed import Client, LocalCluster
from rogue import Rogue, forge, rogue
from running import run
from test_jobs import until

import streamomd
from streamomd.config.allow_list import VARIABLE
from streamomd.distributed import jobs
from streamomd.runs import session

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Rogue]:
    """A rogue scheduler."""
    with rogue(tmp_path / "trace") as found:
        yield found


def described(data: Path, folder: Path, epochs: int = 2, **tables: Any) -> dict[str, Any]:
    """A job with a cache, and commits between."""
    table = job(data, checkpoint={"url": str(folder / "run"), "every_rows": 4_000}, **tables)
    table["data"] |= {"cache": str(folder / "cache")}
    return {**table, "train": {"epochs": epochs}}


def spoil(folder: Path, scheduler: Rogue) -> None:
    """Give every manifest another cluster, another cache and other shards."""

    def change(document: dict[str, Any]) -> None:
        job = document["job"]
        job["cluster"].update(scheduler=scheduler.address, decode="remote", learner="client")
        job["data"].update(cache=str(folder / "evil"), shards=["http://evil/x"])

    forge(folder / "run", change)


@pytest.mark.parametrize("how", ["submit", "train"])
def test_a_task_obeys_what_was_sent(
    data: Path, alone: Any, client: Client, tmp_path: Path, scheduler: Rogue, how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The manifest is changed between the first commit and the task: cluster, cache and shards.
    The task connects nowhere else, fills the cache that was sent, and learns the shards
    that the person named, whatever URLs are allowed for manifests."""
    settled(data)
    begin = session.begin_checkpoint

    def begun(*given: Any, **more: Any) -> Any:
        keeper = begin(*given, **more)
        spoil(tmp_path, scheduler)
        return keeper

    monkeypatch.setattr(session, "begin_checkpoint", begun)
    monkeypatch.setenv(VARIABLE, "s3://bucket")
    away_ = {"cluster": {"decode": "local", "learner": "worker"}}
    if how == "submit":
        name = streamomd.submit(described(data, tmp_path, **away_), client=client)
        until(jobs.find(client, name), lambda one: one["state"] not in ("waiting", "running"))
    else:
        model = streamomd.train(described(data, tmp_path, **away_), client=client, quiet=True)
        assert model.spec.data.cache == str(tmp_path / "cache")
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == alone.state_sha256
    assert entries(tmp_path / "cache")
    assert not (tmp_path / "evil").exists()
    assert not scheduler.connections


@pytest.mark.slow
def test_a_task_that_restarts_elsewhere_obeys_what_was_sent(
    data: Path, client: Client, workers: LocalCluster, tmp_path: Path, scheduler: Rogue
) -> None:
    """Its worker is killed; the next one has the same settings, though the commits that it
    resumes from name others."""
    settled(data)
    pids = client.run(os.getpid)
    local = {"cluster": {"decode": "local"}}
    name = streamomd.submit(described(data, tmp_path, 40, **local), client=client)
    job_ = jobs.find(client, name)
    until(job_, lambda one: one["rows"] > 2 * ROWS)
    holds = [
        address
        for address, worker in workers.scheduler.workers.items()
        if any(str(task.key) == name for task in [*worker.processing, *worker.long_running])
    ]
    os.kill(pids[holds[0]], signal.SIGSTOP)
    spoil(tmp_path, scheduler)
    shutil.rmtree(tmp_path / "cache")
    os.kill(pids[holds[0]], signal.SIGKILL)
    assert until(job_, lambda one: one["state"] == "finished")["rows"] == 160 * ROWS
    assert entries(tmp_path / "cache")
    assert not (tmp_path / "evil").exists()
    assert not scheduler.connections
    sized(workers, 2)


def test_resume_names_the_cluster_of_a_client(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """A run that was given a client, and no address, names the address that the client had."""
    table = described(data, tmp_path, 1)
    del table["data"]["cache"]
    streamomd.train(table, client=client, quiet=True)
    done = run("resume", tmp_path / "run", "--epochs", 2)
    assert f"resume {tmp_path / 'run'} --scheduler {workers.scheduler_address}\n" in done.err
    assert "--cache" not in done.err


@pytest.mark.slow
def test_resume_names_the_cluster_of_a_submitted_run(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path, alone: Any
) -> None:
    """A submitted run resumes in this process, or on its cluster with the printed flags."""
    table = described(data, tmp_path, 1, cluster={"scheduler": workers.scheduler_address})
    name = streamomd.submit(table)
    until(jobs.find(client, name), lambda one: one["state"] == "finished")
    done = run("resume", tmp_path / "run", "--epochs", 2, "--json")
    flags = f"--scheduler {workers.scheduler_address} --set cluster.learner=worker"
    assert flags in done.err
    assert f"--cache {tmp_path / 'cache'}" in done.err
    assert done.result["state_sha256"] == alone.state_sha256
    again = run("resume", tmp_path / "run", "--epochs", 3, *flags.split())
    assert again.code == 0
    assert "learning on a worker" in again.err
