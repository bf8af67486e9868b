"""Sweeps on a cluster: workers learn groups of learners, with the bits of one process."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_faults import hits, struck
from clustered import job, waits
from distributed import Client, LocalCluster
from elsewhere import newest
from places import cases, drawn

import streamomd
from streamomd.core.errors import StoppedError
from streamomd.distributed import remote_learner
from streamomd.runs.sweep.learners import Sweep

pytestmark = pytest.mark.filterwarnings("ignore")

GRID = {"eta": "0.03..3:4"}
HALVE = 5_000
KILLS = 12


def swept(data: Path, url: Path | str = "none") -> dict[str, Any]:
    """The job, committed often."""
    saved = {"url": str(url), "every_rows": 1_500, "every_seconds": 0}
    # A thread for each learner: the loops of one are compiled for other tests, too.
    return {**job(data, checkpoint=saved), "train": {"epochs": 1, "threads": 4}}


def everything(models: Sweep) -> list[Any]:
    """What must be equal of two sweeps."""
    dropped = [one.dropped for one in models.learners]
    hashes = [one.model.state_sha256 for one in models.learners]
    losses = [one.model.result()["loss"] for one in models.learners]
    return [dropped, models.best_learner.name, models.finished, hashes, losses]


@pytest.fixture(scope="module")
def whole(data: Path) -> list[Any]:
    """The sweep of one process."""
    return everything(streamomd.sweep(swept(data), grid=GRID, halve=HALVE, quiet=True))


def test_workers_learn_groups_with_the_same_bits(
    data: Path, whole: list[Any], client: Client, tmp_path: Path, capfd: Any
) -> None:
    """Half of the learners are dropped after all groups reached a row; the result is saved."""
    url = tmp_path / "run"
    found = streamomd.sweep(swept(data, url), grid=GRID, halve=HALVE, client=client)
    assert everything(found) == whole
    told = capfd.readouterr().err
    assert "2 groups of up to 2 learners on 2 workers; each group reads every row once" in told
    assert [int(n) for n in re.findall(r"dropped after row [\d,]+: (\d)", told)] == [2, 1]
    assert everything(streamomd.resume_sweep(str(url), quiet=True)) == whole
    assert streamomd.load(f"{url}/best").state_sha256 == found.best.state_sha256


# A group is a learner's task: test_learner has one whose worker dies in the quick run.
@pytest.mark.parametrize("how, where, seed", cases("sweep", 3, quick=()))
def test_a_group_that_is_lost_resumes_elsewhere(
    data: Path,
    whole: list[Any],
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
    how: str,
    where: str,
    seed: int,
) -> None:
    """kill -9, a stop and retirement of a worker: while groups begin, learn and commit."""
    waits(monkeypatch, silent=2.0, look=0.3)
    with struck(workers, client, *drawn("sweep", where, how, seed), how, tmp_path / "marks"):
        table = swept(data, tmp_path / "run")
        found = streamomd.sweep(table, grid=GRID, halve=HALVE, client=client)
    assert everything(found) == whole
    if (how, where, seed) == ("kill", "round", 0):  # after the commit of some rows
        again = re.search(r"of 2 was started again from its commit \d+; returned to row ([\d,]+)",
                          capfd.readouterr().err)  # fmt: skip
        assert again
        assert again[1] != "0"


@pytest.mark.slow
def test_workers_that_die_all_the_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nanny starts each of them again; the sweep ends with the same bits."""
    waits(monkeypatch, silent=2.0, look=0.3)
    table = swept(data, tmp_path / "run")
    table["train"] = {"epochs": 30, "threads": 4}
    more = {"grid": GRID, "halve": 100_000, "quiet": True}
    expected = everything(streamomd.sweep({**table, "checkpoint": {"url": "none"}}, **more))
    kills, ended = 0, threading.Event()
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
        Client(cluster, set_as_default=False) as other,
    ):

        def strikes() -> None:
            """Once groups have made three more commits, as often as that."""
            nonlocal kills
            seen: set[Path] = set()
            while not ended.wait(0.2) and kills < KILLS:
                there = {*(tmp_path / "run" / "groups").glob("*/commits/*.json")}
                pids = [*other.run(os.getpid, on_error="ignore").values()]
                if len(there - seen) >= 3 and pids:
                    os.kill(random.choice(pids), signal.SIGKILL)
                    kills, seen = kills + 1, there

        striking = threading.Thread(target=strikes, daemon=True)
        striking.start()
        try:
            found = streamomd.sweep(table, client=client, **more)
        finally:
            ended.set()
            striking.join()
    assert kills == KILLS
    assert everything(found) == expected


@pytest.mark.slow
def test_a_task_that_wakes_up_commits_nothing(
    data: Path,
    whole: list[Any],
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped, replaced by another; then it continues, and its commit is refused."""
    waits(monkeypatch, silent=2.0, look=0.3)
    url, marks = tmp_path / "run", tmp_path / "marks"
    with struck(
        workers, client, "streamomd.runs.sweep.batched.LearnerGroup.learn", 120, "stop", marks
    ):
        found = streamomd.sweep(swept(data, url), grid=GRID, halve=HALVE, client=client, quiet=True)
        before = newest(url)
        [(pid, _)] = hits(marks)
        os.kill(pid, signal.SIGCONT)
        time.sleep(5.0)
        assert newest(url) == before
    assert everything(found) == whole
    assert everything(streamomd.resume_sweep(str(url), quiet=True)) == whole


@pytest.mark.slow
def test_a_signal_stops_all_groups(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them commits."""
    waiting, url = remote_learner.SubmittedLearner._report, tmp_path / "run"

    def signalled(self: Any, *given: Any) -> None:
        waiting(self, *given)
        if self.metrics.total_rows:
            self.stop.signal = signal.SIGTERM

    table = swept(data, url)
    table["train"] = {"epochs": 400, "threads": 4}
    with monkeypatch.context() as patch:
        patch.setattr(remote_learner.SubmittedLearner, "_report", signalled)
        with pytest.raises(StoppedError, match="resume, with --scheduler or here") as caught:
            streamomd.sweep(table, grid=GRID, client=client, quiet=True)
    assert caught.value.exit_code == 143
    for at in range(4):
        assert streamomd.load(f"{url}/learners/{at:03d}").metrics.total_rows > 0
