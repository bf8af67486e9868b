"""What people who use Dask expect of a call: its report, one line about the cluster, task names."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clustered import job, long
from distributed import Client, LocalCluster, performance_report
from mode_runs import table

import streamomd

PREFIXES = {
    "decoders": {"omd-decode"},
    "learner": {"omd-learn"},
    "averaged": {"omd-start", "omd-part", "omd-merge"},
    "averaged there": {"omd-start", "omd-part", "omd-merge", "omd-learn"},
    "sharded": {"omd-owner"},
    "sharded there": {"omd-owner", "omd-learn"},
}


@pytest.fixture
def shown() -> Iterator[Client]:
    """A client of a cluster with a dashboard."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made,
        Client(made, set_as_default=False) as client,
    ):
        yield client


def described(name: str, data: Path, url: Path) -> dict[str, Any]:
    """A job; its driver is a task too, or not."""
    mode, _, there = name.partition(" ")
    described = table(mode, data, url)
    return {**described, "cluster": {"learner": "worker"}} if there else described


@pytest.mark.parametrize(
    "name", ["averaged there", *long(*(name for name in PREFIXES if name != "averaged there"))]
)
@pytest.mark.slow
def test_the_cluster_is_reported_once_and_tasks_have_similar_names(
    data: Path, tmp_path: Path, shown: Client, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """Address, workers and dashboard in one line a run, wherever its driver is; the dashboard
    groups tasks by what they are for."""
    kept = weakref.ref(streamomd.train(described(name, data, tmp_path / "run"), client=shown))
    told = [line for line in capfd.readouterr().err.splitlines() if "2 workers, 2 threads" in line]
    assert len(told) == 1
    assert shown.scheduler.address in told[0]
    assert (f"dashboard {shown.dashboard_link}" in told[0]) == bool(shown.dashboard_link)
    seen = shown.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.task_prefixes))
    assert {prefix for prefix in seen if prefix.startswith("omd")} == PREFIXES[name] | {"omd-probe"}
    gc.collect()
    assert kept() is None, "the client keeps the model alive"


@pytest.mark.slow
@pytest.mark.parametrize("mode, most", [("averaged", 2 * (3 + 2)), ("sharded", 2)])
def test_fifty_rounds_leave_no_more_tasks_than_one(
    data: Path, tmp_path: Path, shown: Client, mode: str, most: int
) -> None:
    """The scheduler knows of two rounds at most (each with its start on two workers, parts and
    merges), as the result of one is wanted until the next has its start; or of the owners alone."""
    table = described(mode, data, tmp_path / "run")
    if mode == "averaged":
        table["train"] |= {"parts": 2, "rounds_per_epoch": 10, "epochs": 5}
    assert shown.cluster is not None
    tasks, seen, ended = shown.cluster.scheduler.tasks, [], threading.Event()

    def look() -> None:
        while not ended.wait(0.002):
            seen.append(sum(key.startswith("omd") for key in list(tasks)))

    looking = threading.Thread(target=look)
    looking.start()
    model = streamomd.train(table, client=shown, quiet=True)
    ended.set()
    looking.join()
    rounds = 50 if mode == "averaged" else model.metrics.total_rows // 256
    assert rounds >= 50
    assert 0 < max(seen) <= most


@pytest.mark.slow
@pytest.mark.parametrize("name", PREFIXES)
def test_a_performance_report_shows_our_tasks(
    data: Path, tmp_path: Path, shown: Client, name: str
) -> None:
    """``with performance_report(…)`` around the call, as around any other."""
    page = tmp_path / "report.html"
    with shown.as_current(), performance_report(str(page)):
        streamomd.train(described(name, data, tmp_path / "run"), client=shown, quiet=True)
    text = page.read_text()
    for prefix in PREFIXES[name]:
        assert prefix in text


@pytest.mark.slow
def test_a_submitted_job_reports_the_cluster_once(
    data: Path, tmp_path: Path, shown: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    """When it is submitted."""
    streamomd.submit(job(data, checkpoint={"url": str(tmp_path / "run")}), client=shown)
    assert capfd.readouterr().err.count("2 workers, 2 threads") == 1
