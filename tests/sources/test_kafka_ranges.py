"""Ranges of offsets, and messages as rows: what does not need a broker."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st
from kafka_topics import stream_of

from streamomd.config.data_table import Data
from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    MissingExtraError,
    ResumeRefusedError,
    StorageError,
    TooLargeError,
    UsageError,
)
from streamomd.sources.find import find
from streamomd.sources.kafka import broker, file_system, kafka_source
from streamomd.sources.kafka.broker import Message
from streamomd.sources.kafka.file_system import message_rows
from streamomd.sources.kafka.offset_ranges import Marks, Range, Topic, parse_source, plan_ranges

TOPIC = Topic("h:1", "t")
NAMED = {"bootstrap.servers": "h:1"}
TYPES = {"x": "double", "n": "int64", "t": "timestamp[ms]", "c": "string"}


def test_ranges_are_in_rounds_and_have_every_offset_once() -> None:
    marks = {0: Marks(5, 30), 1: Marks(0, 0), 2: Marks(7, 8)}
    found = plan_ranges(TOPIC, marks, most=10)
    expected = [(0, 0, 5, 14), (0, 2, 7, 7), (1, 0, 15, 24), (2, 0, 25, 29)]
    assert found == [Range(*one) for one in expected]
    later = {0: Marks(20, 31), 1: Marks(0, 2), 2: Marks(8, 8)}
    starts = {0: 5, 1: 0, 2: 7}
    more = plan_ranges(TOPIC, later, found, starts, 10)
    assert more == [Range(3, 0, 30, 30), Range(3, 1, 0, 1)]
    assert plan_ranges(TOPIC, later, found + more, starts, 10) == []


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ({0: Marks(11, 20), 1: Marks(0, 5)}, "partition 0: offsets 10 to 10 were deleted"),
        ({0: Marks(0, 9), 1: Marks(0, 5)}, "partition 0: offset 10 is the next to learn"),
        ({0: Marks(0, 10), 1: Marks(1, 5)}, "partition 1: offsets 0 to 0 were deleted"),
        ({0: Marks(0, 10)}, "has 1 partitions now, and had 2"),
        ({0: Marks(0, 10), 1: Marks(0, 5), 2: Marks(0, 0)}, "has 3 partitions now, and had 2"),
    ],
)
def test_messages_that_are_gone_are_refused(marks: dict[int, Marks], text: str) -> None:
    """Those of a partition that had none when the run started, too."""
    with pytest.raises(ResumeRefusedError, match=text):
        plan_ranges(TOPIC, marks, [Range(0, 0, 0, 9)], {0: 0, 1: 0})


def test_a_url_has_the_brokers_the_topic_and_the_range() -> None:
    url = TOPIC.url_of(Range(3, 1, 100, 199))
    assert url == "kafka://h:1/t/0000000003-00001-100-199"
    assert parse_source(url) == (TOPIC, Range(3, 1, 100, 199))
    assert parse_source(url.removeprefix("kafka://")) == parse_source(url)
    assert Topic("a,b:7,[::1]", "t").bootstrap == "a:9092,b:7,[::1]:9092"
    for wrong in (
        "",
        "h",
        "h/",
        "h/t/x",
        "h/t/0000000003-00001-9-8",
        "h/t u",
        "u:p@h/t",
        "h/a/b/c",
        "h/.",
        "h/..",
        "h/a%2Fb",
        "h/ä",
        "h/" + "x" * 250,
    ):
        with pytest.raises(UsageError, match="names no Kafka topic"):
            parse_source(f"kafka://{wrong}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"x": 1', "not JSON"),
        (None, "tombstone"),
        (b"3", "found a number"),
        (b"null", "found null"),
        (b"[]", "found a list"),
        (b'{"x": "1"}', "column 'x'"),
        (b'{"x": true}', "column 'x'"),
        (b'{"n": false}', "column 'n'"),
        (b'{"n": 1.5}', "column 'n'"),
        (b'{"n": 9223372036854775808}', "column 'n'"),
        (b'{"t": "yesterday"}', "column 't'"),
        (b'{"c": 1}', "column 'c'"),
        (b'{"c": "\\ud800"}', "column 'c'"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xff\xff\xff\xff", "no valid Arrow IPC stream"),
    ],
)
def test_a_message_that_is_no_row_is_a_row_of_nulls(value: bytes | None, why: str) -> None:
    good = {"x": 1, "n": 2, "t": "2026-01-02T03:04:05", "c": "a", "unknown": [1]}
    text = json.dumps(good).encode()
    found = message_rows([Message(4, text), Message(7, value), Message(8, text)], TYPES, "t")
    rows = found.table.to_pylist()
    assert rows[0] == rows[2]
    assert (rows[0]["x"], rows[0]["n"], rows[0]["c"]) == (1.0, 2, "a")
    assert str(rows[0]["t"]) == "2026-01-02 03:04:05"
    assert set(rows[1].values()) == {None}
    assert found.offsets == [4, 7, 8]
    assert [*found.bad] == [1]
    assert why in found.bad[1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_with_an_offset_are_converted_to_utc(unit: str) -> None:
    """As RFC 3339 writes them, next to times without, which are UTC, dates and nulls."""
    texts = ["2026-01-02T01:00:00Z", "2026-01-02 03:00:00+02:00", "2026-01-01T19:30:00-05:30"]
    texts += ["2026-01-02T01:00:00", "2026-01-02", None]
    sent = [Message(at, json.dumps({"t": text}).encode()) for at, text in enumerate(texts)]
    found = message_rows(sent, {"t": f"timestamp[{unit}]"}, "t")
    one = [f"{row['t']}" for row in found.table.to_pylist()]
    assert one == ["2026-01-02 01:00:00"] * 4 + ["2026-01-02 00:00:00", "None"]
    assert found.bad == {}
    wrong = message_rows([Message(0, b'{"t": "2026-01-02T01:00:00 CET"}')], TYPES, "t")
    assert "column 't'" in wrong.bad[0]


@pytest.mark.parametrize("kind", ["timestamp", "time64[us]", "duration[s]", "decimal128(9, 2)"])
def test_types_that_json_cannot_have_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=r"'t' is '.*', a type that JSON messages cannot have"):
        message_rows([Message(0, b"{}")], {"t": kind}, "t")


def test_the_digest_is_of_offsets_and_values() -> None:
    def digest(*messages: Message) -> str:
        return message_rows(messages, TYPES, "t").sha256

    pairs = [(1, b"{}"), (2, b"{}"), (1, b"{ }"), (1, None), (1, b"")]
    assert len({digest(Message(*one)) for one in pairs}) == len(pairs)
    assert digest(Message(1, b"{}")) == digest(Message(1, b"{}"))


@given(st.lists(st.sampled_from([b'{"x": 1}', b"{}", None, b"oops", b'{"c": "a"}'])))
def test_blocks_of_messages_change_no_byte(values: list[bytes | None]) -> None:
    """The file of a range is the same, however many messages are in memory at the same time."""

    def written() -> tuple[bytes, Any]:
        made = [Message(2 * at, value) for at, value in enumerate(values)]
        found = message_rows(made, TYPES, "t")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, found.table.schema) as writer:
            writer.write_table(found.table)
        return sink.getvalue().to_pybytes(), (found.offsets, found.bad, found.sha256)

    expected = written()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_system, "AT_ONCE", 2)
        assert written() == expected
        patch.setattr(file_system, "BYTES_AT_ONCE", 1)
        assert written() == expected


def test_rows_of_a_range_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that have no type do not count."""
    monkeypatch.setattr(file_system, "MOST_BYTES", 100_000)
    monkeypatch.setattr(file_system, "AT_ONCE", 10)
    long = [Message(at, b'{"c": "%s"}' % (b"a" * 5000)) for at in range(50)]
    assert len(message_rows(long, {"x": "double"}, "t").offsets) == 50
    with pytest.raises(TooLargeError, match="t: up to offset 19 the rows have more than 100,000"):
        message_rows(long, TYPES, "t")
    table = pa.table({"c": ["a" * 5000] * 7})
    with pytest.raises(TooLargeError, match="up to offset 2 "):
        message_rows([Message(at, stream_of(table)) for at in range(9)], {}, "t")


