"""Every recovery reports what is done again: on stderr, as events, and in counters."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from clustered import REMOTE, job, long, sized, spread, waits
from distributed import Client, LocalCluster
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.run_events import Event
from streamomd.distributed import (
    averaged,
    cluster,
    decode,
    remote_learner,
    sharded,
    worker_monitor,
)
from streamomd.distributed.worker_group import LostOwnersError
from streamomd.distributed.worker_monitor import WorkerMonitor
from streamomd.runs.run_metrics import RunMetrics
from streamomd.runs.worker_task import report_restart
from streamomd.training.signals import StopRequest

pytestmark = pytest.mark.filterwarnings("ignore")


def texts(events: list[Event], name: str) -> list[str]:
    return [event.text for event in events if event.name == name]


def count(events: list[Event], name: str) -> float:
    """What a counter shows after these events."""
    exported = RunMetrics()
    for event in events:
        exported.receive(event)
    (family,) = [one for one in exported.families() if one.name == f"streamomd_{name}"]
    (value,) = family.samples.values()
    assert isinstance(value, int | float)
    return value


@pytest.mark.parametrize("how", ["kill", *long("retire")])
@pytest.mark.slow
def test_a_worker_that_dies_costs_its_tasks(
    how: str,
    client: Client,
    workers: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
) -> None:
    """Those that it ran or waited for, of streamomd; one that retires is not lost."""
    waits(monkeypatch, look=0.0)
    monitor = WorkerMonitor()
    monitor.probe_all(client, lambda: None)
    pids = client.run(os.getpid)
    address = min(pids)
    keys = ["omd-decode-1", "omd-part-2", "mine-3", "omd-owner-4"]
    placed: Any = {"workers": [address], "allow_other_workers": True, "pure": False}
    tasks = [client.submit(time.sleep, 600, key=key, **placed) for key in keys]
    while len(client.processing(workers=[address])[address]) < len(keys):
        time.sleep(0.01)
    if how == "kill":
        os.kill(pids[address], signal.SIGKILL)
    else:
        client.run_on_scheduler(retiring, address)
    deadline = time.monotonic() + 60
    while address in monitor.workers and time.monotonic() < deadline:
        monitor.check(client)
        time.sleep(0.05)
    client.cancel(tasks, force=True)
    name, verb = ("worker_lost", "died") if how == "kill" else ("worker_left", "left")
    assert texts(events, name) == [f"worker {address} {verb}: 2 tasks run again"]
    assert count(events, "tasks_again_total") == 2
    assert count(events, "workers_lost_total") == (1 if how == "kill" else 0)
    sized(workers, 0)
    sized(workers, 2)


async def retiring(address: str, dask_scheduler: Any = None) -> None:
    """On the scheduler: as a worker that says that it leaves."""
    await dask_scheduler.remove_worker(address, stimulus_id="a test", expected=True)


@pytest.mark.slow
def test_a_round_that_is_lost_costs_its_rows(
    data: Path, client: Client, tmp_path: Path, expected: str, monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
) -> None:  # fmt: skip
    """Those that its parts had reported."""
    wait, calls = averaged.wait_for_result, [0]

    def lost_once(*given: Any, **more: Any) -> Any:
        found = wait(*given, **more)
        calls[0] += 1
        if calls[0] == 1:
            raise cluster.TaskLostError("its workers died")
        return found

    monkeypatch.setattr(averaged, "wait_for_result", lost_once)
    found = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert found.state_sha256 == expected
    (text,) = texts(events, "returned")
    pattern = (
        r"a round was lost \(its workers died\); it restarts from its commit; returned to row 0: "
        r"([\d,]+) rows again"
    )
    rows = re.fullmatch(pattern, text)
    assert rows, text
    assert count(events, "rows_again_total") == int(rows[1].replace(",", "")) > 0
    assert count(events, "rounds_total") >= 1


@pytest.mark.slow
def test_owners_that_are_lost_cost_the_rows_since_the_commit(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
) -> None:  # fmt: skip
    """The group's messages say how many there were."""
    receive, lost = sharded.PartitionOwners._on_message, list[int]()

    def losing(self: Any, message: dict[str, Any]) -> Any:
        if message["kind"] == "commit" and message["number"] == 2 and not lost:
            sharded.update_metrics(self.model.metrics, message)
            lost.append(self.model.metrics.total_rows)
            raise LostOwnersError(["tcp://10.0.0.7:4000"])
        return receive(self, message)

    monkeypatch.setattr(sharded.PartitionOwners, "_on_message", losing)
    table = sharded_job(data, tmp_path / "run", every_rows=2000)
    streamomd.train(table, client=client, quiet=True)
    at = [event.fields for event in events if event.name == "returned"]
    (text,) = texts(events, "returned")
    assert text.startswith(
        "owners were lost (tcp://10.0.0.7:4000); another group starts from commit "
    )
    assert text.endswith(f"returned to row {at[0]['rows']:,}: {at[0]['rows_again']:,} rows again")
    assert at[0]["rows"] + at[0]["rows_again"] == lost[0]
    assert count(events, "rounds_total") > 10


