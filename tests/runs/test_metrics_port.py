"""Metrics of a run: served while it lasts, by every command that learns."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import everything, rows, run, train, write
from s3_server import S3Server
from shard_rows import readers

import streamomd
from streamomd.cli import main
from streamomd.core import http_servers
from streamomd.core.errors import MissingExtraError, StorageError, UsageError
from streamomd.core.http_servers import Family, MetricsAddress
from streamomd.core.run_events import Event, count_request, emit, receiving, same_receivers
from streamomd.runs import run_metrics
from streamomd.runs.run_metrics import (
    CONNECTIONS,
    OF_LEARNERS,
    OF_RUN,
    LearnerMetrics,
    RunMetrics,
    serve_metrics,
)
from streamomd.training.metrics import Metrics

DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"
ROWS = 120
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def scraped(url: str, **headers: str) -> str:
    """What a scraper gets."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def parsed(text: str) -> Samples:
    """The samples by name and labels, as Prometheus' own parser reads them."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@dataclass
class Scraper:
    """Scrapes a run of this process at each of its commits."""

    url: str = ""
    texts: list[str] = field(default_factory=list)

    def receive(self, event: Event) -> None:
        if event.name == "metrics":
            self.url = event.fields["url"]
        if event.name == "commit" and self.url:
            self.texts.append(scraped(self.url))

    @property
    def last(self) -> Samples:
        return parsed(self.texts[-1])


@contextmanager
def scraping() -> Iterator[Scraper]:
    scraper = Scraper()
    with receiving(scraper.receive):
        yield scraper
    assert scraper.texts
    with pytest.raises(OSError):
        scraped(scraper.url)
    assert readers() == []


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A shard of 120 rows."""
    write(tmp_path / "data" / "a.parquet", rows(ROWS))
    return tmp_path / "data"


def flags(data: Path, **more: Any) -> dict[str, Any]:
    """A run with a commit every 40 rows."""
    given = {"shards": str(data), "label": "y", "numeric": ["n", "k"], "rule": "nag"}
    sets = {"data.ignore": ["w", "h", "c", "i", "v"], "checkpoint.every_rows": 40,
            "checkpoint.every_seconds": 0}  # fmt: skip
    url = str(data.parent / "run")
    return {**given, "checkpoint": url, "quiet": True, "metrics_port": 0, "sets": sets, **more}


def test_the_metrics_of_a_run_are_those_of_its_result(data: Path) -> None:
    """At its last commit: rows, loss, error, commits; and as numbers in between."""
    with scraping() as scraper:
        model = streamomd.train(**flags(data))
    result, found = model.result(), scraper.last
    assert found["streamomd_rows_total"] == {(): ROWS}
    assert found["streamomd_run_rows"] == {(): ROWS} == found["streamomd_expected_rows"]
    assert found["streamomd_loss"][()] == pytest.approx(result["loss"])
    assert found["streamomd_error"][()] == pytest.approx(result["error"])
    assert "streamomd_rmse" not in found
    assert found["streamomd_rows_per_second"][()] > 0.0
    assert found["streamomd_commit_sequence"] == {(): result["checkpoint"]["sequence"]}
    assert found["streamomd_commit_rows"] == {(): ROWS}
    assert 0.0 <= found["streamomd_commit_age_seconds"][()] < 60.0
    assert found["streamomd_commit_bytes"][()] > 1000
    assert found["streamomd_commits_total"] == {(): len(scraper.texts)}
    assert [parsed(text)["streamomd_commit_sequence"][()] for text in scraper.texts] == [
        *range(len(scraper.texts))
    ]
    for name in ("workers_lost", "store_retries", "commit_failures", "rounds", "rows_again"):
        assert found[f"streamomd_{name}_total"] == {(): 0.0}


