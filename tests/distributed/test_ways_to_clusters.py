"""Every way to a cluster: address, scheduler file, factory, configuration; one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from clustered import QUIET, REMOTE, job, spread
from distributed import Client, LocalCluster
from elsewhere import address_in, scheduler_words, worker_words
from running import run
from test_clusters import job_file, tls_environment, tls_options

import streamomd
from streamomd.config.cluster_choice import ClusterFactory, choose_cluster
from streamomd.core.errors import InputNotFoundError, StoppedError, UsageError
from streamomd.core.run_events import Event, receiving
from streamomd.distributed.cluster import connect_client, read_scheduler_file
from streamomd.training.signals import StopRequest

pytestmark = pytest.mark.filterwarnings("ignore")
THERE = "test_ways_to_clusters"


@pytest.fixture
def notes() -> Iterator[list[str]]:
    """Messages of a test."""
    texts: list[str] = []
    with receiving(lambda event: texts.append(event.text)):
        yield texts


made: list[Any] = []
"""What factories returned, for the tests to look at."""
address = ""


def borrowed() -> Client:
    """A factory: a client of a cluster that stays."""
    made.append(Client(address, set_as_default=False))
    return made[-1]


class Tiny(LocalCluster):
    """A factory: a cluster of one thread of this process."""

    def __init__(self) -> None:
        super().__init__(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
        made.append(self)


def asynchronous() -> Any:
    """A factory of a client that has to be awaited."""

    async def make() -> Client:
        return await Client(address, asynchronous=True, set_as_default=False)

    return asyncio.run(make())


async def coroutine() -> None:
    """An asynchronous factory."""


def failing() -> None:
    raise RuntimeError("no quota at https://u:CANARY@cloud")


def leaving() -> None:
    sys.exit(0)


def silent() -> None:
    """Nothing is returned."""


def slow() -> None:
    """A cluster that takes a minute; a signal comes meanwhile."""
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
    time.sleep(60)


@pytest.fixture
def at(workers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scheduler file of a cluster."""
    monkeypatch.setattr(sys.modules[__name__], "address", workers.scheduler_address)
    made.clear()
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"type": "Scheduler", "address": workers.scheduler_address}))
    return path


