"""The learner as a task on a worker: the same bits, also when its worker dies."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from clustered import QUIET, ROWS, job, long, sized
from distributed import Client, LocalCluster

import streamomd
from streamomd.distribute import learner
from streamomd.errors import StoppedError, UsageError

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def away(data: Path, url: Path, **cluster: Any) -> dict[str, Any]:
    """The job with its learner on a worker."""
    kept = {"url": str(url), "every_rows": 500}
    return job(data, cluster={"learner": "worker", **cluster}, checkpoint=kept)


@pytest.mark.parametrize("where", ["local", "remote"])
def test_the_learner_on_a_worker_has_the_same_bits(
    data: Path, alone: Any, client: Client, tmp_path: Path, capfd: Any, where: str
) -> None:
    """Rows decoded beside it or by all workers; progress is told here; the model comes back."""
    there = streamomd.train(away(data, tmp_path / "kept", decode=where), client=client)
    assert there.state_sha256 == alone.state_sha256
    assert there.result()["loss"] == alone.result()["loss"]
    assert there.finished
    told = capfd.readouterr().err
    assert "learning on a worker" in told
    assert f"{8 * ROWS:,}  100%" in told
    more = streamomd.resume(
        str(tmp_path / "kept"), client=client, sets={"train.epochs": 3}, quiet=True
    )
    assert more.metrics.total_rows == 12 * ROWS
    table = job(data)
    longer = streamomd.train({**table, "train": {"epochs": 3}}, **QUIET)
    assert more.state_sha256 == longer.state_sha256


@pytest.mark.parametrize("seed", [0, *long(1, 2, 3)])
def test_a_learner_that_is_killed_goes_on_elsewhere(
    data: Path, alone: Any, client: Client, workers: LocalCluster, tmp_path: Path, seed: int
) -> None:
    """kill -9 of its worker at seeded commits; Dask runs it again, and it goes on from there."""
    commit = random.Random(seed).randrange(2, 40)
    url = tmp_path / "kept"
    killed = []

    def killer() -> None:
        while newest(url) < commit:
            time.sleep(0.002)
        address = learner_of(workers)
        os.kill(pids[address], signal.SIGKILL)
        killed.append(address)

    pids = client.run(os.getpid)
    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    there = streamomd.train(away(data, url, decode="local"), client=client, quiet=True)
    thread.join(timeout=5)
    assert killed
    assert there.state_sha256 == alone.state_sha256
    sized(workers, 2)


def learner_of(workers: LocalCluster) -> str:
    """Where the learner runs; the task is held by its worker while its thread is given back."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for worker in list(workers.scheduler.workers.values()):
            held = [*worker.processing, *worker.long_running]
            if any("omd-learn" in str(task.key) for task in held):
                return str(worker.address)
    raise AssertionError("no worker learns")


def newest(url: Path) -> int:
    """The number of the newest commit; -1 if there is none."""
    found = [path.stem for path in url.glob("commits/*.json")]
    return max((int(name) for name in found if name.isdigit()), default=-1)


def test_a_learner_on_a_worker_stops_when_asked(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal here: a commit there, and StoppedError."""
    waiting = learner.Submitted._waiting

    def signalled(self: Any, *given: Any) -> None:
        waiting(self, *given)
        if self.metrics.total_rows:
            self.stop.signal = signal.SIGTERM

    monkeypatch.setattr(learner.Submitted, "_waiting", signalled)
    long = away(data, tmp_path / "kept", decode="local")
    long["train"] = {"epochs": 400}
    with pytest.raises(StoppedError, match="stopped after row") as caught:
        streamomd.train(long, client=client, quiet=True)
    assert caught.value.exit_code == 143
    assert streamomd.load(str(tmp_path / "kept")).metrics.total_rows > 0


def test_a_learner_away_needs_a_cluster_and_a_checkpoint(data: Path, client: Client) -> None:
    """Said before anything is begun."""
    table = job(data, cluster={"learner": "worker"})
    for given in ({"client": client}, {}):
        with pytest.raises(UsageError, match="needs a cluster"):
            streamomd.train(table, **given, **QUIET)