def test_runs_of_one_process_have_metrics_apart(data: Path) -> None:
    """Two at a time, in threads: each has its own rows, and the bits of a run without metrics."""

    def one(epochs: int) -> tuple[str, Samples]:
        scraper = Scraper()
        with receiving(scraper.receive):
            url = str(data.parent / f"run-{epochs}")
            model = streamomd.train(**flags(data, epochs=epochs, checkpoint=url))
        return model.state_sha256, scraper.last

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip((1, 3), pool.map(one, (1, 3)), strict=True))
    assert readers() == []
    for epochs, (state, samples) in found.items():
        alone = flags(data, epochs=epochs, metrics_port=None, checkpoint="none")
        assert streamomd.train(**alone).state_sha256 == state
        assert samples["streamomd_run_rows"] == {(): ROWS * epochs}


def after_train(data: Path) -> Path:
    """A finished run."""
    streamomd.train(**flags(data, metrics_port=None))
    return data.parent / "run"


def with_a_shard(data: Path) -> Path:
    """A finished run, and a shard that came later."""
    url = after_train(data)
    write(data / "b.parquet", rows(ROWS, first=1000))
    os.utime(data / "b.parquet", (1, 1))
    return url


def resumed(data: Path) -> None:
    url = after_train(data)
    streamomd.resume(str(url), sets={"train.epochs": 2}, metrics_port=0, quiet=True)


def updated(data: Path) -> None:
    streamomd.update(str(with_a_shard(data)), settle=0, metrics_port=0, quiet=True)


def followed(data: Path) -> None:
    url = str(with_a_shard(data))
    streamomd.follow(url, settle=0, every=0.2, idle_exit=0.3, metrics_port=0, quiet=True)


def swept(data: Path) -> None:
    streamomd.sweep(grid={"eta": "0.1,0.5"}, **flags(data))


def sweep_resumed(data: Path) -> None:
    streamomd.sweep(grid={"eta": "0.1,0.5"}, **flags(data, metrics_port=None))
    url = str(data.parent / "run")
    streamomd.resume_sweep(url, sets={"train.epochs": 2}, metrics_port=0, quiet=True)


VERBS: dict[str, Callable[[Path], object]] = {
    "train": lambda data: streamomd.train(**flags(data)),
    "resume": resumed,
    "update": updated,
    "follow": followed,
    "sweep": swept,
    "resume of a sweep": sweep_resumed,
}
ELSEWHERE = {"submit"}
"""tests/distributed/test_jobs.py has it."""


def test_every_verb_that_learns_has_the_options() -> None:
    """The two options, and no other command has them."""
    having = {
        name for name, command in main.commands.items()
        if {"metrics_port", "metrics_host"} & {param.name for param in command.params}
    }  # fmt: skip
    assert having == {verb for verb in VERBS if " " not in verb} | ELSEWHERE


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_serves_what_it_learned(verb: str, data: Path) -> None:
    """Counters begin with the process; of a sweep each learner has a series."""
    with scraping() as scraper:
        VERBS[verb](data)
    found, again = scraper.last, verb in ("resume", "update", "follow", "resume of a sweep")
    sweep = "sweep" in verb
    labels = [(("learner", f"00{number}"),) for number in range(2)] if sweep else [()]
    assert found["streamomd_rows_total"] == dict.fromkeys(labels, ROWS)
    assert found["streamomd_run_rows"] == dict.fromkeys(labels, ROWS * (2 if again else 1))
    assert set(found["streamomd_loss"]) == set(labels)
    assert found["streamomd_commit_rows"] == {(): ROWS * (2 if again else 1)}
    assert found["streamomd_commit_bytes"][()] > 1000
    assert ("streamomd_lag_seconds" in found) == (verb == "follow")


def documented() -> dict[str, str]:
    """Kinds of the metrics in the documentation's table."""
    lines = DOCS.read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `streamomd_")]
    return {name.strip("`"): kind for name, kind, _ in cells}


def everything_exported() -> RunMetrics:
    """Metrics of a run in which everything has happened."""
    exported = RunMetrics()
    both = {True: Metrics(True), False: Metrics(False)}
    for metrics in both.values():
        metrics.begin(0)
    exported.begin_sweep({"000": both[True], "001": both[False]}, 10)
    for metrics in both.values():
        metrics.current[:] = [4.0, 2.0, 1.0]
        metrics.count(4)
        metrics.bad[-1, 0] = 3
    exported.take_sweep({"000": both[True], "001": both[False]})
    for name, fields in EVENTS.items():
        exported.receive(Event(name, fields=fields))
    return exported


