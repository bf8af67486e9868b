"""Jobs left to a cluster, asked about from elsewhere; and what is looked at before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clustered import ROWS, job, long, sized, waits
from distributed import Client, LocalCluster
from elsewhere import elsewhere
from running import run

import streamomd
from streamomd.core.errors import ClusterError, OutputExistsError, UnsupportedError, UsageError
from streamomd.distributed import diagnose, jobs
from streamomd.distributed.worker_monitor import monitor_of

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def kept(data: Path, url: Path, epochs: int = 2) -> dict[str, Any]:
    """The job, with commits between."""
    table = job(data, checkpoint={"url": str(url), "every_rows": 4_000})
    return {**table, "train": {"epochs": epochs}}


def until(job_: jobs.Job, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The job's status once it is like that."""
    deadline = time.monotonic() + 60
    while not good(found := jobs.status(job_)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def toml(table: dict[str, Any], path: Path) -> Path:
    """A job file."""
    lines = []
    for name, keys in table.items():
        lines.append(f"[{name}]")
        for key, value in keys.items():
            if isinstance(value, dict):
                inner = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
                lines.append(f"{key} = {{{inner}}}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    path.write_text("\n".join(lines))
    return path


def test_a_job_continues_without_its_submitter(
    data: Path, alone: Any, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """Submitted by a process that ends; asked about by others; the bits of one process."""
    file = toml(kept(data, tmp_path / "run"), tmp_path / "job.toml")
    address = workers.scheduler_address
    done = subprocess.run(
        [sys.executable, "-m", "streamomd", "submit", str(file), "--scheduler", address, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    name = json.loads(done.stdout.splitlines()[-1])["id"]
    found = until(jobs.find(client, name), lambda one: one["state"] == "finished")
    assert (found["rows"], found["expected"]) == (8 * ROWS, 8 * ROWS)
    assert found["commit"]["rows"] == 8 * ROWS
    assert found["loss"] == pytest.approx(alone.result()["loss"], rel=1e-12)
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == alone.state_sha256
    told = run("status", name, "--scheduler", address)
    assert f"{name}: finished" in told.out
    lines = run("logs", name, "--scheduler", address).out.splitlines()
    assert sum(f"{8 * ROWS:,} rows, loss" in line for line in lines) == 1
    texts = [line.partition(" ")[2] for line in lines]
    assert len(set(texts)) == len(texts), "no line is repeated"
    assert "last_report" not in found


def test_cancelled_it_commits_and_leaves(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """And is resumed like any other run."""
    name = streamomd.submit(kept(data, tmp_path / "run", 300), client=client)
    job_ = jobs.find(client, name)
    until(job_, lambda one: one["rows"] > 0)
    told = run("cancel", name, "--scheduler", workers.scheduler_address)
    assert f"{name}: stopped" in told.out
    rows = streamomd.load(str(tmp_path / "run")).metrics.total_rows
    assert 0 < rows < 300 * 4 * ROWS
    assert f"stopped after row {rows:,}" in jobs.status(job_)["error"]


def test_a_job_follows_until_it_is_cancelled(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """Its task learns what arrives; status, logs and cancel work; its worker serves its metrics;
    the bits of one run."""
    shutil.copytree(data, tmp_path / "rows")
    table = kept(tmp_path / "rows", tmp_path / "run", 1)
    table["update"] = {"settle": 0, "every": 0.2}
    last = max((tmp_path / "rows").rglob("*.parquet"))
    last.rename(tmp_path / last.name)
    name = streamomd.submit(table, client=client, follow=True, metrics_port=0)
    job_ = jobs.find(client, name)
    until(job_, lambda one: one["rows"] == 3 * ROWS)
    noted = [event for _, event in job_.events() if event.get("event") == "metrics"]
    metrics = [event["fields"]["url"] for event in noted]
    assert f"\nstreamomd_run_rows {3 * ROWS}.0\n" in scraped(metrics[0])
    assert job_.expected == 0
    (tmp_path / last.name).rename(last)
    until(job_, lambda one: one["rows"] == 4 * ROWS and (one["commit"] or one)["rows"] == 4 * ROWS)
    assert f"rows {4 * ROWS:,}, loss" in run("status", name, "--scheduler", job_address(client)).out
    told = run("cancel", name, "--scheduler", job_address(client))
    assert f"{name}: stopped" in told.out
    logged = run("logs", name, "--scheduler", job_address(client)).out
    assert "update 1: 1 shard" in logged
    assert f"metrics at {metrics[0]}" in logged
    with pytest.raises(OSError):
        scraped(metrics[0])
    whole = {**table, "checkpoint": {"url": str(tmp_path / "whole")}}
    expected = streamomd.train(whole, quiet=True, sets={"cluster.scheduler": ""})
    assert streamomd.update(str(tmp_path / "run"), quiet=True).state_sha256 == expected.state_sha256
    with pytest.raises(UnsupportedError, match="in exact mode, not averaged"):
        streamomd.submit({**table, "train": {"mode": "averaged"}}, client=client, follow=True)


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def job_address(client: Client) -> str:
    return str(client.scheduler.address)


@pytest.mark.slow
def test_a_job_that_has_not_started_is_dropped(data: Path, tmp_path: Path) -> None:
    """It waits for a worker until then."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as small,
        Client(small, set_as_default=False) as client,
    ):
        monitor_of(client).probe_all(client, lambda: None)
        busy = client.submit(time.sleep, 20, pure=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(diagnose, "exclude_unfit", lambda *_: {})
            name = streamomd.submit(kept(data, tmp_path / "run"), client=client)
        job_ = jobs.find(client, name)
        assert jobs.status(job_)["state"] == "waiting"
        dropped = jobs.status(jobs.cancel(job_))
        assert (dropped["state"], dropped["rows"]) == ("stopped", 0)
        assert dropped["error"].startswith("dropped")
        busy.cancel(force=True)


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
@pytest.mark.slow
def test_a_job_whose_worker_dies_resumes_elsewhere(
    data: Path, client: Client, workers: LocalCluster, tmp_path: Path, seed: int
) -> None:
    """No client watches; Dask runs its task again, and it resumes."""
    pids = client.run(os.getpid)
    name = streamomd.submit(kept(data, tmp_path / "run", 40), client=client)
    job_ = jobs.find(client, name)
    until(job_, lambda one: one["rows"] > (1 + seed) * ROWS)
    holds = [
        address
        for address, worker in workers.scheduler.workers.items()
        if any(str(task.key) == name for task in [*worker.processing, *worker.long_running])
    ]
    os.kill(pids[holds[0]], signal.SIGKILL)
    assert until(job_, lambda one: one["state"] == "finished")["rows"] == 160 * ROWS
    there = streamomd.load(str(tmp_path / "run"))
    expected = streamomd.train(kept(data, tmp_path / "alone", 40), quiet=True)
    assert there.state_sha256 == expected.state_sha256
    sized(workers, 2)


@pytest.mark.slow
def test_a_worker_that_died_leaves_the_rows_of_the_last_commit(data: Path, tmp_path: Path) -> None:
    """All processes are real, and the only worker is killed: ``status`` has the rows of the last
    commit, not those of the last message, and no worker; ``logs --follow`` repeats no line."""
    command, url = [sys.executable, "-m", "streamomd"], tmp_path / "run"
    pipes: Any = {"stdout": subprocess.PIPE, "text": True}
    with elsewhere(tmp_path, 1) as (address, _), Client(address, set_as_default=False) as client:
        there = ("--scheduler", address)

        def said(*words: Any) -> dict[str, Any]:
            done = subprocess.run([*command, *words, *there, "--json"], check=True, **pipes)
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found

        name = said("submit", str(toml(kept(data, url, 400), tmp_path / "job.toml")))["id"]
        logs = subprocess.Popen([*command, "logs", name, "--follow", *there], **pipes)
        until(jobs.find(client, name), lambda one: one["rows"] > 2 * ROWS)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        found = until(jobs.find(client, name), lambda one: one["state"] != "running")
        assert found == said("status", name)
        rows = streamomd.load(str(url)).metrics.total_rows
        assert (found["state"], found["rows"], found["commit"]["rows"]) == ("waiting", rows, rows)
        assert "its worker died" in found["error"]
        assert said("cancel", name)["rows"] == rows
        lines = logs.communicate(timeout=60)[0].splitlines()
    texts = [line.partition(" ")[2] for line in lines]
    assert len(texts) > 2
    assert len(set(texts)) == len(texts), "no line is repeated"


@pytest.mark.slow
def test_a_failed_job_reports_its_error(data: Path, client: Client, tmp_path: Path) -> None:
    """In its status, not only in a log."""
    table = kept(data, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            jobs, "send_task", lambda client, key, *_, **__: client.submit(failing, key=key)
        )
        name = streamomd.submit(table, client=client)
    found = until(jobs.find(client, name), lambda one: one["state"] != "waiting")
    assert (found["state"], found["error"]) == ("failed", "ValueError: the disk is full")


def failing() -> None:
    raise ValueError("the disk is full")


def test_mistakes_are_reported_when_it_is_submitted(
    data: Path, client: Client, tmp_path: Path, workers: LocalCluster
) -> None:
    """Nothing is left on the cluster for them."""
    table = kept(data, tmp_path / "run")
    with pytest.raises(UsageError, match="submit needs a cluster"):
        streamomd.submit(table)
    streamomd.train(table, quiet=True)
    with pytest.raises(OutputExistsError):
        streamomd.submit(table, client=client)
    with pytest.raises(UsageError, match="no job 'omd-job-0' at this scheduler"):
        jobs.find(client, "omd-job-0")
    nowhere = run("status", "omd-job-0", "--scheduler", workers.scheduler_address)
    assert (nowhere.code, nowhere.out) == (2, "")


def test_doctor_finds_a_fit_cluster_fit(
    data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    """Versions, memory, shards, and an object written here and read there; which is gone then."""
    file = toml(kept(data, tmp_path / "run"), tmp_path / "job.toml")
    found = run("doctor", file, "--scheduler", workers.scheduler_address, "--json").result
    assert [one["ok"] for one in found["workers"]] == [True, True]
    assert not [*(tmp_path / "run").rglob("probe/*")]
    bare = run("doctor", "--scheduler", workers.scheduler_address)
    assert bare.out.count(": fit; 1 threads") == 2


def test_doctor_finds_what_is_wrong(
    data: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version, a disk that is not shared, a worker too small: each by name."""
    table = kept(data, tmp_path / "run")
    with monkeypatch.context() as patch:
        mine = diagnose.versions()
        patch.setattr(
            diagnose, "versions", lambda: {**mine, "streamomd": "0.0.0", "numpy": "0.0.0"}
        )
        told = diagnose.diagnose(client)
        assert all("streamomd is" in one["unfit"][0] for one in told)
        assert all("numpy is" in one["differs"][0] for one in told)
        with pytest.raises(ClusterError, match="unfit for this job"):
            streamomd.submit(table, client=client)
    table["checkpoint"]["url"] = "memory://doctored"
    with pytest.raises(ClusterError, match="on a shared disk"):
        streamomd.submit(table, client=client)


@pytest.mark.slow
def test_doctor_does_not_wait_for_ever_for_a_worker_that_is_busy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said that it does not answer, and what it does."""
    waits(monkeypatch, probe=1.0, doctor=3.0)
    busy = [client.submit(time.sleep, 10, pure=False) for _ in range(2)]
    told = diagnose.diagnose(client)
    assert all("no answer in 3 s: busy with 1 task" in one["unfit"][0] for one in told)
    client.cancel(busy, force=True)


def test_dask_knows_streamomd() -> None:
    """``dask streamomd …``, by Dask's own plug-in point."""
    done = subprocess.run(
        [sys.executable, "-m", "dask", "streamomd", "list", "modes"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "averaged" in done.stdout, done.stderr