def test_columns_of_no_message_are_refused() -> None:
    with pytest.raises(DataError, match="no columns"):
        message_rows([Message(0, b"\xff\xff\xff\xff")], {}, "t")
    with pytest.raises(UsageError, match="JSON has no types"):
        message_rows([Message(0, b"{}")], {}, "t")
    with pytest.raises(UsageError, match=r"data\.csv\.types"):
        message_rows([], {"x": "nothing"}, "t")
    assert message_rows([], TYPES, "t").table.schema == pa.schema(
        [("c", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("ms")), ("x", pa.float64())]
    )


def test_a_stream_that_claims_many_rows_is_a_bad_message() -> None:
    schema = pa.schema([("x", pa.null())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.nulls(2_000_000)], schema=schema))
    value = sink.getvalue().to_pybytes()
    assert len(value) < 1000
    found = message_rows([Message(0, value)], {"x": "double"}, "t")
    assert "more than 1,000,000 rows" in found.bad[0]


class Assigned:
    """A consumer whose answers are a list: offsets of messages, and errors."""

    def __init__(self, *answers: int | KafkaError, high: int = 10) -> None:
        self._answers, self._high = list(answers), high

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, self._high

    def assign(self, places: Any) -> None: ...

    def poll(self, seconds: float) -> None: ...

    def close(self) -> None: ...

    def consume(self, count: int, seconds: float) -> list[Any]:
        return [Answer(self._answers.pop(0), self._high)] if self._answers else []


