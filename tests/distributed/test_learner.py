"""The learner as a task on a worker: the same bits, also when its worker dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_faults import hits, struck
from clustered import QUIET, ROWS, job, waits
from distributed import Client, LocalCluster
from elsewhere import newest
from places import cases, drawn

import streamomd
from streamomd.core.errors import StoppedError, UsageError
from streamomd.distributed import remote_learner
from streamomd.training.progress import verbose_output

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def away(data: Path, url: Path, **cluster: Any) -> dict[str, Any]:
    """The job with its learner on a worker."""
    kept = {"url": str(url), "every_rows": 500}
    return job(data, cluster={"learner": "worker", **cluster}, checkpoint=kept)


@pytest.mark.parametrize("where", [pytest.param("local", marks=pytest.mark.slow), "remote"])
def test_the_learner_on_a_worker_has_the_same_bits(
    data: Path, alone: Any, client: Client, tmp_path: Path, capfd: Any, where: str
) -> None:
    """Rows decoded on its worker or by all workers; progress is reported here; the model
    returns."""
    with verbose_output():
        there = streamomd.train(away(data, tmp_path / "kept", decode=where), client=client)
    assert there.state_sha256 == alone.state_sha256
    assert there.result()["loss"] == alone.result()["loss"]
    assert there.finished
    told = capfd.readouterr().err
    assert "learning on a worker" in told
    assert f"{8 * ROWS:,}  100%" in told
    again = {"train.epochs": 3, "cluster.learner": "worker", "cluster.decode": where}
    more = streamomd.resume(str(tmp_path / "kept"), client=client, sets=again)
    assert "learning on a worker" in capfd.readouterr().err
    assert more.metrics.total_rows == 12 * ROWS
    table = job(data)
    longer = streamomd.train({**table, "train": {"epochs": 3}}, **QUIET)
    assert more.state_sha256 == longer.state_sha256


@pytest.mark.parametrize("how, where, seed", cases("learner", 2, quick=(("kill", "commit", 0),)))
@pytest.mark.slow
def test_a_learner_that_is_lost_resumes_elsewhere(
    data: Path,
    alone: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    where: str,
    seed: int,
) -> None:
    """kill -9, a stop and retirement of its worker, while it begins, learns and commits."""
    waits(monkeypatch, silent=2.0, look=0.3)
    with struck(workers, client, *drawn("learner", where, how, seed), how, tmp_path / "marks"):
        table = away(data, tmp_path / "kept", decode="local")
        there = streamomd.train(table, client=client, quiet=True)
    assert there.state_sha256 == alone.state_sha256


@pytest.mark.slow
def test_a_learner_that_wakes_up_commits_nothing(
    data: Path,
    alone: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped, replaced by another writer; then it continues, and its commit is refused."""
    waits(monkeypatch, silent=2.0, look=0.3)
    url, marks = tmp_path / "kept", tmp_path / "marks"
    with struck(workers, client, "streamomd.runs.walk.learn_rows", 30, "stop", marks):
        there = streamomd.train(away(data, url, decode="local"), client=client, quiet=True)
        before = newest(url)
        [(pid, _)] = hits(marks)
        os.kill(pid, signal.SIGCONT)
        time.sleep(5.0)
        assert newest(url) == before
    assert there.state_sha256 == alone.state_sha256
    assert streamomd.load(str(url)).state_sha256 == alone.state_sha256


def test_a_learner_on_a_worker_stops_when_asked(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal here: a commit there, and StoppedError."""
    waiting = remote_learner.SubmittedLearner._report

    def signalled(self: Any, *given: Any) -> None:
        waiting(self, *given)
        if self.metrics.total_rows:
            self.stop.signal = signal.SIGTERM

    monkeypatch.setattr(remote_learner.SubmittedLearner, "_report", signalled)
    long = away(data, tmp_path / "kept", decode="local")
    long["train"] = {"epochs": 400}
    with pytest.raises(StoppedError, match="stopped after row") as caught:
        streamomd.train(long, client=client, quiet=True)
    assert caught.value.exit_code == 143
    assert streamomd.load(str(tmp_path / "kept")).metrics.total_rows > 0


def test_a_learner_away_needs_a_cluster_and_a_checkpoint(data: Path, client: Client) -> None:
    """Reported before the run starts."""
    table = job(data, cluster={"learner": "worker"})
    for given in ({"client": client}, {}):
        with pytest.raises(UsageError, match="needs a cluster"):
            streamomd.train(table, **given, **QUIET)