EVENTS: dict[str, dict[str, Any]] = {
    "commit": {"sequence": 3, "rows": 4, "bytes": 10, "seconds": 0.5},
    "store_request": {"operation": "read"},
    "landings": {"oldest_ns": 10**9},
    "update": {"freshness": 2.0},
}


def test_documented_names_are_the_exported_ones() -> None:
    """Each with its type; the table has no other, and a run exports no other."""
    text = http_servers.prometheus_text(everything_exported().families()).decode()
    kinds = {
        line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")
    }
    known = {**OF_LEARNERS, **OF_RUN}
    assert kinds == {f"streamomd_{name}": one.kind for name, one in known.items()}
    assert documented() == kinds
    found = parsed(text)
    for name, one in known.items():
        names = {label for labels in found[f"streamomd_{name}"] for label, _ in labels}
        assert names == {*one.labels, *(("learner",) if name in OF_LEARNERS else ())}
    assert found["streamomd_lag_seconds"][()] == pytest.approx(time.time() - 1, abs=60)


def test_counters_do_not_fall() -> None:
    """A run that returns to a commit learns rows again: they count again."""
    metrics = Metrics(True)
    metrics.begin(0)
    figures = LearnerMetrics(True, 0, metrics.total, {})
    for rows_now, bad in ((100, 2), (60, 1), (90, 2), (120, 5)):
        metrics.rows[-1], metrics.bad[-1, 0] = rows_now, bad
        figures.take(metrics)
    found = {name: value for name, labels, value in figures.values() if not labels}
    assert (found["rows_total"], found["run_rows"]) == (100 + 30 + 30, 120)
    assert [*figures.skipped.values()] == [2 + 1 + 3]