def test_a_task_without_a_result_is_decoded_again(
    data: Path, alone: Any, client: Client, small_tasks: None, monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
) -> None:  # fmt: skip
    """The line names the shard and its rows."""
    wait, calls = decode.wait_for_result, [0]

    def lost_once(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise cluster.TaskLostError("its workers are gone")
        return wait(*given, **more)

    monkeypatch.setattr(decode, "wait_for_result", lost_once)
    found = streamomd.train(job(data, cluster=REMOTE), client=client, checkpoint="none", quiet=True)
    assert found.state_sha256 == alone.state_sha256
    (text,) = texts(events, "task_lost")
    assert re.fullmatch(
        r"shard \S+\.parquet, rows \d+ to \d+: its workers are gone; decoded again: 1 task", text
    )


def test_a_learner_that_is_started_again_reports_the_rows_between(
    alone: Any, events: list[Event]
) -> None:
    """Nothing the first time."""
    report_restart(alone, None)
    assert not events
    rows = alone.metrics.total_rows
    report_restart(alone, rows + 140_000)
    assert events[0].text.endswith(f"returned to row {rows:,}: 140,000 rows again")
    assert events[0].fields == {"rows": rows, "rows_again": 140_000}


class _Logged:
    """A client, and a worker, whose events are a list."""

    status = "running"

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def get_events(self, topic: str) -> list[tuple[float, dict[str, Any]]]:
        return [(0.0, event) for event in self.events]

    def log_event(self, topic: str, event: dict[str, Any]) -> None:
        self.events.append(event)


def test_a_learner_that_was_lost_before_its_first_report_costs_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one knows that there was one: it reports 0 rows, and later those of the last."""
    scheduler: Any = _Logged()
    monkeypatch.setattr(remote_learner, "get_worker", lambda: scheduler)
    monkeypatch.setattr(remote_learner, "Variable", lambda *given, **named: None)
    first = remote_learner.EventReporter("omd-learn-1", StopRequest(), scheduler)
    assert first.rows_before() is None
    second = remote_learner.EventReporter("omd-learn-1", StopRequest(), scheduler)
    assert second.rows_before() == 0
    second.log({"rows": [100, 23]})
    third = remote_learner.EventReporter("omd-learn-1", StopRequest(), scheduler)
    assert third.rows_before() == 123
    assert first.rows_before() == 123  # which continues on its worker, after another one learned


def test_workers_lost_since_the_last_check_are_reported(
    monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """Once each: those that were seen, and those that only logged an event before they died."""
    client: Any = _Logged()
    there = {"tcp://a": {}, "tcp://b": {}}
    monkeypatch.setattr(worker_monitor, "removal_of", lambda *_: {"processing-tasks": ["omd-x"]})
    monkeypatch.setattr(worker_monitor, "ask_workers", lambda _: there)
    monitor = worker_monitor.monitor_of(client)
    monitor.workers = {**there, "tcp://c": {}}
    for address in ("tcp://b", "tcp://d", "tcp://d"):
        monitor.note_event({"note": "", "worker": address})
    for _ in range(2):
        worker_monitor.report_last_losses(client)
    found = [f"worker tcp://{name} died: 1 task run again" for name in "cd"]
    assert sorted(texts(events, "worker_lost")) == found
    there["tcp://d"] = {}  # another one at that address
    worker_monitor.report_last_losses(client)
    del there["tcp://d"]
    worker_monitor.report_last_losses(client)
    assert len(texts(events, "worker_lost")) == 3
    client.status = "closed"
    worker_monitor.report_last_losses(client)
