"""Owners that are killed or stopped, at any instant: the same bits, and never a hang."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from cluster_faults import struck
from clustered import long, sized, waits
from distributed import Client, LocalCluster
from places import cases, drawn
from sharded_jobs import sharded_job

import streamomd

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def one(data: Path) -> Any:
    """The run of one process."""
    return streamomd.train(sharded_job(data, "none"), quiet=True)


@pytest.mark.parametrize("how, where, seed", cases("sharded", 2, quick=(("kill", "round", 0),)))
def test_an_owner_that_is_lost_costs_what_was_not_committed(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    how: str,
    where: str,
    seed: int,
) -> None:
    """Killed, stopped, retired while the owners meet, learn and put their parts, or while the
    driver commits; another group starts from the last commit."""
    sized(workers, 2 + seed % 2)
    url = tmp_path / "kept"
    with struck(workers, client, *drawn("sharded", where, how, seed), how, tmp_path / "marks"):
        there = streamomd.train(sharded_job(data, url, every_rows=4000), client=client, quiet=True)
    assert there.state_sha256 == one.state_sha256
    assert there.result()["epochs"] == one.result()["epochs"]
    assert streamomd.load(str(url)).state_sha256 == one.state_sha256


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop", "retire"])
def test_the_only_owner_is_lost(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """P = 1: no other owner notices it, the driver does."""
    waits(monkeypatch, silent=2.0, look=0.3)
    table = sharded_job(data, tmp_path / "kept", 128, every_rows=4000)
    table["train"]["parts"] = 1
    alone = {**sharded_job(data, "none"), "train": table["train"]}
    with struck(
        workers,
        client,
        "streamomd.training.microbatch_rounds.Rounds._learn",
        150,
        how,
        tmp_path / "marks",
    ):
        there = streamomd.train(table, client=client, quiet=True)
    assert there.state_sha256 == streamomd.train(alone, quiet=True).state_sha256


@pytest.mark.parametrize("seed", [0, *long(1)])
@pytest.mark.slow
def test_a_stop_is_a_commit_and_another_group_continues(
    data: Path, one: Any, client: Client, workers: LocalCluster, tmp_path: Path, seed: int
) -> None:
    """A signal: the owners commit and leave; resumed by another number of workers, then by none."""
    from streamomd.core.errors import StoppedError
    from streamomd.distributed.sharded import PartitionOwners

    sized(workers, 2)
    look, url = PartitionOwners._report, tmp_path / "kept"

    def signalled(self: Any) -> Any:
        if self.model.metrics.total_rows > 1000:
            self.stop.signal = signal.SIGTERM
        return look(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(PartitionOwners, "_report", signalled)
    table = sharded_job(data, url, 1)
    try:
        with pytest.raises(StoppedError, match="stopped after row") as caught:
            streamomd.train(table, client=client, quiet=True)
    finally:
        patch.undo()
    assert caught.value.exit_code == 143
    assert 0 < streamomd.load(str(url)).metrics.total_rows < 10_000
    sized(workers, 1 + 2 * seed)
    alone = streamomd.train(sharded_job(data, "none", 1), quiet=True)
    done = streamomd.resume(str(url), client=client, quiet=True)
    assert done.state_sha256 == alone.state_sha256
    sized(workers, 2)
