"""Clusters of every kind: empty, lost, started by someone else, over tls, or none at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clustered import PARTS, QUIET, REMOTE, ROUNDS, at_task, job, long, waits
from distributed import Client, LocalCluster
from elsewhere import address_in
from running import run

import streamomd
from streamomd.core.errors import ClusterError, MissingExtraError, UsageError
from streamomd.distributed import cluster

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_waiting_is_calm(client: Client) -> None:
    """Twice a second for any client, without a busy loop."""
    calls = []
    future = client.submit(time.sleep, 2.0, pure=False)
    cluster.wait_until_done(client, future, lambda: calls.append(1))
    assert 2 <= len(calls) <= 8


def test_a_local_cluster_without_cryptography_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No certificate can be made then, and no cluster without one is started."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"streamomd\[cluster\]"):
        cluster.local_security()


@pytest.mark.slow
def test_a_cluster_without_workers_is_waited_for(data: Path, alone: Any) -> None:
    """Workers that come later are used."""
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None) as empty,
        Client(empty, set_as_default=False) as client,
    ):
        client.loop.call_later(1.0, lambda: empty.scale(1))
        there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256


def test_a_cluster_that_stays_empty_is_an_error(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a hang."""
    waits(monkeypatch, lonely=0.5, look=0.2)
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        Client(empty, set_as_default=False) as client,
        pytest.raises(ClusterError, match="no worker at"),
    ):
        streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)


