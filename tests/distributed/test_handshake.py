"""The handshake with a scheduler: it ends, whatever is at the address, and a signal ends it."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
import pytest
from clustered import QUIET, job, long, waits
from distributed import LocalCluster
from distributed.core import Server
from distributed.security import Security
from distributed.utils import LoopRunner
from elsewhere import address_in, elsewhere, scheduler_words, worker_words
from servers import KINDS, serving
from test_clusters import job_file

import streamomd
from streamomd.core.errors import ClusterError
from streamomd.distributed.cluster import connect_client

SENTENCE = (
    "this address accepts connections but is not a Dask scheduler (is it the dashboard's port?)"
)
STREAMOMD = [sys.executable, "-m", "streamomd"]
BRIEF = {**os.environ, "DASK_STREAMOMD__CONNECT_SECONDS": "2"}


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Dask leaves a connection whose handshake is given up to the garbage collector, which warns of
    it: here, not in the tests that run later in this process."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def started(*words: Any, environment: dict[str, str] = BRIEF) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*STREAMOMD, *map(str, words)], env=environment, **pipes)


def test_what_takes_connections_and_is_no_scheduler_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent, a web server, one that hangs up, one that trickles bytes: ClusterError with the
    sentence, and no thread or event loop stays behind."""
    waits(monkeypatch, connect=1.0)
    for kind in KINDS:
        with serving(kind) as (address, came):
            with pytest.raises(ClusterError) as caught:
                streamomd.train(job(data, cluster={"scheduler": address}), **QUIET)
            assert came.is_set()
        assert str(caught.value) == f"{address}: {SENTENCE}"
        assert caught.value.exit_code == 1
    assert "streamomd-client" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("command", ["doctor", *long("train", "submit", "status")])
def test_a_command_exits_1_with_the_sentence_and_nothing_else(
    data: Path, tmp_path: Path, command: str
) -> None:
    """One line on stderr; no traceback, and no log of Dask's."""
    with serving("silent") as (address, _):
        what = [] if command == "doctor" else [job_file(tmp_path, data)]
        what = ["omd-job-0"] if command == "status" else what
        more = ["--checkpoint", tmp_path / "run"] if command in ("train", "submit") else []
        ran = started(command, *what, *more, "--scheduler", address)
        _, said = ran.communicate(timeout=120)
    assert ran.returncode == 1
    assert said.splitlines()[-1] == f"streamomd: {address}: {SENTENCE}"
    assert "Traceback" not in said
    assert "distributed" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")  # Dask's own: a port is taken
def test_the_dashboard_s_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one."""
    waits(monkeypatch, connect=2.0)
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        port = cluster.scheduler.http_server.port
        with (
            pytest.raises(ClusterError, match="is it the dashboard's port"),
            connect_client(None, f"tcp://127.0.0.1:{port}"),
        ):
            pass


class OldScheduler(Server):
    """What a scheduler before 2025.4 answers: it does not know the arguments of this client."""

    def __init__(self, found: str) -> None:
        packages = {"packages": {"distributed": found}}
        super().__init__({"identity": lambda: {"type": "Scheduler"}, "versions": lambda: packages})


@pytest.mark.parametrize(
    "found, text",
    [
        (
            "2025.3.0",
            "has distributed 2025.3.0, and this process {}: upgrade the scheduler to ",
        ),
        ("2026.1.1", "(distributed 2026.1.1) did not accept this client in time"),
    ],
)
def test_a_scheduler_of_an_old_version_is_named(
    found: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both versions, and the oldest that works."""
    waits(monkeypatch, connect=5.0)
    runner = LoopRunner()
    runner.start()
    server = OldScheduler(found)
    runner.run_sync(server.listen, "tcp://127.0.0.1:0")
    with (
        pytest.raises(ClusterError, match=re.escape(text.format(version("distributed")))),
        connect_client(None, server.address),
    ):
        pass
    runner.run_sync(server.close)
    runner.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("found, works", [("2025.3.0", False), ("2025.4.0", True)])