class Answer:
    def __init__(self, given: int | KafkaError, high: int) -> None:
        self._given, self._high = given, high

    def error(self) -> KafkaError | None:
        return self._given if isinstance(self._given, KafkaError) else None

    def offset(self) -> int:
        return self._high if isinstance(self._given, KafkaError) else self._given

    def value(self) -> bytes:
        return b"{}"


END = KafkaError(KafkaError._PARTITION_EOF)


def read(monkeypatch: pytest.MonkeyPatch, consumer: Assigned, first: int, last: int) -> list[int]:
    monkeypatch.setattr(broker, "STALL_SECONDS", 0.01)
    asked = broker.Broker(TOPIC, NAMED)
    monkeypatch.setattr(asked, "_consumer", lambda: nullcontext(consumer))
    return [one.offset for one in asked.messages(Range(0, 0, first, last))]


def test_offsets_without_a_message_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of markers and compacted messages: inside a range, at its end, at the topic's end."""
    assert read(monkeypatch, Assigned(0, 3, 4), 0, 4) == [0, 3, 4]
    assert read(monkeypatch, Assigned(0, 3, 7), 0, 4) == [0, 3]
    assert read(monkeypatch, Assigned(0, 3, END), 0, 9) == [0, 3]
    assert read(monkeypatch, Assigned(END), 0, 9) == []


def test_a_range_that_is_not_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="no message in"):
        read(monkeypatch, Assigned(0, 1), 0, 4)
    with pytest.raises(StorageError, match="Topic authorization failed"):
        read(monkeypatch, Assigned(0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), 0, 4)
    with pytest.raises(ChangedDataError, match="has offsets 0 to 3 only"):
        read(monkeypatch, Assigned(high=4), 0, 4)

    class Open(Assigned):
        def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
            return 0, 10

    with pytest.raises(StorageError, match="from offset 3 on are those of a transaction"):
        read(monkeypatch, Open(0, END, high=3), 0, 4)


def test_errors_show_no_value_of_an_option() -> None:
    asked = broker.Broker(TOPIC, {**NAMED, "sasl.password": "hunter22"})
    error = KafkaError(KafkaError._INVALID_ARG, "Invalid value hunter22 of x\n\tend")
    assert asked._without_values(KafkaException(error)) == "Invalid value … of x end"


def test_workers_get_the_types_of_topics() -> None:
    types = {"csv": {"types": {"x": "double"}}, "storage_options": {"client.id": "a"}}
    topic = Data.model_validate({**types, "shards": ("kafka://h/t",)})
    assert topic.store_options == {"client.id": "a", "types": {"x": "double"}}
    assert Data.model_validate({**types, "shards": ("a.csv",)}).store_options == {"client.id": "a"}


def test_a_range_that_is_no_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged copy, or none. The file is the same, byte for byte."""
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path))
    values = [Message(offset, b'{"x": %d}' % offset) for offset in (0, 2, 3)]
    monkeypatch.setattr(file_system.Broker, "messages", lambda *given: iter(values))
    fs = file_system.KafkaFileSystem(types={"x": "double"}, **NAMED)
    path = "h:1/t/0000000000-00000-0-4"
    first = fs.info(path), fs.cat_file(path)
    [copy] = tmp_path.rglob("*.arrow")
    for damage in (lambda: copy.write_bytes(b"ARROW1"), lambda: copy.write_bytes(b""), copy.unlink):
        damage()
        assert (fs.info(path), fs.cat_file(path)) == first
    assert fs.cat_file(path, 2, 9) == first[1][2:9]
    assert [oct(one.stat().st_mode)[-3:] for one in copy.parents[:2]] == ["700", "700"]
    assert kafka_source.place_in_topic(f"kafka://{path}", 1).endswith("partition 0, offset 2")
    copy.parent.chmod(0o777)
    with pytest.raises(StorageError, match="only this user"):
        fs.info(path)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'streamomd\[kafka\]'"):
        find("kafka://h:1/t", storage_options=NAMED)