@pytest.mark.slow
def test_a_lost_scheduler_is_an_error_and_the_run_resumes_elsewhere(
    data: Path, alone: Any, small_tasks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On no cluster at all, from the last commit."""
    lost = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(lost, set_as_default=False)
    done = at_task(monkeypatch, 15, lost.close)
    kept = {"url": str(tmp_path / "kept"), "every_rows": 100}
    with pytest.raises(ClusterError, match=r"scheduler .* was lost.*resume"):
        streamomd.train(job(data, cluster=REMOTE, checkpoint=kept), client=client, quiet=True)
    client.close()
    assert done
    assert streamomd.load(kept["url"]).metrics.total_rows >= 100
    resumed = streamomd.resume(kept["url"], sets={"cluster.decode": "local"}, quiet=True)
    assert resumed.state_sha256 == alone.state_sha256


@pytest.mark.parametrize(
    "security",
    [
        pytest.param(False, id="tcp", marks=pytest.mark.slow),
        pytest.param(True, id="tls", marks=pytest.mark.slow),
    ],
)
def test_a_cluster_that_someone_else_started(
    data: Path, alone: Any, expected: str, tmp_path: Path, security: bool
) -> None:
    """A scheduler and two workers as processes of their own, from the command line."""
    options = list(map(str, tls_options(tmp_path))) if security else []
    at = tmp_path / "scheduler.json"
    address = ["--protocol", "tls" if security else "tcp", "--host", "127.0.0.1", "--port", "0"]
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", "--scheduler-file", str(at), "--no-dashboard", *address]
    worker = [*dask, "worker", "--scheduler-file", str(at), "--nthreads", "1", "--no-dashboard"]
    worker += ["--local-directory", str(tmp_path / "worker")]
    started = [subprocess.Popen([*scheduler, *options], stderr=subprocess.DEVNULL)]
    try:
        url = address_in(at)
        started += [
            subprocess.Popen([*worker, *options], stderr=subprocess.DEVNULL) for _ in range(2)
        ]
        assert url.startswith("tls://" if security else "tcp://")
        environment = tls_environment(tmp_path) if security else {}
        command = [sys.executable, "-m", "streamomd", "train", str(job_file(tmp_path, data))]
        rounds = [f"train.parts={PARTS}", f"train.rounds_per_epoch={ROUNDS}"]
        averaged = ["--mode", "averaged", "--checkpoint", str(tmp_path / "run")]
        averaged += [word for key in rounds for word in ("--set", key)]
        for words, sha256 in (
            (["--set", "cluster.decode=remote"], alone.state_sha256),
            (averaged, expected),
        ):
            done = subprocess.run(
                [*command, "--scheduler", url, *words, "--json"],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            assert f'"state_sha256": "{sha256}"' in done.stdout
            assert f"cluster {url}" in done.stderr
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("count", [2, *long(1, 3)])
def test_processes_of_this_machine(data: Path, tmp_path: Path, expected: str, count: int) -> None:
    """One flag chooses the mode and the cluster; the result does not depend on their number."""
    rounds = [f"train.parts={PARTS}", f"train.rounds_per_epoch={ROUNDS}"]
    words = ["train", str(job_file(tmp_path, data)), "--processes", str(count), "--json"]
    words += [word for key in rounds for word in ("--set", key)]
    assert run(*words, "--checkpoint", tmp_path / "run").result["state_sha256"] == expected
    again = run("resume", tmp_path / "run", "--processes", "1", "--json")
    assert again.result["state_sha256"] == expected


@pytest.mark.slow
def test_a_stopped_run_of_processes_logs_no_warning(tmp_path: Path) -> None:
    """Its tasks end with the cluster: that is as it should be."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=400_000)
    pq.write_table(pa.table({"x": x, "y": (x > 0).astype(int)}), tmp_path / "a.parquet")
    words = ["train", tmp_path / "a.parquet", "--label", "y", "--processes", "2", "--epochs", "999"]
    words += ["--checkpoint", tmp_path / "run", "--log", tmp_path / "log"]
    command = [sys.executable, "-m", "streamomd", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and len([*(tmp_path / "run").glob("commits/*")]) < 3:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "WARNING" not in said, said
    assert "of the last complete round" in said


def test_processes_and_another_cluster_are_refused(data: Path, tmp_path: Path) -> None:
    words = ["train", str(job_file(tmp_path, data)), "--processes", "2"]
    words += ["--checkpoint", str(tmp_path / "run")]
    for other in (["--scheduler", "tcp://127.0.0.1:1"], ["--cluster", "os:getcwd"]):
        done = run(*words, *other)
        assert done.code == 2
        assert "two clusters: --processes 2" in done.err


def job_file(folder: Path, data: Path) -> Path:
    """The job as TOML."""
    path = folder / "job.toml"
    path.write_text(
        f"""[data]
shards = "{data}"
label = "y"
weight = "w"
numeric = ["n", "k"]
hashed = ["h", "c"]
bits = 8
sparse = {{ indices = "i", values = "v", size = 100 }}
[model]
rule = "nag"
[train]
epochs = 2
[checkpoint]
url = "none"
"""
    )
    return path


def tls_options(folder: Path) -> list[Any]:
    """Certificates of a day, as Dask's commands take them."""
    from distributed.security import Security

    made = Security.temporary()
    (folder / "ca.pem").write_text(made.tls_ca_file)
    (folder / "key.pem").write_text(made.tls_scheduler_cert + made.tls_scheduler_key)
    key = folder / "key.pem"
    return ["--tls-ca-file", folder / "ca.pem", "--tls-cert", key, "--tls-key", key]


def tls_environment(folder: Path) -> dict[str, str]:
    """The same for every connection, as in Dask's configuration."""
    key = str(folder / "key.pem")
    return {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(folder / "ca.pem"),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": key,
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": key,
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
    }


def test_who_is_no_cluster(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong client or an unreachable address is reported before anything is saved."""
    with pytest.raises(UsageError, match=r"distributed\.Client, not str"):
        streamomd.train(job(data), client="tcp://127.0.0.1:1", **QUIET)
    waits(monkeypatch, connect=0.5)
    done = run("train", job_file(tmp_path, data), "--scheduler", "tcp://127.0.0.1:1")
    assert done.code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.err


def test_a_closed_client_is_refused_before_anything_is_saved(data: Path, tmp_path: Path) -> None:
    """And nothing stays behind."""
    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        client = Client(empty, set_as_default=False)
        client.close()
        with pytest.raises(ClusterError, match="lost"):
            streamomd.train(job(data), client=client, checkpoint=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()