@pytest.mark.parametrize("way", ["file", "factory of a client", "factory of a cluster"])
@pytest.mark.sample(3)
def test_the_bits_are_those_of_one_process(
    data: Path, alone: Any, at: Path, notes: list[str], client: Client, way: str
) -> None:
    """By each way; what a factory made is closed, the cluster that it borrowed is not."""
    given: dict[str, Any] = {
        "file": {"scheduler": str(at)},
        "factory of a client": {"client": ClusterFactory(f"{THERE}:borrowed")},
        "factory of a cluster": {"client": ClusterFactory(f"{THERE}:Tiny")},
    }[way]
    there = streamomd.train(job(data, cluster=REMOTE), **given, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    if way == "file":
        assert f"the scheduler file {at} names {address}" in notes
    else:
        assert f"making a cluster: {given['client']}" in notes
        assert [str(one.status).rpartition(".")[2] for one in made] == ["closed"]
    assert client.submit(int, 7).result() == 7


def test_the_configuration_names_a_cluster(
    data: Path, expected: str, at: Path, notes: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In a mode that needs one, if nothing else is given; a line says where it comes from."""
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with dask.config.set({"scheduler-address": address}):
        there = streamomd.train(spread(data, tmp_path / "run"), quiet=True)
        assert there.state_sha256 == expected
        assert f"cluster {address}: from DASK_SCHEDULER_ADDRESS" in notes
        assert run("logs", "omd-job-0").err.startswith(f"cluster {address}: from DASK_SCHEDULER")
        notes.clear()
        streamomd.train(job(data), **QUIET)  # exact mode needs none
        assert not [text for text in notes if text.startswith("cluster")]
    with dask.config.set({"streamomd.cluster": f"{THERE}:borrowed"}):
        done = run("status", "omd-job-0")
        assert "from streamomd.cluster in Dask's configuration" in done.err
        assert "no job 'omd-job-0' at this scheduler" in done.err
    assert [one.status for one in made] == ["closed"]


def test_one_cluster_at_a_time() -> None:
    """The order: what is passed, the job, the configuration. Two at a time are refused."""
    factory, both = ClusterFactory("a:b"), {"scheduler-address": "h:1", "streamomd.cluster": "a:b"}
    assert choose_cluster(None, None, needed=True) == (None, "", "")
    with dask.config.set({"scheduler-address": "tcp://h:1"}):
        there = "scheduler-address in Dask's configuration"
        assert choose_cluster(None, None, needed=True) == (None, "tcp://h:1", there)
        assert choose_cluster(None, None, needed=False) == (None, "", "")
        assert choose_cluster(None, "", needed=True) == (None, "", "")
        assert choose_cluster(None, "tcp://g:1", needed=True) == (None, "tcp://g:1", "")
        assert choose_cluster(factory, None, needed=True) == (factory, "", "")
        assert choose_cluster(factory, "", needed=True) == (factory, "", "")
    with pytest.raises(UsageError, match="two clusters: --cluster a:b, and the scheduler tcp://"):
        choose_cluster(factory, "tcp://g:1", needed=False)
    with dask.config.set(both), pytest.raises(UsageError, match="two clusters in Dask's config"):
        choose_cluster(None, None, needed=True)
    with (
        dask.config.set({"scheduler-address": 8786}),
        pytest.raises(UsageError, match="scheduler-address = 8786 in Dask's configuration: expec"),
    ):
        choose_cluster(None, None, needed=True)


@pytest.mark.parametrize(
    "factory, reason",
    [
        ("nowhere_at_all:f", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (f"{THERE}:borowed", f"{THERE} has no 'borowed'; did you mean 'borrowed'?"),
        (f"{THERE}:THERE", "expected a function, not str"),
        (f"{THERE}:failing", "the factory raised RuntimeError: no quota at https://…"),
        (f"{THERE}:leaving", "the factory raised SystemExit: 0"),
        (f"{THERE}:silent", "returned NoneType; expected a Dask cluster or a distributed.Client"),
        (f"{THERE}:coroutine", "returned coroutine; expected a Dask cluster"),
        (f"{THERE}:asynchronous", "returned an asynchronous Client"),
        ("os:getcwd", "returned str; expected a Dask cluster"),
    ],
)
def test_a_factory_that_fails_is_named(at: Path, factory: str, reason: str) -> None:
    """Exit code 2, one message."""
    done = run("status", "omd-job-0", "--cluster", factory)
    lines = [line for line in done.err.splitlines() if not line.startswith("making a cluster")]
    assert (done.code, done.out, len(lines)) == (2, "", 1), done.err
    assert lines[0].startswith(f"streamomd: --cluster {factory}")
    assert reason.replace("https://…", "") in done.err
    assert "CANARY" not in done.err


def test_a_signal_while_a_cluster_is_made(at: Path) -> None:
    """It ends the factory, and the command."""
    with (
        pytest.raises(StoppedError, match="stopped while making a cluster") as caught,
        connect_client(ClusterFactory(f"{THERE}:slow"), ""),
    ):
        pass
    assert caught.value.exit_code == 143


def test_a_job_is_not_left_on_a_cluster_that_ends(data: Path, at: Path, tmp_path: Path) -> None:
    """submit refuses it before the first commit."""
    table = job(data, checkpoint={"url": str(tmp_path / "run")})
    with pytest.raises(UsageError, match="the Tiny that it made ends with this process"):
        streamomd.submit(table, client=ClusterFactory(f"{THERE}:Tiny"))
    assert not (tmp_path / "run").exists()
    assert len(made) == 1


def test_a_scheduler_file_is_waited_for(tmp_path: Path) -> None:
    """Until it is complete: the scheduler may start at the same time."""
    path = tmp_path / "scheduler.json"

    def write() -> None:
        path.write_text('{"addr')
        time.sleep(0.3)
        path.write_text('{"address": "tls://h:8786"}')

    threading.Timer(0.3, write).start()
    assert read_scheduler_file(str(path), StopRequest()) == "tls://h:8786"


@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "no scheduler file"),
        ("", "is not a scheduler file: Expecting value"),
        ("[1]", "it has no text 'address' such as"),
        ('{"address": 7}', "it has no text 'address' such as"),
        ('{"address": "h"}', "it has no text 'address' such as"),
    ],
)
def test_a_scheduler_file_without_an_address(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    """It is named after connect-seconds; a signal ends the wait."""
    path = tmp_path / "scheduler.json"
    if content is not None:
        path.write_text(content)
    with dask.config.set({"streamomd.connect-seconds": 0.2}):
        with pytest.raises((InputNotFoundError, UsageError), match=reason) as caught:
            read_scheduler_file(str(path), StopRequest())
        assert "waited 0.2 s for it" in str(caught.value)
        assert caught.value.exit_code == 2
    stopped = StopRequest()
    stopped.signal = signal.SIGINT
    with pytest.raises(StoppedError, match="waiting for the scheduler file"):
        read_scheduler_file(str(path), stopped)


def test_a_job_and_a_checkpoint_name_no_factory(
    data: Path, at: Path, tmp_path: Path, client: Client
) -> None:
    """A job file with one is refused. A run by a factory records neither it nor its address."""
    with pytest.raises(UsageError, match=r"cluster\.factory"):
        streamomd.train(job(data, cluster={"factory": f"{THERE}:borrowed"}), **QUIET)
    url = tmp_path / "run"
    factory = ClusterFactory(f"{THERE}:borrowed")
    table = job(data, cluster=REMOTE, checkpoint={"url": str(url)})
    streamomd.train(table, client=factory, quiet=True)
    written = "".join(path.read_text() for path in url.glob("commits/*.json"))
    assert THERE not in written
    assert address not in written
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_commands_with_the_file_of_a_scheduler(
    data: Path, alone: Any, tmp_path: Path, protocol: str
) -> None:
    """As processes: train starts before the scheduler, then doctor, submit and logs of the job;
    with tls:// certificates come from Dask's configuration."""
    at = tmp_path / "scheduler.json"
    tls = list(map(str, tls_options(tmp_path))) if protocol == "tls" else []
    environment = {**os.environ, **(tls_environment(tmp_path) if tls else {})}
    name = str(job_file(tmp_path, data))
    command, quiet = [sys.executable, "-m", "streamomd"], {"stderr": subprocess.DEVNULL}
    words = [*command, "train", name, "--scheduler", str(at), "--checkpoint", "none", "--json",
             "--set", "cluster.decode=remote"]  # fmt: skip
    training = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    started = [subprocess.Popen([*scheduler_words(at, protocol=protocol), *tls], **quiet)]
    try:
        assert address_in(at).startswith(f"{protocol}://")
        started.append(subprocess.Popen([*worker_words(at, tmp_path / "w"), *tls], **quiet))
        out, _ = training.communicate(timeout=200)
        assert json.loads(out)["state_sha256"] == alone.state_sha256

        def result(*words: str) -> Any:
            done = subprocess.run(
                [*command, *words, "--json"], env=environment, capture_output=True, text=True,
                check=True, timeout=200,
            )  # fmt: skip
            return json.loads(done.stdout.splitlines()[-1])

        assert all(one["ok"] for one in result("doctor", name, "--scheduler", str(at))["workers"])
        there = ["--scheduler", str(at)]
        found = result("submit", name, *there, "--checkpoint", str(tmp_path / "submitted"))
        assert result("logs", found["id"], "--follow", *there)["lines"]
        assert result("status", found["id"], *there)["state"] == "finished"
        assert streamomd.load(str(tmp_path / "submitted")).state_sha256 == alone.state_sha256
    finally:
        training.kill()
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_factory_in_the_current_directory(data: Path, alone: Any, tmp_path: Path) -> None:
    """The command finds it; the one of the configuration is not looked for there."""
    text = "def make():\n    from distributed import LocalCluster\n"
    text += "    return LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
    (tmp_path / "our_cluster.py").write_text(text)
    name = str(job_file(tmp_path, data))
    words = [sys.executable, "-m", "streamomd", "train", name, "--json", "--checkpoint", "none",
             "--set", "cluster.decode=remote"]  # fmt: skip
    given: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 200}
    done = subprocess.run([*words, "--cluster", "our_cluster:make"], check=True, **given)
    assert json.loads(done.stdout.splitlines()[-1])["state_sha256"] == alone.state_sha256
    environment = {**os.environ, "DASK_STREAMOMD__CLUSTER": "our_cluster:make",
                   "PYTHONSAFEPATH": "1"}  # fmt: skip
    done = subprocess.run(words, env=environment, check=False, **given)
    assert done.returncode == 2
    assert "streamomd.cluster our_cluster:make: module our_cluster raised" in done.stderr


@pytest.mark.slow
def test_an_adaptive_cluster_shrinks_in_the_middle(
    data: Path, tmp_path: Path, expected: str, alone: Any
) -> None:
    """LocalCluster.adapt down to one worker, then up again: the bits of averaged and exact mode."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        sizes = [1, 2]

        def adapt(event: Event) -> None:
            if event.name == "rounds" and sizes:
                size = sizes.pop(0)
                cluster.adapt(minimum=size, maximum=size, interval="100ms", wait_count=1)

        with receiving(adapt):
            there = streamomd.train(spread(data, tmp_path / "run"), client=client, quiet=True)
        assert not sizes
        assert there.state_sha256 == expected
        cluster.adapt(minimum=1, maximum=1, interval="100ms", wait_count=1)
        exact = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
        assert exact.state_sha256 == alone.state_sha256