def test_recent_figures_are_of_the_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older of two marks, 10 seconds apart, is where they begin; without rows they end."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    metrics = Metrics(False)
    metrics.begin(0)
    figures = LearnerMetrics(False, 0, metrics.total, {})
    for second in range(1, 61):
        now[0] += 1.0
        loss = 0.0 if second <= 30 else 3.0
        metrics.current[:] += [10.0, 10.0 * loss, 10.0]
        metrics.count(10)
        figures.take(metrics)
    found = {name: value for name, _, value in figures.values()}
    assert found["recent_loss"] == 3.0
    assert found["loss"] == 1.5
    assert found["rows_per_second"] == pytest.approx(10.0)
    now[0] += 1000.0
    assert {name: value for name, _, value in figures.values()}["rows_per_second"] < 1.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_a_port_in_use_is_an_error_before_anything_is_saved(data: Path) -> None:
    """Exit code 2 with the options, no checkpoint; every verb."""
    url, out = data.parent / "run", data.parent / "sweep"
    words = [data, *everything(), "--metrics-port"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command, place in (("train", url), ("sweep", out)):
            done = run(command, *words, port, "--checkpoint", place)
            assert done.code == 2
            assert f"cannot listen on '127.0.0.1', port {port}" in done.err
            assert "choose another --metrics-port or --metrics-host" in done.err
            assert not place.exists()
        train(data, *everything(), "--checkpoint", url)
        commits = sorted(url.joinpath("commits").iterdir())
        for words in (["resume", url, "--epochs", 2], ["update", url], ["follow", url]):
            done = run(*words, "--metrics-port", port)
            assert done.code == 2, done
            assert "cannot listen" in done.err
        assert sorted(url.joinpath("commits").iterdir()) == commits
    assert run("train", data, *everything(), "--metrics-port", free_port()).code == 0


def test_addresses_that_are_none_are_refused(data: Path) -> None:
    """A host without a port, a port that is none, a host that is none; in Python alike."""
    for words in (
        ["--metrics-host", "0.0.0.0"],
        ["--metrics-port", "x"],
        ["--metrics-port", "70000"],
        ["--metrics-port", "0", "--metrics-host", "no host"],
        ["--metrics-port", "0", "--metrics-host", "192.0.2.1"],
    ):
        done = run("train", data, *everything(), "--checkpoint", data.parent / "run", *words)
        assert done.code == 2, words
        assert not (data.parent / "run").exists()
    for port in (True, -1, 65_536, "9100", 1.5):
        with pytest.raises(UsageError, match="expected a port from 0"):
            streamomd.train(**flags(data, metrics_port=port))


def test_every_machine_may_read_only_where_that_is_asked_for(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A note says so; without it, only requests that name a loopback address are answered."""
    families = [Family("streamomd_x", "gauge", "x", {(): 1.0})]
    urls: list[str] = []

    def receive(event: Event) -> None:
        urls.append(event.fields["url"])

    with receiving(receive), serve_metrics(MetricsAddress(0), lambda: families):
        assert "streamomd_x 1.0" in scraped(urls[0], host="localhost:9")
        with pytest.raises(HTTPError, match="421"):
            scraped(urls[0], host="evil.example")
        with pytest.raises(HTTPError, match="404"):
            scraped(urls[0].replace("/metrics", "/etc/passwd"))
    assert "every machine" not in capfd.readouterr().err
    with receiving(receive), serve_metrics(MetricsAddress(0, "0.0.0.0"), lambda: families):
        assert "every machine that reaches it can read them" in capfd.readouterr().err
        at = urls[1].replace("0.0.0.0", "127.0.0.1")
        assert "streamomd_x 1.0" in scraped(at, host="box.internal:9100")


def test_slow_and_strange_clients_delay_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that send nothing, half a request or garbage: others are answered, and the end waits
    for none of them."""
    url: list[str] = []
    clients: list[socket.socket] = []
    monkeypatch.setattr(run_metrics._Handler, "timeout", 60.0)  # of each of them
    began = time.monotonic()
    seen = receiving(lambda event: url.append(event.fields["url"]))
    with seen, serve_metrics(MetricsAddress(0), list):
        port = int(url[0].split(":")[2].split("/")[0])
        for sent in [b"", b"GET /metrics HT", b"\x16\x03\x01\x00\xff", b"A" * 70_000] * 10:
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            clients[-1].sendall(sent)
        assert scraped(url[0]) == ""
        assert len(clients) > CONNECTIONS
    assert time.monotonic() - began < 50.0
    assert readers() == []
    for one in clients:
        one.close()


def test_metrics_have_no_names_of_the_run(data: Path) -> None:
    """No URL, path, credential, column or label value."""
    names = ["data", "canary_column"]
    table = rows(ROWS).append_column("canary_column", [np.arange(ROWS, dtype=np.float64)])
    write(data / "canary_shard.parquet", table)
    (data / "a.parquet").unlink()
    given = flags(data, numeric=["n", "canary_column"], checkpoint=str(data.parent / "canary_run"))
    given["sets"] |= {"data.ignore": ["w", "h", "c", "i", "v", "k"]}
    with scraping() as scraper:
        streamomd.train(**given)
    for text in scraper.texts:
        assert not [word for word in (*names[1:], "canary", "/", "@", "://") if word in text]


def test_without_the_library_the_extra_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'streamomd\[metrics\]'"):
        streamomd.train(**flags(data))
    assert not (data.parent / "run").exists()
    streamomd.train(**flags(data, metrics_port=None))


def test_requests_are_those_that_the_store_received() -> None:
    """Of `train` from its start and of `update`: threads that look for tables, open shards, read
    row groups and write parts are counted too."""
    counted: list[tuple[str, Counter[str]]] = []
    with S3Server() as server:
        options = {"storage_options": server.options}
        for at in range(5):
            server.objects[f"b/rows/{at}.parquet"] = parquet(rows(ROWS, first=at))

        def receive(event: Event) -> None:
            if event.name == "commit":
                counted.append((scraped(scraper.url), Counter(server.requests)))

        with scraping() as scraper, receiving(receive):
            given = flags(Path("unused"), shards="s3://b/rows/", checkpoint="s3://b/run")
            given["sets"]["checkpoint.storage_options"] = server.options
            streamomd.train(**given, **options)
        check_counts(*counted[-1])
        server.objects["b/rows/9.parquet"] = parquet(rows(ROWS, first=9))
        server.requests.clear()
        with scraping() as scraper, receiving(receive):
            options["checkpoint_storage_options"] = server.options
            streamomd.update("s3://b/run", **options, metrics_port=0, quiet=True)
        check_counts(*counted[-1])


def parquet(table: pa.Table) -> bytes:
    """Of 8 row groups."""
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=len(table) // 8)
    return out.getvalue()


def check_counts(text: str, received: Counter[str]) -> None:
    """s3fs asks for an object that is absent by a listing, too; a POST deletes many objects."""
    received["DELETE"] += received.pop("POST", 0)
    requests = parsed(text)["streamomd_store_requests_total"]
    operations = {"read": "GET", "write": "PUT", "delete": "DELETE", "stat": "HEAD"}
    found = {name: requests.get((("operation", name),), 0.0) for name in operations}
    assert found == {name: received[one] for name, one in operations.items()}
    assert 0 < requests[("operation", "list"),] <= received["LIST"]


def test_requests_and_retries_of_a_store_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By operation, those of the checkpoint and of shards; a retry is a request too."""
    from streamomd.checkpoint.stores import remote
    from streamomd.checkpoint.stores.remote import RemoteStore
    from streamomd.shards.filesystem import connect, stat_entry
    from streamomd.shards.shard_file import open_file

    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    exported = RunMetrics()
    with receiving(exported.receive):
        store = RemoteStore.open("memory://metrics-port/run", {})
        store.put("a", b"1234")
        store.read("a")
        fs = connect("memory://metrics-port/run/a", {})
        stat_entry(fs, "/metrics-port/run/a", "memory://metrics-port/run/a")
        file = open_file(fs, "/metrics-port/run/a", "memory://metrics-port/run/a")
        thread = threading.Thread(target=file.read)  # as Arrow's, without a context
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1, **same_receivers()) as pool:
            pool.submit(count_request, "list").result()

        def fails(*_: object, **__: object) -> None:
            raise OSError("no answer")

        monkeypatch.setattr(store._fs, "cat_file", fails)
        with pytest.raises(StorageError):
            store.read("a")
    found = parsed(http_servers.prometheus_text(exported.families()).decode())
    requests = found["streamomd_store_requests_total"]
    assert requests[("operation", "read"),] == 1 + 1 + remote.ATTEMPTS
    assert requests[("operation", "write"),] == 1
    assert requests[("operation", "stat"),] >= 1
    assert requests[("operation", "list"),] == 1
    assert found["streamomd_store_retries_total"] == {(): remote.ATTEMPTS - 1}


def test_an_event_reaches_its_receivers_alone() -> None:
    """Inside a context, and not after it."""
    found: list[str] = []
    with receiving(lambda event: found.append(event.name)):
        emit("commit")
    emit("commit")
    assert found == ["commit"]


def test_a_real_process_is_scraped_while_it_trains(data: Path) -> None:
    """The port is printed; rows grow; stderr is JSON lines; SIGTERM commits and closes the port."""
    words = ["train", data, *everything(), "--checkpoint", data.parent / "run", "--epochs", 10**6,
             "--metrics-port", 0, "--log-format", "json", "--json"]  # fmt: skip
    command = [sys.executable, "-m", "streamomd", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        lines, url, seen = [], "", list[float]()
        for line in process.stderr:
            lines.append(json.loads(line))
            url = url or lines[-1].get("url", "")
            if lines[-1]["event"] == "progress" and lines[-1]["rows"] >= 1 << 10:
                break
        deadline = time.monotonic() + 60
        while len(set(seen)) < 3 and time.monotonic() < deadline:
            seen.append(parsed(scraped(url))["streamomd_rows_total"][()])
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    lines += map(json.loads, err.splitlines())
    assert seen == sorted(seen)
    assert len(set(seen)) >= 3
    assert (process.returncode, out) == (143, b"")
    assert {"metrics", "commit", "progress", "stopping", "stopped"} <= {
        line["event"] for line in lines
    }
    run = str(data.parent / "run")
    assert {line["run"] for line in lines if line["event"] in ("commit", "stopping")} == {run}
    assert lines[-1]["message"].startswith("stopped after row")
    with pytest.raises(OSError):
        scraped(url)
