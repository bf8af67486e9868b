"""Exact mode with a cluster that decodes: the bits of one process, whatever happens to workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from running import rows, run, write

import streamomd
from streamomd.distribute import choose, cluster, decode
from streamomd.errors import (
    BadRowError,
    ClusterError,
    DataError,
    StoppedError,
    StreamomdError,
    UsageError,
)

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, GROUP = 5_000, 900
QUIET = {"checkpoint": "none", "quiet": True}
REMOTE = {"decode": "remote"}


def long(*values: int) -> list[Any]:
    """Cases of the long run."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards, groups that are not cut evenly."""
    folder = tmp_path_factory.mktemp("rows") / "data"
    for i in range(4):
        write(folder / f"{i}.parquet", rows(ROWS, first=i * ROWS), row_group_size=GROUP)
    return folder


def job(data: Path, **tables: Any) -> dict[str, Any]:
    """Every kind of column, two epochs."""
    pair = {"indices": "i", "values": "v", "size": 100}
    columns = {"numeric": ["n", "k"], "hashed": ["h", "c"], "sparse": pair}
    described = {"shards": [str(data)], "label": "y", "weight": "w", "bits": 8, **columns}
    return {"data": described, "train": {"epochs": 2}, **tables}


@pytest.fixture(scope="module")
def alone(data: Path) -> Any:
    """The run of one process."""
    return streamomd.train(job(data), **QUIET)


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    """Worker processes with a thread each; a test says how many it wants."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


@pytest.fixture
def client(workers: LocalCluster) -> Iterator[Client]:
    """A client of two workers."""
    sized(workers, 2)
    with Client(workers, set_as_default=False) as made:
        yield made


def sized(workers: LocalCluster, count: int) -> None:
    """As many workers as that, running."""
    workers.scale(count)
    deadline = time.monotonic() + 60
    while len(workers.scheduler.workers) != count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozen tasks in a run, so that there is something in between."""
    monkeypatch.setattr(decode, "TASK_BYTES", 60_000)


def at_task(monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], None]) -> list[int]:
    """Have something happen just before a task's result is waited for; [number] once it has."""
    taken, seen, done = decode.Decoders._taken, [0], []

    def counting(self: Any, sent: Any) -> Any:
        seen[0] += 1
        if seen[0] == number:
            done.append(number)
            happens()
        return taken(self, sent)

    monkeypatch.setattr(decode.Decoders, "_taken", counting)
    return done


@pytest.mark.parametrize("count", [3, *long(1, 2)])
def test_bits_are_those_of_one_process(
    data: Path, alone: Any, workers: LocalCluster, small_tasks: None, count: int
) -> None:
    """Whatever the number of workers: state, loss, names."""
    sized(workers, count)
    with Client(workers, set_as_default=False) as client:
        there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert there.result()["loss"] == alone.result()["loss"]
    assert there.names.to_json() == alone.names.to_json()


