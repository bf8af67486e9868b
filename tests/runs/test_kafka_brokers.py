"""A run connects to the Kafka brokers that its user names now, and to none that only a checkpoint
names."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("confluent_kafka")

from kafka_topics import Cluster, cluster
from running import run, train

import streamomd
from streamomd.config.build_job import build_job
from streamomd.core.errors import UsageError
from streamomd.runs.worker_task import SentSettings
from streamomd.sources.find import options_for, refuse_recorded
from streamomd.sources.kafka.broker import Broker
from streamomd.sources.kafka.offset_ranges import (
    VARIABLE,
    refuse_unnamed_brokers,
)
from streamomd.training.load_model import load_model
from streamomd.training.open_checkpoint import change_model_job

COLUMNS = ("--type", "y=int64,x=double", "--label", "y", "--rule", "nag")
SECRET = "hunter22-of-the-test"
ROWS = [{"y": n % 2, "x": n / 8} for n in range(20)]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with cluster() as made:
        made.send_rows("t", 0, ROWS)
        yield made


def trained(topic: str, url: Path, *words: str) -> Path:
    """A finished run; the commit before is of a run that is not."""
    every = ("--set", "checkpoint.every_rows=5", "--set", "checkpoint.keep=9")
    train(topic, *COLUMNS, "--checkpoint", url, *every, *words)
    return url


def restored(url: Path, sequence: int) -> None:
    assert run("checkpoint", "restore", url, "--at", sequence).code == 0


class Listener:
    """Counts the connections to an address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_server(address)
        self.address = self._socket.getsockname()

    def connections(self) -> int:
        self._socket.settimeout(0.2)
        found = 0
        while True:
            try:
                self._socket.accept()[0].close()
            except TimeoutError:
                return found
            found += 1

    def close(self) -> None:
        self._socket.close()


def test_no_command_connects_to_brokers_of_a_checkpoint(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author listens at one of the addresses, and gets no connection, whatever is asked for."""
    with closing(Listener(("127.0.0.1", 0))) as free:
        address = free.address
    servers = f"{kafka.servers},127.0.0.1:{address[1]}"
    url = f"kafka://{servers}/t"
    done, stopped = (trained(url, tmp_path / name) for name in ("done", "stopped"))
    restored(stopped, 2)
    for copy in (tmp_path / "cache").rglob("*.arrow"):
        copy.unlink()
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), file)
    with closing(Listener(address)) as listener:
        monkeypatch.setenv(VARIABLE, kafka.servers)
        for words in (
            ("resume", stopped),
            ("resume", stopped, "--accept-new-shards"),
            ("resume", done, "--epochs", "2"),
            ("resume", done, "--accept-new-shards"),
            ("update", done),
            ("update", stopped),
            ("update", done, "--dry-run"),
            ("follow", done, "--idle-exit", "1s"),
        ):
            found = run(*words)
            assert found.code == 2, (words, found.err)
            assert f"the checkpoint names the Kafka brokers {servers}, and this" in found.err
            assert f"does not; named are {kafka.servers}. " in found.err
            assert f"set {VARIABLE}={servers}" in found.err
            assert f'--storage-options: {{"bootstrap.servers": "{servers}"}}' in found.err
        for words in (
            ("resume", done),
            ("inspect", done),
            ("evaluate", done, file),
            ("predict", done, file, "--to", tmp_path / "out"),
            ("certify", done, file),
            ("report", done, "-o", tmp_path / "page.html"),
            ("compare", done, stopped),
            ("checkpoint", "list", done),
            ("checkpoint", "verify", done),
            ("checkpoint", "shards", done),
            ("export", done, "--as", "parquet", "--to", tmp_path / "weights.parquet"),
            ("train", file, "--start", done, "--checkpoint", "none"),
            ("plan", file, "--start", done),
        ):
            found = run(*words)
            assert found.code == 0, (words, found.err)
        for call in (streamomd.resume, streamomd.update):
            with pytest.raises(UsageError, match="the checkpoint names the Kafka brokers"):
                call(str(stopped), quiet=True)
        assert listener.connections() == 0


def test_brokers_are_named_by_flag_or_environment_or_configuration(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any case and order of letters and hosts, and without the port that is the usual one."""
    from fsspec.config import conf

    url = trained(kafka.url("t"), tmp_path / "run")
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps({"bootstrap.servers": f"other,{kafka.servers}"}))
    assert run("update", url, "--storage-options", file).code == 0
    options = {"bootstrap.servers": kafka.servers.upper()}
    streamomd.update(str(url), storage_options=options, quiet=True)
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, kafka.servers)
        assert run("update", url).code == 0
        restored(url, 2)
        assert run("resume", url).code == 0
        follow = ("follow", url, "--every", "10ms", "--idle-exit", "10ms")
        assert run(*follow).code == 0
    with monkeypatch.context() as patch:
        patch.setitem(conf, "kafka", {"bootstrap.servers": kafka.servers})
        assert run("update", url).code == 0
    with monkeypatch.context() as patch:  # the flag wins
        patch.setenv(VARIABLE, kafka.servers)
        file.write_text(json.dumps({"bootstrap.servers": "mine:9092"}))
        done = run("update", url, "--storage-options", file)
        assert done.code == 2
        assert f"{kafka.servers}, and this command does not; named are mine:9092" in done.err


