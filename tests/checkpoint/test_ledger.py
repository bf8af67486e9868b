"""The ledger of a run: what it saves, how large it is, and what it refuses."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
from streamomd.core.errors import CorruptionError

SCHEMA = [[f"column {at}", "double", True] for at in range(50)]


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


@pytest.mark.parametrize("facts", [{}, {"key": "token-3", "schema": SCHEMA[:2]}, {"rows": 0}])
def test_any_fact_may_be_missing(facts: dict[str, Any]) -> None:
    """A partition of a Dask collection has a key, and neither size nor rows."""
    segment = Segment(0, (shorten_facts({"url": "é\udcff/ü", **facts}),))
    assert decode(encode(segment)) == segment


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


def test_shards_are_added_and_touched() -> None:
    """New shards follow the last; of a copied one the new time is saved, and nothing else."""
    ledger, shards, digests = ledger_of(5)
    store = DictStore()
    ledger.write(store)
    touched = [*shards[:2], {**shards[2], "mtime_ns": 5}, *shards[3:]]
    ledger.replace_shards([*touched, shard(5, random.Random(3))])
    named = ledger.write(store)
    again = Ledger((decode(store.objects[f"segments/{one}.bin"]), one) for one in named)
    assert [one.get("mtime_ns") for one in again.shards][2] == 5
    assert len(again.shards) == 6
    assert sorted(again.digests()) == sorted(digests)
    before = len(store.objects)
    ledger.replace_shards(again.shards)
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


WRONG: list[dict[str, Any]] = [
    *({key: [1]} for key in ("format", "size", "rows", "row_groups", "etag", "key")),
    {"size": True},
    {"groups": ["1"]},
    {"schema": [["name", "double"]]},
    {"schema": [["name", 5, True]]},
]


def test_a_small_segment_does_not_unfold_to_a_large_one() -> None:
    """The JSON of a segment is bounded by how many shards and digests it has bytes for."""
    import struct
    import zlib

    text = zlib.compress(b" " * (MIN_JSON + (1 << 20)))
    data = MAGIC + struct.pack("<QQQ", 0, 0, len(text)) + text
    with pytest.raises(CorruptionError, match="JSON"):
        decode(data)