@pytest.mark.parametrize("window", [1, 3, *long(2, 4, 5, 6, 7, 8)])
def test_bits_do_not_depend_on_the_window(
    data: Path, alone: Any, client: Client, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Of so many tasks ahead; never are more of them under way."""
    monkeypatch.setattr(decode, "TASK_BYTES", 20_000)
    monkeypatch.setattr(decode.Decoders, "_has_room", lambda _, pending: len(pending) < window)
    most, taken = [0], decode.Decoders._taken

    def counting(self: Any, sent: Any) -> Any:
        asked = [key for key in client.futures if str(key).startswith("omd-decode")]
        most[0] = max(most[0], len(asked))
        return taken(self, sent)

    monkeypatch.setattr(decode.Decoders, "_taken", counting)
    there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert most[0] <= window + 1


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
    monkeypatch.setattr(cluster, "LONELY_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "TOLD_SECONDS", 0.2)
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        Client(empty, set_as_default=False) as client,
        pytest.raises(ClusterError, match="no worker at"),
    ):
        streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)


@pytest.mark.parametrize("how", ["kill", "retire"])
@pytest.mark.parametrize("seed", [0, *long(1, 2, 3, 4, 5)])
def test_a_worker_that_goes_costs_no_bit(
    data: Path,
    alone: Any,
    client: Client,
    workers: LocalCluster,
    small_tasks: None,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    seed: int,
) -> None:
    """kill -9 and retirement at seeded tasks."""
    draw = random.Random(f"{how}-{seed}")

    def happens() -> None:
        found = sorted(workers.scheduler.workers.values(), key=lambda one: one.address)
        one = draw.choice(found)
        if how == "retire":
            workers.scale(1)
        else:
            pids = client.run(os.getpid, workers=[one.address])
            os.kill(pids[one.address], signal.SIGKILL)

    done = at_task(monkeypatch, draw.randrange(2, 24), happens)
    there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert done
    assert there.state_sha256 == alone.state_sha256
    sized(workers, 2)


def test_a_lost_scheduler_is_an_error_and_the_run_goes_on_elsewhere(
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


@pytest.mark.parametrize("security", [False, True], ids=["tcp", "tls"])
def test_a_cluster_that_someone_else_started(
    data: Path, alone: Any, tmp_path: Path, security: bool
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
        wait_for(at)
        started += [
            subprocess.Popen([*worker, *options], stderr=subprocess.DEVNULL) for _ in range(2)
        ]
        url = address_in(at)
        assert url.startswith("tls://" if security else "tcp://")
        environment = tls_environment(tmp_path) if security else {}
        command = [sys.executable, "-m", "streamomd", "train", str(job_file(tmp_path, data))]
        done = subprocess.run(
            [*command, "--scheduler", url, "--set", "cluster.decode=remote", "--json"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert f'"state_sha256": "{alone.state_sha256}"' in done.stdout
        assert f"cluster {url}" in done.stderr
    finally:
        for process in started:
            process.kill()
            process.wait()


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
[train]
epochs = 2
[checkpoint]
url = "none"
"""
    )
    return path


def wait_for(path: Path) -> None:
    """Until a file is there."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def address_in(path: Path) -> str:
    """The scheduler's, of its file."""
    import json

    address: str = json.loads(path.read_text())["address"]
    return address


def tls_options(folder: Path) -> list[Any]:
    """Certificates of a day, as Dask's commands take them."""
    from distributed.security import Security

    made = Security.temporary()
    (folder / "ca.pem").write_text(made.tls_ca_file)
    (folder / "key.pem").write_text(made.tls_scheduler_cert + made.tls_scheduler_key)
    key = folder / "key.pem"
    return ["--tls-ca-file", folder / "ca.pem", "--tls-cert", key, "--tls-key", key]


def tls_environment(folder: Path) -> dict[str, str]:
    """The same for whoever connects, as Dask's configuration takes it."""
    key = str(folder / "key.pem")
    return {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(folder / "ca.pem"),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": key,
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": key,
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
    }


def test_errors_are_those_of_one_process(tmp_path: Path, client: Client) -> None:
    """A bad row on a worker: class, reason and message, and the rows before it are learned."""
    table = rows(3_000).to_pydict()
    table["n"][1_777] = float("nan")
    folder = write(tmp_path / "data" / "a.parquet", table, row_group_size=500).parent
    errors = []
    for settings, given in (({}, None), (REMOTE, client)):
        with pytest.raises(BadRowError) as caught:
            streamomd.train(job(folder, cluster=settings), client=given, **QUIET)
        errors.append((str(caught.value), caught.value.reason, type(caught.value)))
    assert errors[0] == errors[1]
    assert "row 1777" in errors[0][0]


