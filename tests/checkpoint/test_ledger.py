"""The ledger of a run: what it saves, how large it is, and what it refuses."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_helpers import DictStore, begin, numbers

from streamomd.checkpoint import Ledger, read_commit, read_ledger
from streamomd.checkpoint.segments import (
    MAGIC,
    MIN_JSON,
    Segment,
    decode,
    encode,
    shorten_facts,
)
from streamomd.core.errors import CorruptionError, UsageError
from streamomd.shards.file_schema import SchemaFacts

COLUMNS = pa.schema([(f"column {at}", pa.float64()) for at in range(50)])
SCHEMA, TYPES = SchemaFacts(COLUMNS).columns, SchemaFacts(COLUMNS).text


def shard(number: int, draw: random.Random) -> dict[str, Any]:
    """The fingerprint of a shard in a store, with names as Spark gives them."""
    name = f"part-{number:05d}-{uuid.UUID(int=draw.getrandbits(128))}-c000.snappy.parquet"
    groups = [draw.randrange(10**6) for _ in range(draw.randrange(1, 30))]
    return {
        "url": f"s3://a-bucket/a/folder/day=2026-{number % 12 + 1:02d}/{name}",
        "format": "parquet",
        "size": draw.randrange(10**9),
        "rows": sum(groups),
        "groups": groups,
        "schema": SCHEMA,
        "types": TYPES,
        "footer_sha256": f"{draw.getrandbits(256):064x}",
        "etag": f"{draw.getrandbits(128):032x}",
        "mtime_ns": 1_700_000_000_000_000_000 + draw.randrange(10**9) * 10**9,
    }


def digest(url: str, group: int) -> tuple[str, int, bytes]:
    return url, group, hashlib.md5(f"{url} {group}".encode()).digest()


def ledger_of(count: int) -> tuple[Ledger, list[dict[str, Any]], list[Any]]:
    """A ledger with all digests."""
    draw = random.Random(7)
    shards = [shard(number, draw) for number in range(count)]
    digests = [digest(one["url"], at) for one in shards for at in range(len(one["groups"]))]
    ledger = Ledger.from_fingerprints(shards)
    ledger.add(digests)
    return ledger, shards, digests


def test_a_shard_takes_100_bytes_and_a_row_group_16() -> None:
    """Random name, size, rows, tag, time and footer."""
    ledger, shards, digests = ledger_of(2000)
    store = DictStore()
    ledger.write(store)
    first = sum(len(data) for name, data in store.objects.items() if name.startswith("segments/"))
    assert first <= 100 * len(shards) + 16 * len(digests)
    assert sum(map(len, store.objects.values())) == 2 * first


def test_what_is_read_is_what_was_written() -> None:
    """Facts and digests of every shard, in order, through a commit."""
    ledger, shards, digests = ledger_of(50)
    store = DictStore()
    writer = begin(store)
    writer.commit({"rows": 0, "segments": ledger.write(store)}, numbers(0))
    found = read_ledger(store, read_commit(store, writer.sequence))
    assert [*found.shards] == [shorten_facts(one) for one in shards]
    assert sorted(found.digests()) == sorted(digests)


RECORDED: dict[str, Any] = {
    "update": 3,
    "sequence": 17,
    "name": "ü",
    "partitions": [["day", "2026-01-02"], ["hour", None]],
}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"key": "token-3", "schema": SCHEMA[:2]},
        {"rows": 0},
        RECORDED,
        *({key: value} for key, value in RECORDED.items()),
        {"name": "another name"},
        {"name": ""},
        {"partitions": []},
        {"skipped": "its footer is damaged", "size": 12},
    ],
)
def test_any_fact_may_be_missing(facts: dict[str, Any]) -> None:
    """A partition of a Dask collection has a key, and neither size nor rows; most shards have been
    learned by no update."""
    segment = Segment(0, (shorten_facts({"url": "é\udcff/ü", **facts}),))
    assert decode(encode(segment)) == segment
    others = ({"url": "a"}, *segment.shards, {"url": "z/n", "name": "n"})
    assert decode(encode(Segment(0, others))).shards == others


def test_a_run_without_updates_writes_what_it_did() -> None:
    """Facts that no shard has take no byte: segments keep their hashes over versions."""
    url = {"url": "s3://bucket/a.parquet", "rows": 5, "groups": [5], "schema": SCHEMA[:1]}
    data = encode(Segment(0, (shorten_facts(url), shorten_facts({"url": "s3://bucket/b.parquet"}))))
    assert hashlib.sha256(data).hexdigest() == (
        "1b173a57f4edf169ae5b3c480ed86425d55204ccf32c76c6c9ad89def1dba249"
    )


def test_a_commit_writes_what_is_new() -> None:
    """1,000 commits of one row group each, after 1,000 shards: all of them together write a few
    times what there is, and each names few segments."""
    draw = random.Random(1)
    shards = [shard(number, draw) for number in range(1000)]
    ledger, store = Ledger.from_fingerprints(shards), DictStore()
    ledger.write(store)
    written = []
    store.before = lambda deed, name: written.append(name) if deed == "put" else None
    for one in shards:
        before = set(store.objects)
        ledger.add([digest(one["url"], 0)])
        named = ledger.write(store)
        assert len(named) <= 12
        assert before <= set(store.objects)
    nbytes = sum(len(store.objects[name]) for name in written)
    whole = sum(len(store.objects[f"segments/{sha256}.bin"]) for sha256 in named)
    assert len(written) == 2 * len(shards)
    assert nbytes < 10 * whole
    again = Ledger((decode(store.objects[f"segments/{one}.bin"]), one) for one in named)
    assert sorted(again.digests()) == sorted(digest(one["url"], 0) for one in shards)


def test_a_new_shard_costs_the_same_after_any_number() -> None:
    """What 30 commits of a new shard each write does not depend on how many are known."""
    assert bytes_of_new_shards(known=3000) < 1.1 * bytes_of_new_shards(known=100)


def bytes_of_new_shards(known: int) -> int:
    draw = random.Random(1)
    ledger = Ledger.from_fingerprints(shard(number, draw) for number in range(known))
    store, sizes = DictStore(), []
    ledger.write(store)
    store.after = lambda _, name: sizes.append(len(store.objects[name]))
    for number in range(30):
        ledger.append([shard(known + number, draw)])
        ledger.add([digest(str(ledger.shards[-1]["url"]), 0)])
        ledger.write(store)
    return sum(sizes)


def test_shards_are_added_and_touched() -> None:
    """New shards follow the last; of a copied one the new time is saved, and nothing else."""
    ledger, shards, digests = ledger_of(5)
    store = DictStore()
    ledger.write(store)
    touched = [*shards[:2], {**shards[2], "mtime_ns": 5}, *shards[3:]]
    ledger.refresh(dict(enumerate(touched)))
    ledger.append([shard(5, random.Random(3))])
    named = ledger.write(store)
    again = Ledger((decode(store.objects[f"segments/{one}.bin"]), one) for one in named)
    assert [one.get("mtime_ns") for one in again.shards][2] == 5
    assert len(again.shards) == 6
    assert sorted(again.digests()) == sorted(digests)
    before = len(store.objects)
    ledger.refresh(dict(enumerate(again.shards)))
    ledger.write(store)
    assert len(store.objects) == before


def broken(data: bytes, draw: random.Random) -> Iterator[bytes]:
    """Bytes that were changed, cut off, or added."""
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draw.choice([1, 1, 3, 20])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        yield bytes(changed)
        yield data[: draw.randrange(len(data))]
        yield data + bytes(draw.randrange(1, 20))


def test_hostile_segments_are_corrupt() -> None:
    """For any bytes, decoding gives a segment or a CorruptionError."""
    ledger, _, _ = ledger_of(4)
    for data in broken(encode(ledger._segments[0][0]), random.Random(5)):
        try:
            decode(data)
        except CorruptionError:
            continue


def test_hostile_facts_are_corrupt() -> None:
    """Facts of other types, and numbers of shards and row groups that are not there."""
    segment = Segment(3, ({"url": "a"},), ((0, {"url": "b"}),), ((0, 0, b"d" * 16),))
    assert decode(encode(segment)) == segment
    for other in (
        replace(segment, digests=((4, 0, b"d" * 16),)),
        replace(segment, digests=((0, -1, b"d" * 16),)),
        replace(segment, changed=((3, {"url": "b"}),)),
        replace(segment, changed=((-1, {"url": "b"}),)),
        *(replace(segment, shards=({"url": "a", **wrong},)) for wrong in WRONG),
    ):
        with pytest.raises(CorruptionError):
            decode(encode(other))
    with pytest.raises(CorruptionError, match="not consecutive"):
        Ledger([(segment, "")])


def test_an_update_is_appended() -> None:
    """Entries of later updates, skipped ones among them, follow the last; digests are theirs."""
    ledger, _, digests = ledger_of(20)
    store = DictStore()
    draw = random.Random(3)
    new = [{**shard(20 + at, draw), "update": 1, "sequence": 9} for at in range(3)]
    bad = {"url": "s3://a-bucket/bad.parquet", "skipped": "damaged", "update": 1}
    ledger.append([*new[:2], bad, new[2]])
    ledger.append([{**new[2], "url": bad["url"], "update": 2}])  # repaired since
    later = [digest(new[1]["url"], 0), digest(bad["url"], 0)]
    ledger.add(later)
    named = ledger.write(store)
    again = Ledger((decode(store.objects[f"segments/{one}.bin"]), one) for one in named)
    for found in (ledger, again):
        assert [one.get("update", 0) for one in found.shards] == [0] * 20 + [1] * 4 + [2]
        assert [*found.shards][22] == bad
        assert [*found.digests(20)] == later
        assert [*found.digests(24)] == later[1:]
        assert [*found.digests(25)] == []
        assert sorted(found.digests()) == sorted([*digests, *later])


def test_a_shard_is_renamed() -> None:
    """It has its digests under its new URL, and takes more under it."""
    ledger, shards, _ = ledger_of(3)
    store = DictStore()
    ledger.change({1: {**shards[1], "url": "s3://elsewhere"}})
    ledger.add([digest("s3://elsewhere", 90)])
    named = ledger.write(store)
    again = Ledger((decode(store.objects[f"segments/{one}.bin"]), one) for one in named)
    for found in (ledger, again):
        assert found.shards[1] == shorten_facts({**shards[1], "url": "s3://elsewhere"})
        of_it = [group for url, group, _ in found.digests() if url == "s3://elsewhere"]
        assert sorted(of_it) == [*range(len(shards[1]["groups"])), 90]
    with pytest.raises(KeyError):
        ledger.add([digest(shards[1]["url"], 0)])


def test_fingerprints_do_not_replace_what_a_run_recorded() -> None:
    """Of a touched shard the update that learned it stays, and an equal one is not written."""
    ledger, _, _ = ledger_of(2)
    ledger.append([{**shard(2, random.Random(3)), **RECORDED}])
    known = [{k: v for k, v in one.items() if k not in RECORDED} for one in ledger.shards]
    before = [*ledger._segments]
    ledger.refresh(dict(enumerate(known)))
    assert ledger._segments == before
    ledger.refresh({2: {**known[2], "mtime_ns": 5}})
    assert ledger.shards[2] == {**known[2], **RECORDED, "mtime_ns": 5}


WRONG: list[dict[str, Any]] = [
    *({key: [1]} for key in ("format", "size", "rows", "row_groups", "etag", "key")),
    *({key: [1]} for key in ("update", "sequence", "skipped", "name")),
    *({key: "1"} for key in ("update", "sequence")),
    *({"name": length} for length in (-1, 0, 2)),
    {"partitions": [["day"]]},
    {"partitions": [["day", 5]]},
    {"partitions": [[None, "5"]]},
    {"size": True},
    {"groups": ["1"]},
    {"schema": [["name", "double"]]},
    {"schema": [["name", 5, True]]},
]


def test_a_schema_of_many_columns_is_read_back() -> None:
    """A ledger that is written can be read: what would be too large for a reader is refused."""
    columns = [[f"{at:0100}", "double", True] for at in range(20_000)]
    segment = Segment(0, ({**RECORDED, "url": "a", "schema": columns},))
    assert decode(encode(segment)).shards[0]["schema"] == columns
    large = Segment(0, ({**RECORDED, "url": "a", "projection": "x" * (MIN_JSON + (1 << 13))},))
    with pytest.raises(UsageError, match="ledger"):
        encode(large)


def test_a_small_segment_does_not_unfold_to_a_large_one() -> None:
    """The JSON of a segment is bounded by how many shards and digests it has bytes for."""
    import struct
    import zlib

    text = zlib.compress(b" " * (MIN_JSON + (1 << 13)))
    data = MAGIC + struct.pack("<QQQ", 0, 0, len(text)) + text
    with pytest.raises(CorruptionError, match="JSON"):
        decode(data)
