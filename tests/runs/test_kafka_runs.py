"""Runs over Kafka topics: ranges of offsets are learned once, and read again as they were."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("confluent_kafka")

from kafka_topics import Cluster, cluster, stream_of
from running import run, train

from streamomd.shards.stored_object import forget_recent
from streamomd.sources.kafka import broker, offset_ranges
from streamomd.sources.kafka.broker import Broker
from streamomd.sources.kafka.offset_ranges import VARIABLE, Marks
from streamomd.training.load_model import load_model

COLUMNS = ("--type", "y=int64,x=double,c=string", "--label", "y", "--rule", "nag")
SCHEMA = pa.schema([("c", pa.string()), ("x", pa.float64()), ("y", pa.int64())])


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, kafka.servers)
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(offset_ranges.plan_ranges, "__kwdefaults__", None)
    monkeypatch.setattr(offset_ranges.plan_ranges, "__defaults__", ((), None, 10))


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [{"y": n % 2, "x": n / 8, "c": f"w{n % 5}"} for n in range(begin, end)]


def as_file(path: Path, given: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(given, SCHEMA), path)
    return path


def clear(folder: Path) -> None:
    """Remove all copies of messages."""
    shutil.rmtree(folder / "cache")
    forget_recent()


def restore(url: object, sequence: int) -> None:
    done = run("checkpoint", "restore", url, "--at", sequence)
    assert done.code == 0, done.err


def sha(url: object) -> str:
    return str(run("resume", url, "--json").result["state_sha256"])


def test_a_topic_is_learned_as_a_file_with_its_rows(kafka: Cluster, tmp_path: Path) -> None:
    """In rounds of ten offsets of each partition, whatever the sizes of the partitions."""
    parts = [rows(0, 25), rows(100, 112), [], rows(200, 203)]
    for number, part in enumerate(parts):
        kafka.send_rows("same", number, part)
    order = [parts[p][r * 10 : r * 10 + 10] for r in range(3) for p in range(4)]
    file = as_file(tmp_path / "a.parquet", [row for part in order for row in part])
    expected = train(file, *COLUMNS, "--checkpoint", "none")
    found = train(kafka.url("same"), *COLUMNS, "--checkpoint", tmp_path / "run", "--epochs", "1")
    assert found["rows"] == 40
    assert found["state_sha256"] == expected["state_sha256"]
    document = json.dumps(load_model(str(tmp_path / "run"))[0].spec.to_json())
    assert "kafka://" in document


@pytest.mark.slow
def test_updates_learn_each_message_once(kafka: Cluster, tmp_path: Path) -> None:
    """As one run over the recorded ranges does. A partition that had no message has some later."""
    topic, url = kafka.url("grows"), tmp_path / "run"
    kafka.send_rows("grows", 0, rows(0, 12))
    assert train(topic, *COLUMNS, "--checkpoint", url)["rows"] == 12
    kafka.send_rows("grows", 0, rows(12, 15))
    kafka.send_rows("grows", 3, rows(50, 54))
    assert run("update", url, "--dry-run", "--json").result["new_rows"] == 7
    assert run("update", url, "--json").result["new_rows"] == 7
    assert run("update", url, "--json").result["new_rows"] == 0
    kafka.send_rows("grows", 1, rows(60, 91))
    assert run("update", url, "--max-shards", "1", "--json").result["new_rows"] == 10
    follow = ("follow", url, "--every", "10ms", "--idle-exit", "10ms", "--json")
    assert run(*follow).result["new_rows"] == 21
    names = ["0-0-0-9", "1-0-10-11", "2-0-12-14", "2-3-0-3", "3-1-0-9", "4-1-10-19", "5-1-20-29"]
    names += ["6-1-30-30"]
    each = [name.split("-") for name in names]
    urls = [f"{topic}/{int(r):010d}-{int(p):05d}-{a}-{b}" for r, p, a, b in each]
    clear(tmp_path)
    job = (*COLUMNS, "--set", "data.order=given", "--checkpoint", "none")
    assert train(*urls, *job)["state_sha256"] == sha(url)
    assert run("resume", url, "--epochs", "2", "--json").result["rows"] == 100
    assert run("evaluate", url, topic, "--json").result["rows"] == 50


def test_a_stopped_run_reads_the_recorded_ranges(kafka: Cluster, tmp_path: Path) -> None:
    """From the brokers, as the cache is gone; what was sent since is left to an update."""
    topic, url = kafka.url("stops"), tmp_path / "run"
    kafka.send_rows("stops", 0, rows(0, 30))
    whole = train(topic, *COLUMNS, "--checkpoint", "none")["state_sha256"]
    words = (
        "--checkpoint",
        url,
        "--set",
        "checkpoint.every_rows=7",
        "--set",
        "checkpoint.keep=9",
        "--epochs",
        "1",
    )
    assert train(topic, *COLUMNS, *words)["state_sha256"] == whole
    restore(url, 2)
    kafka.send_rows("stops", 0, rows(30, 40))
    clear(tmp_path)
    done = run("resume", url, "--json")
    assert done.result["rows"] == 30
    assert done.result["state_sha256"] == whole
    assert run("update", url, "--json").result["new_rows"] == 10


@pytest.mark.slow
def test_other_messages_at_the_recorded_offsets_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "run"
    with cluster() as kafka:
        monkeypatch.setenv(VARIABLE, kafka.servers)
        kafka.send_rows("made", 0, rows(0, 20))
        words = (
            "--checkpoint",
            url,
            "--set",
            "checkpoint.every_rows=5",
            "--set",
            "checkpoint.keep=9",
        )
        train(kafka.url("made"), *COLUMNS, *words)
        restore(url, 1)
        clear(tmp_path)
        kafka.send_rows("other", 0, rows(1, 21))
        read = Broker._read

        def read_other(self: Broker, consumer: Any, offsets: Any) -> Any:
            place = ("other", offsets.partition, offsets.first)
            consumer.assign([self._confluent.TopicPartition(*place)])
            return read(self, consumer, offsets)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Broker, "_read", read_other)
            done = run("resume", url)
        assert done.code == 3, done.err
        assert "was replaced since this run recorded it" in done.err
        assert run("resume", url, "--json").code == 3, "the wrong copy stays"


@pytest.mark.slow
def test_messages_that_were_deleted_are_named(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention of the mocked brokers deletes them. The run ends, as it cannot learn them."""
    monkeypatch.setattr(offset_ranges.plan_ranges, "__defaults__", ((), None, 10_000))
    topic, url = kafka.url("short"), tmp_path / "run"
    kafka.send_rows("short", 0, rows(0, 10))
    train(
        topic,
        *COLUMNS,
        "--checkpoint",
        url,
        "--set",
        "checkpoint.every_rows=5",
        "--set",
        "checkpoint.keep=9",
    )
    kafka.send("short", 0, [b" " * 200_000] * 60)
    done = run("update", url)
    assert done.code == 3
    assert "partition 0: offsets 10 to " in done.err
    assert "retention" in done.err
    restore(url, 1)
    clear(tmp_path)
    done = run("resume", url)
    assert done.code == 3, done.err
    assert "short, partition 0, offsets 0 to 9: the partition has offsets " in done.err