def test_the_oldest_scheduler_that_works(
    found: str, works: bool, data: Path, alone: Any, tmp_path: Path
) -> None:
    """A real one of that version, with workers of this one; the version before is refused by
    name."""
    home, at = tmp_path / "old", tmp_path / "scheduler.json"
    for words in (["venv", home], ["pip", "install", "--python", home, f"distributed=={found}"]):
        if subprocess.run([sys.executable, "-m", "uv", *map(str, words)], check=False).returncode:
            pytest.skip(f"distributed {found} cannot be installed here")
    words = [str(home / "bin" / "python"), *scheduler_words(at)[1:]]
    started = [subprocess.Popen(words, stderr=subprocess.DEVNULL)]
    try:
        address = address_in(at)
        started.append(
            subprocess.Popen(worker_words(at, tmp_path / "w"), stderr=subprocess.DEVNULL)
        )
        given = job(data, cluster={"scheduler": address, "decode": "remote"})
        if works:
            assert streamomd.train(given, **QUIET).state_sha256 == alone.state_sha256
        else:
            with pytest.raises(ClusterError, match=f"has distributed {found}, and this process"):
                streamomd.train(given, **QUIET)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")  # Dask's own: a port is taken
def test_certificates_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler over TLS and a client without certificates, by either address, or with others;
    and one over TCP at an address of TLS."""
    waits(monkeypatch, connect=5.0)
    made, other = Security.temporary(), Security.temporary().get_tls_config_for_role("client")
    found: dict[str, Any] = {"dashboard_address": None, "n_workers": 0}
    with (
        LocalCluster(**found, security=made) as secure,
        LocalCluster(**found, protocol="tcp") as plain,
    ):
        host, port = secure.scheduler_address.removeprefix("tls://").split(":")
        cases = [
            (secure.scheduler_address, "this process has no certificates for TLS", {}),
            (f"tcp://{host}:{port}", f"this address uses TLS: if it is a Dask scheduler, pass tls:"
             f"//{host}:{port}", {}),
            (secure.scheduler_address, "certificates of scheduler and client do not match", other),
            (plain.scheduler_address.replace("tcp", "tls"), "does not use TLS: pass tcp:", other),
        ]  # fmt: skip
        for address, text, tls in cases:
            settings = {
                "distributed.comm.tls.ca-file": tls.get("ca_file"),
                "distributed.comm.tls.client.cert": tls.get("cert"),
                "distributed.comm.tls.client.key": tls.get("key"),
            }
            with (
                dask.config.set(settings),
                pytest.raises(ClusterError, match=re.escape(text)),
                connect_client(None, address),
            ):
                pass


@pytest.mark.filterwarnings("ignore")  # Dask's own: a port is taken
def test_a_worker_s_port_is_no_scheduler_s(
    workers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It speaks Dask's protocol, and knows no clients."""
    waits(monkeypatch, connect=2.0)
    [address, *_] = workers.scheduler.workers
    with pytest.raises(ClusterError, match="not a Dask scheduler"), connect_client(None, address):
        pass


@pytest.mark.parametrize(
    "command, number",
    [("train", signal.SIGTERM), *long(("train", signal.SIGINT), ("doctor", signal.SIGTERM))],
)
def test_the_first_signal_while_connecting_ends_the_command(
    data: Path, tmp_path: Path, command: str, number: int
) -> None:
    """143 for SIGTERM, 130 for SIGINT, with one line that says so; nothing is saved."""
    patient = {**os.environ, "DASK_STREAMOMD__CONNECT_SECONDS": "600"}
    with serving("silent") as (address, came):
        more = ["--checkpoint", tmp_path / "run"] if command == "train" else []
        words = [command, job_file(tmp_path, data), *more, "--scheduler", address]
        ran = started(*words, environment=patient)
        assert came.wait(120)
        ran.send_signal(number)
        _, said = ran.communicate(timeout=60)
    assert ran.returncode == 128 + number, said
    assert said.splitlines()[-1] == f"streamomd: stopped while connecting to {address}"
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_client_that_is_made_here_is_as_any_other(
    data: Path, alone: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run by address: the bits, and nothing left behind or said when it is closed."""
    with elsewhere(tmp_path, 1) as (address, _):
        cluster = {"scheduler": address, "decode": "remote"}
        found = streamomd.train(job(data, cluster=cluster), **QUIET)
    assert found.state_sha256 == alone.state_sha256
    assert "streamomd-client" not in [thread.name for thread in threading.enumerate()]
    assert capfd.readouterr().err == ""