def test_a_shard_that_is_replaced_is_noticed(
    tmp_path: Path, client: Client, small_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another process than the one that found it."""
    path = write(tmp_path / "data" / "a.parquet", rows(3_000), row_group_size=500)
    write(tmp_path / "data" / "b.parquet", rows(3_000), row_group_size=500)
    monkeypatch.setattr(decode.Decoders, "_has_room", lambda _, pending: not pending)
    at_task(monkeypatch, 3, lambda: write(path, rows(2_999), row_group_size=500) and None)
    with pytest.raises(DataError, match="was replaced while it was in use"):
        streamomd.train(job(path.parent, cluster=REMOTE), client=client, **QUIET)


@pytest.mark.parametrize("faster", ["this process", "the cluster"])
def test_the_faster_one_goes_on(
    data: Path,
    alone: Any,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faster: str,
) -> None:
    """Both are tried, one is chosen and said, and no row is learned twice or left out."""
    monkeypatch.setattr(choose, "TRIAL_SECONDS", 1.0)
    clock = iter([0.0, 1.0, 0.0, 2.0] if faster == "this process" else [0.0, 2.0, 0.0, 1.0])
    monkeypatch.setattr(choose, "clock", lambda: next(clock))
    monkeypatch.setattr(decode, "UNIT_BYTES", 10_000)
    monkeypatch.setattr("streamomd.stream.UNIT_BYTES", 10_000)
    there = streamomd.train(job(data), client=client, checkpoint="none")
    assert there.state_sha256 == alone.state_sha256
    assert f"going on with {faster}" in capsys.readouterr().err


def test_who_is_no_cluster(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong client, and an address where nobody answers: said before anything is kept."""
    with pytest.raises(UsageError, match=r"distributed\.Client, not str"):
        streamomd.train(job(data), client="tcp://127.0.0.1:1", **QUIET)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    done = run("train", job_file(tmp_path, data), "--scheduler", "tcp://127.0.0.1:1")
    assert done.code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.err


def test_every_error_crosses_processes() -> None:
    """Message, class and attributes, of each class there is; also once Dask has its own way."""
    import pickle

    from tblib import pickling_support

    from streamomd import errors

    pickling_support.install()  # which Dask does when a task first fails

    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    for kind in (one for one in kinds if issubclass(one, StreamomdError)):
        more = {"BadRowError": {"reason": "nan"}, "StoppedError": {"signal": 15}}
        error = kind("shard a, row 1", **more.get(kind.__name__, {}))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (kind, str(error), error.__dict__)
        assert again.exit_code == error.exit_code


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

    import threading

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
    from streamomd.distribute import learner

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


def test_waiting_is_calm(client: Client) -> None:
    """Twice a second, whoever's client it is: not as fast as a processor can."""
    calls = []
    future = client.submit(time.sleep, 2.0, pure=False)
    cluster.settled(client, future, lambda: calls.append(1))
    assert 2 <= len(calls) <= 8


def test_a_result_that_does_not_come_is_asked_for_again(
    data: Path, alone: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded anew, and from then on through the scheduler."""
    taken, ways = decode.outcome, []

    def lame(*given: Any, direct: bool | None) -> Any:
        ways.append(direct)
        if len(ways) == 3:
            raise cluster.SilentError
        return taken(*given, direct=direct)

    monkeypatch.setattr(decode, "outcome", lame)
    there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert ways[:4] == [True, True, True, None]


def test_in_auto_a_cluster_that_fails_is_left(
    data: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler goes while its workers decode: this process goes on, no row twice."""
    monkeypatch.setattr(decode, "TASK_BYTES", 60_000)
    monkeypatch.setattr("streamomd.stream.UNIT_BYTES", 10_000)
    monkeypatch.setattr(choose, "TRIAL_SECONDS", 0.0)
    lost = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(lost, set_as_default=False)
    done = at_task(monkeypatch, 2, lost.close)
    there = streamomd.train(job(data), client=client, checkpoint="none")
    client.close()
    assert done
    assert there.state_sha256 == alone.state_sha256
    assert "decodes alone from now on" in capsys.readouterr().err


def test_another_version_on_a_worker_is_refused(
    data: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might hash otherwise, in silence."""
    monkeypatch.setattr(cluster, "VERSION", "0.0.0")
    with pytest.raises(ClusterError, match=r"a worker has streamomd .*, this process 0\.0\.0"):
        streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)


def test_a_closed_client_is_refused_before_anything_is_kept(data: Path, tmp_path: Path) -> None:
    """And nothing stays behind."""
    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        client = Client(empty, set_as_default=False)
        client.close()
        with pytest.raises(ClusterError, match="lost"):
            streamomd.train(job(data), client=client, checkpoint=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()