@pytest.mark.slow
def test_another_number_of_partitions_is_refused(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, url = kafka.url("splits"), tmp_path / "run"
    kafka.send_rows("splits", 0, rows(0, 10))
    train(topic, *COLUMNS, "--checkpoint", url)
    marks = Broker.marks
    monkeypatch.setattr(Broker, "marks", lambda self: {**marks(self), 4: Marks(0, 3)})
    done = run("update", url)
    assert done.code == 3
    assert "has 5 partitions now, and had 4 when the run started" in done.err


def test_a_topic_that_was_made_again_is_refused(kafka: Cluster, tmp_path: Path) -> None:
    """By its id, where brokers report one: it may have more messages than were learned."""
    url, later = tmp_path / "run", tmp_path / "later"
    kafka.send_rows("again", 0, rows(0, 12))
    train(kafka.url("again"), *COLUMNS, "--checkpoint", later)
    kafka.ids["again"] = 7
    train(kafka.url("again"), *COLUMNS, "--checkpoint", url)
    kafka.send_rows("again", 0, rows(12, 15))
    assert run("update", url, "--json").result["new_rows"] == 3
    assert run("update", later, "--json").result["new_rows"] == 3
    kafka.ids["again"] = 8
    for one in (url, later):
        done = run("update", one)
        assert done.code == 3
        assert "again: the topic was deleted and made again since the run started" in done.err
        assert run("resume", one, "--json").result["rows"] == 15
    del kafka.ids["again"]
    assert run("update", url, "--json").result["new_rows"] == 0


def test_a_bad_message_is_a_bad_row_with_its_offset(kafka: Cluster, tmp_path: Path) -> None:
    good = [json.dumps(row).encode() for row in rows(0, 6)]
    bad = [b"{oops", None, b"[1]", b'{"y": 1, "x": "much"}', b'{"y": true, "x": 1}']
    kafka.send("bad", 1, good[:3])
    kafka.send("bad", 1, [bad[0], *good[3:], *bad[1:]])
    done = run("train", kafka.url("bad"), *COLUMNS, "--checkpoint", "none")
    assert done.code == 2
    assert "bad, partition 1, offset 3 (not JSON: " in done.err
    job = (*COLUMNS, "--set", "data.on_bad_row=skip", "--checkpoint", "none")
    found = train(kafka.url("bad"), *job)
    assert found["skipped"] == {"null": 5}
    file = as_file(tmp_path / "a.parquet", rows(0, 6))
    assert found["state_sha256"] == train(file, *job)["state_sha256"]


def test_arrow_messages_have_their_own_columns(kafka: Cluster, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(rows(0, 9), SCHEMA)
    kafka.send("arrow", 2, [stream_of(table.slice(0, 4)), stream_of(table.slice(4))])
    job = ("--label", "y", "--rule", "nag", "--checkpoint", "none")
    expected = train(as_file(tmp_path / "a.parquet", rows(0, 9)), *job)["state_sha256"]
    assert train(kafka.url("arrow"), *job)["state_sha256"] == expected
    done = run("train", kafka.url("same"), *job)
    assert done.code == 2
    assert "JSON has no types" in done.err


def test_what_is_not_there_is_named(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "ANSWER_SECONDS", 1.0)
    done = run("train", kafka.url("nowhere"), *COLUMNS)
    assert done.code == 2
    assert "the brokers have no topic 'nowhere'" in done.err
    before = time.monotonic()
    done = run("train", "kafka://127.0.0.1:1/t", *COLUMNS)
    assert time.monotonic() - before < 30
    assert done.code == 1
    assert "Connection refused" in done.err


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("kafka://user:secret@h/t", {}, "credentials"),
        ("kafka://h:9092", {}, "names no Kafka topic"),
        ("kafka://h/t/0000000000-00000-5-4", {}, "names no Kafka topic"),
        ("kafka://h/t", {"group.protocol": "secret"}, "group.protocol"),
        ("kafka://h/t", {"enable.auto.commit": True}, "streamomd sets these"),
        ("kafka://h/t", {"no.such": "secret"}, "no.such"),
    ],
)
def test_options_that_are_refused_show_no_value(
    tmp_path: Path, url: str, options: dict[str, Any], text: str
) -> None:
    file = tmp_path / "options.json"
    file.write_text(json.dumps(options))
    done = run("train", url, *COLUMNS, "--storage-options", file)
    assert done.code == 2, done.err
    assert text in done.err
    assert "secret" not in done.err
