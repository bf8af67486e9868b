"""Ranges of offsets, and messages as rows: what does not need a broker."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from streamomd.core.errors import DataError, ResumeRefusedError, UsageError
from streamomd.shards.kafka.broker import Message
from streamomd.shards.kafka.messages import message_rows
from streamomd.shards.kafka.offset_ranges import Marks, Range, Topic, parse_source, plan_ranges

TOPIC = Topic("h:1", "t")
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


def test_the_digest_is_of_offsets_and_values() -> None:
    def digest(*messages: Message) -> str:
        return message_rows(messages, TYPES, "t").sha256

    pairs = [(1, b"{}"), (2, b"{}"), (1, b"{ }"), (1, None), (1, b"")]
    assert len({digest(Message(*one)) for one in pairs}) == len(pairs)
    assert digest(Message(1, b"{}")) == digest(Message(1, b"{}"))


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
