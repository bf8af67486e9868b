"""Workers that are asked to close: what runs on them commits first, and no row is learned again."""

from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster_faults
import pytest
from cluster_faults import retire, struck
from clustered import ROWS, job, long, sized, spread
from distributed import Client, LocalCluster
from elsewhere import DASK, address_in, scheduler_words
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.run_events import Event, receiving
from streamomd.distributed.worker_monitor import WorkerMonitor, monitor_of
from streamomd.runs import walk

pytestmark = pytest.mark.filterwarnings("ignore")
NEVER = 10**9
"""Rows between commits: all that is saved before the end is saved because a worker leaves."""


def rows_again(events: list[Event]) -> list[int]:
    """Of each recovery."""
    return [event.fields["rows_again"] for event in events if event.name == "returned"]


def rounds(events: list[Event]) -> int:
    """All rounds of all groups of owners."""
    return sum(event.fields["rounds"] for event in events if event.name == "rounds")


ROUNDS = 2 * -(-4 * ROWS // 256)
"""Of the sharded job, in all."""


@pytest.mark.parametrize("nth", [80, *long(0, 7, 120, 240)])
@pytest.mark.slow
def test_an_owner_that_retires_costs_no_row(
    data: Path, bits: Callable[[str], str], client: Client, workers: LocalCluster, tmp_path: Path,
    events: list[Event], nth: int,
) -> None:  # fmt: skip
    """All owners commit and another group continues: as many rounds as without it."""
    place = "streamomd.training.microbatch_rounds.Rounds._learn"
    table = sharded_job(data, tmp_path / "run", every_rows=NEVER)
    with struck(workers, client, place, nth, "retire", tmp_path / "marks"):
        there = streamomd.train(table, client=client, quiet=True)
    assert rounds(events) == ROUNDS
    assert there.state_sha256 == bits("sharded")
    if nth > 10:  # else the owners may not have met
        assert rows_again(events) == [0]
        assert there.sequence == 3  # the owner's; then the last one, and that it is the last


def count_rows(folder: str) -> None:
    """On a worker: a file for each call that learns, with its rows."""
    learn_rows = walk.learn_rows

    def counted(model: Any, batch: Any, *given: Any) -> Any:
        found = learn_rows(model, batch, *given)
        (Path(folder) / f"{time.monotonic_ns()}").write_text(str(len(batch)))
        return found

    walk.learn_rows = counted


@pytest.mark.parametrize("how", long("train", "submit"))
def test_a_learner_that_retires_costs_no_row(
    data: Path, alone: Any, client: Client, workers: LocalCluster, tmp_path: Path,
    events: list[Event], how: str,
) -> None:  # fmt: skip
    """It commits, and the next one resumes from there: each row is learned once."""
    counted = tmp_path / "counted"
    counted.mkdir()
    table = job(data, cluster={"learner": "worker", "decode": "local"},
                checkpoint={"url": str(tmp_path / "run"), "every_rows": NEVER})  # fmt: skip
    with struck(workers, client, "streamomd.runs.walk.learn_rows", 30, "retire", tmp_path / "m"):
        client.run(count_rows, str(counted))
        if how == "train":
            there = streamomd.train(table, client=client, quiet=True)
            assert rows_again(events) == [0]
        else:
            name = streamomd.submit(table, client=client)
            client.get_dataset(name).result(timeout=120)
            client.unpublish_dataset(name)
            there = streamomd.load(str(tmp_path / "run"))
    assert there.state_sha256 == alone.state_sha256
    rows = [int(path.read_text()) for path in counted.iterdir()]
    assert sum(rows) == alone.metrics.total_rows == 8 * ROWS


def test_a_worker_that_closes_gets_no_task(client: Client) -> None:
    """From the moment that it was asked."""
    monitor = WorkerMonitor()
    monitor.probe_all(client, lambda: None)
    first, second = sorted(monitor.usable)
    for status in ("closing_gracefully", "closing"):
        monitor.workers = {**monitor.workers, first: {**monitor.workers[first], "status": status}}
        assert [*monitor.usable] == [second]
    monitor.refuse_unusable(client)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sharded", "learner"])
def test_sigterm_of_a_dask_worker(
    data: Path, bits: Callable[[str], str], tmp_path: Path, events: list[Event], mode: str
) -> None:
    """As at a spot notice or the end of a Slurm job: its nanny gives it some seconds."""
    at, quiet = tmp_path / "scheduler.json", {"stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(scheduler_words(at), **quiet)]
    words = [*DASK, "worker", "--scheduler-file", str(at), "--nthreads", "1", "--no-dashboard"]
    path = [str(Path(__file__).parent), str(Path(cluster_faults.__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    try:
        address = address_in(at)
        for name in "ab":
            folder = ["--local-directory", str(tmp_path / name)]
            started.append(subprocess.Popen([*words, *folder], env=environment, **quiet))
        url = tmp_path / "run"
        if mode == "sharded":
            table = sharded_job(data, url, every_rows=NEVER)
            place = "streamomd.training.microbatch_rounds.Rounds._learn"
        else:
            table = job(data, cluster={"learner": "worker", "decode": "local"},
                        checkpoint={"url": str(url), "every_rows": NEVER})  # fmt: skip
            place = "streamomd.runs.walk.learn_rows"
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2)
            client.run(slow_down, place)
            threading.Timer(4.0, started[1].send_signal, [signal.SIGTERM]).start()
            there = streamomd.train(table, client=client, quiet=True)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert there.state_sha256 == bits("sharded" if mode == "sharded" else "exact")
    assert rows_again(events) in ([0], [])


def slow_down(place: str) -> None:
    """On a worker: each call takes a little longer."""
    home, _, name = place.rpartition(".")
    found = pkgutil.resolve_name(home)
    function = getattr(found, name)

    def slowly(*given: Any, **named: Any) -> Any:
        time.sleep(0.02)
        return function(*given, **named)

    setattr(found, name, slowly)


@pytest.mark.slow
def test_both_owners_retire(
    data: Path, bits: Callable[[str], str], client: Client, workers: LocalCluster, tmp_path: Path,
    events: list[Event],
) -> None:  # fmt: skip
    """At the same time; the run waits for others."""
    place = "streamomd.training.microbatch_rounds.Rounds._learn"
    client.run(slow_down, place)
    addresses = sorted(client.scheduler_info()["workers"])
    done: list[int] = []

    def retire_all(event: Event) -> None:
        if event.name == "rounds" and not done:
            done.append(1)
            for address in addresses:
                threading.Thread(target=retire, args=(workers, address), daemon=True).start()
            threading.Timer(3.0, workers.scale, [4]).start()

    table = sharded_job(data, tmp_path / "run", every_rows=NEVER)
    with receiving(retire_all):
        there = streamomd.train(table, client=client, quiet=True)
    assert rows_again(events) == [0]
    assert rounds(events) == ROUNDS
    assert there.state_sha256 == bits("sharded")
    sized(workers, 0)
    sized(workers, 2)


def too_much(folder: str) -> None:
    """On a worker: the 20th call that learns, of all workers, takes more memory than it may."""
    learn_rows = walk.learn_rows

    def greedy(*given: Any) -> Any:
        marks = Path(folder)
        (marks / f"{time.monotonic_ns()}").touch()
        if len([*marks.iterdir()]) == 20:
            taken = bytearray(1 << 30)
            time.sleep(60)
            del taken
        return learn_rows(*given)

    walk.learn_rows = greedy


@pytest.mark.slow
def test_a_nanny_restarts_a_worker_above_its_memory(
    data: Path, alone: Any, tmp_path: Path, events: list[Event]
) -> None:
    """Without a notice: it costs the rows since the last commit, and no bit."""
    table = job(data, cluster={"learner": "worker", "decode": "local"},
                checkpoint={"url": str(tmp_path / "run"), "every_rows": 2_000})  # fmt: skip
    marks = tmp_path / "marks"
    marks.mkdir()
    size: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1100MiB"}
    with (
        LocalCluster(**size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(too_much, str(marks))
        there = streamomd.train(table, client=client, quiet=True)
    assert there.state_sha256 == alone.state_sha256
    assert len(rows_again(events)) == 1
    assert len([event for event in events if event.name == "worker_lost"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["retire", "kill"])
def test_a_worker_joins_in_a_round_and_all_others_leave(
    data: Path, expected: str, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Averaged mode: parts that were sent before it joined run there too. They waited forever for
    the workers that they were sent to, and the merges, which it may run, for them."""
    joined: list[str] = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as few,
        Client(few, set_as_default=False) as client,
    ):
        submit = client.submit

        def leave(addresses: list[str]) -> None:
            with Client(few, set_as_default=False) as other:
                if how == "retire":
                    other.retire_workers(addresses, close_workers=True)
                else:
                    for pid in other.run(os.getpid, workers=addresses).values():
                        os.kill(pid, signal.SIGKILL)

        def submitting(*given: Any, key: str, **more: Any) -> Any:
            if key.startswith("omd-merge") and not joined:
                joined.extend(few.scheduler.workers)
                sized(few, 2)
                while len(monitor_of(client).usable) < 2:
                    monitor_of(client).refresh(client)
                threading.Timer(0.3, leave, [[*joined]]).start()
            return submit(*given, key=key, **more)

        monkeypatch.setattr(client, "submit", submitting)
        there = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
    assert joined
    assert there.state_sha256 == expected