def test_names_of_brokers() -> None:
    both = ["kafka://a,B:7/t/0000000000-00000-0-9", "kafka://[::1]/u"]
    options = options_for(both, {"client.id": "x", "bootstrap.servers": "c"})
    assert options == {"client.id": "x", "bootstrap.servers": "c,a,B:7,[::1]"}
    refuse_unnamed_brokers(["kafka://b:7,A:9092,c/t", "kafka://[::1]:9092/v"], options)
    refuse_recorded(["s3://bucket/rows"], {})
    assert options_for(["rows.parquet"], {}, recorded=True) == {}
    for named in ("", "a:9093", "b:9092", "ab"):
        with pytest.raises(UsageError, match=f"{VARIABLE}=a,b:7"):
            refuse_unnamed_brokers(["kafka://a,b:7/t"], {"bootstrap.servers": named})
    for wrong in ("a b", ["a"], 3, "a,", "kafka://a", "u:p@a"):
        with pytest.raises(UsageError, match="expected hosts with ports"):
            refuse_unnamed_brokers(["kafka://a/t"], {"bootstrap.servers": wrong})


def test_workers_get_the_brokers_of_the_driver(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As part of the storage options that are sent to them: they have another environment."""
    model, _ = load_model(str(trained(kafka.url("t"), tmp_path / "run")))
    assert model.spec.data.storage_options == {}
    monkeypatch.setenv(VARIABLE, kafka.servers)
    change_model_job(model, {}, {"client.id": "a"}, None)
    assert model.spec.data.store_options == {
        "client.id": "a",
        "bootstrap.servers": kafka.servers,
        "types": {"x": "double", "y": "int64"},
    }


def test_a_task_gets_the_brokers_of_its_sender() -> None:
    """The task of ``submit`` resumes from a checkpoint, on a worker."""
    job = build_job({"data": {"shards": ["kafka://a:1/t"], "label": "y"}}, {})
    assert SentSettings.of(job).options[0] == {"bootstrap.servers": "a:1"}
    assert "bootstrap" not in str(job.to_json())


def test_brokers_are_asked_only_if_they_are_named() -> None:
    """Also where no command checked that before."""
    from streamomd.sources.kafka.offset_ranges import Topic

    with pytest.raises(UsageError, match="names the Kafka brokers a:1"):
        Broker(Topic("a:1", "t"), {"sasl.password": SECRET})
    with pytest.raises(UsageError, match=r"metadata\.broker\.list"):
        Broker(Topic("a:1", "t"), {"bootstrap.servers": "a:1", "metadata.broker.list": "b:1"})


def test_no_secret_is_in_a_commit_a_log_or_a_message(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, log, file = tmp_path / "run", tmp_path / "run.jsonl", tmp_path / "kafka.json"
    options = {"sasl.password": SECRET, "bootstrap.servers": kafka.servers}
    file.write_text(json.dumps(options))
    given = ("--storage-options", file, "--log", log)
    texts = []

    def ran(code: int, *words: Any) -> None:
        done = run(*words, *given)
        assert done.code == code, done.err
        texts.append(done.out + done.err)

    trained(kafka.url("t"), url, *map(str, given))
    ran(0, "update", url)
    restored(url, 2)
    ran(0, "resume", url)
    file.write_text(json.dumps({**options, "no.such": SECRET}))
    ran(2, "train", kafka.url("t"), *COLUMNS, "--checkpoint", "none")
    file.write_text(json.dumps({**options, "bootstrap.servers": "mine:1"}))
    ran(2, "update", url)
    monkeypatch.setenv(VARIABLE, f"u:{SECRET}@h")
    file.write_text("{}")
    ran(2, "update", url)
    written = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    assert len(written) > 9
    assert not any(SECRET.encode() in one for one in written)
    assert not any(SECRET in text for text in texts)


def test_a_finished_run_counts_new_messages_by_their_offsets(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads none of them, and says nothing if no brokers are named."""
    kafka.send_rows("counted", 1, ROWS)
    url = trained(kafka.url("counted"), tmp_path / "run")

    def read(*given: Any) -> None:
        raise AssertionError("a message was read")

    monkeypatch.setattr(Broker, "messages", read)
    for named in ("", kafka.servers):
        monkeypatch.setenv(VARIABLE, named)
        assert "not learned" not in run("resume", url).err
    kafka.send_rows("counted", 1, ROWS[:3])
    kafka.send_rows("counted", 3, ROWS[:4])
    found = run("resume", url)
    assert found.code == 0
    assert "2 new shards (7 messages) not learned: streamomd update " in found.err
    monkeypatch.delenv(VARIABLE)
    assert "not learned" not in run("resume", url).err


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["averaged", "sharded"])
def test_workers_read_topics(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Of a new run and of a resumed one, in processes without the variable."""
    url = tmp_path / "run"
    words = ("--mode", mode, "--set", "train.parts=2", "--set", "checkpoint.keep=9")
    topic = f"workers-{mode}"
    for partition in range(3):
        kafka.send_rows(topic, partition, ROWS)
    first = train(kafka.url(topic), *COLUMNS, *words, "--checkpoint", url, "--epochs", "2")
    assert first["rows"] == 120
    for copy in (tmp_path / "cache").rglob("*.arrow"):
        copy.unlink()
    assert run("resume", url, "--epochs", "3").code == 2
    monkeypatch.setenv(VARIABLE, kafka.servers)
    assert run("resume", url, "--epochs", "3", "--json").result["rows"] == 180
