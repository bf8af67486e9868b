"""A segment: a part of the ledger as bytes. At most 100 bytes a shard and 16 a row group.

    8 bytes          OMDSEG1 and a line end
    3 × 8 bytes      how many shards, how many digests, length of the next block (little-endian)
    zlib of JSON     the shards' facts by column, which row groups the digests are of, schemas
    16 bytes each    of every shard the first half of its footer's SHA-256 (zeros where it has none)
    16 bytes each    digests

The JSON has schemas once, URLs by how much they share with the one before, times as differences.
Keys that are not known are ignored.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamomd.checkpoint.sealed_json import canonical, parse
from streamomd.checkpoint.validated_json import Fields
from streamomd.core.errors import CorruptionError

MAGIC = b"OMDSEG1\n"
HASH_BYTES = 16
GROUPS = 3
"""Row counts saved of a shard, for messages; the number of row groups is always saved."""
PLAIN = ("format", "size", "rows", "row_groups", "groups", "etag", "key")
SHARD_JSON, DIGEST_JSON, LEAST_JSON = 1 << 12, 64, 1 << 20
"""Bytes of JSON that are unpacked at most, for each shard, for each digest, and in any case."""
_HEAD = struct.Struct("<QQQ")
Facts = Mapping[str, Any]
"""What is known of a shard; see ``brief``."""
Run = tuple[int, int, bytes]
"""Number of a shard, of its first row group in the run, and the digests of it and the next ones."""


@dataclass(frozen=True)
class Segment:
    """Entries of a ledger.

    first: number of its first shard. changed: shards from before whose facts are others now.
    """

    first: int
    shards: tuple[Facts, ...] = ()
    changed: tuple[tuple[int, Facts], ...] = ()
    digests: tuple[Run, ...] = ()

    @property
    def weight(self) -> int:
        """About how many bytes it has."""
        count = sum(len(run[2]) for run in self.digests)
        return 100 * (len(self.shards) + len(self.changed)) + count

    def then(self, other: Segment) -> Segment:
        """This segment and the next as one."""
        shards, changed = [*self.shards, *other.shards], dict(self.changed)
        for number, facts in other.changed:
            if number < self.first:
                changed[number] = facts
            else:
                shards[number - self.first] = facts
        both = runs([*self.digests, *other.digests])
        return Segment(self.first, tuple(shards), tuple(changed.items()), both)


def runs(digests: Sequence[Run]) -> tuple[Run, ...]:
    """Runs in order, those that follow one another joined.

    >>> runs([(0, 1, b"b" * 16), (0, 0, b"a" * 16), (2, 0, b"c" * 16)])
    ((0, 0, b'aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb'), (2, 0, b'cccccccccccccccc'))
    """
    found: list[tuple[int, int, list[bytes], int]] = []
    for shard, group, data in sorted(digests, key=lambda run: run[:2]):
        if found and found[-1][0] == shard and found[-1][3] == group:
            found[-1][2].append(data)
            found[-1] = (*found[-1][:3], group + len(data) // HASH_BYTES)
        else:
            found.append((shard, group, [data], group + len(data) // HASH_BYTES))
    return tuple((shard, group, b"".join(parts)) for shard, group, parts, _ in found)


def brief(facts: Facts) -> Facts:
    """What the ledger saves of a shard's fingerprint; of such facts again the same.

    Of the footer's hash the first half, of the row groups their number and the rows of the first
    three.
    """
    found = {key: value for key, value in facts.items() if value is not None}
    if "footer_sha256" in found:
        found["footer_sha256"] = found["footer_sha256"][: 2 * HASH_BYTES]
    if "groups" in found:
        found.setdefault("row_groups", len(found["groups"]))
        found["groups"] = list(found["groups"][:GROUPS])
    return found


def encode(segment: Segment) -> bytes:
    """The bytes of a segment, the same for the same segment."""
    facts = [*segment.shards, *(facts for _, facts in segment.changed)]
    schemas: dict[bytes, int] = {}
    header = {
        "first": segment.first,
        "changed": [number for number, _ in segment.changed],
        **_columns(facts),
        "schema": [
            schemas.setdefault(canonical(one["schema"]), len(schemas)) if "schema" in one else -1
            for one in facts
        ],
        "schemas": [parse(schema) for schema in schemas],
        "digests": [
            [shard - before, group, len(data) // HASH_BYTES]
            for before, (shard, group, data) in zip(
                [0, *(run[0] for run in segment.digests)], segment.digests, strict=False
            )
        ],
    }
    text = zlib.compress(canonical(header), 9)
    footers = [bytes.fromhex(one.get("footer_sha256", "00" * HASH_BYTES)) for one in facts]
    digests = b"".join(run[2] for run in segment.digests)
    head = _HEAD.pack(len(facts), len(digests) // HASH_BYTES, len(text))
    return b"".join([MAGIC, head, text, *footers, digests])


def _columns(facts: Sequence[Facts]) -> dict[str, list[Any]]:
    urls = [str(one["url"]) for one in facts]
    times = [int(one.get("mtime_ns", -1)) for one in facts]
    return {
        "url": [
            [shared := _shared(before, after), after[shared:]]
            for before, after in itertools.pairwise(["", *urls])
        ],
        "mtime_ns": [after - before for before, after in itertools.pairwise([0, *times])],
        **{key: [one.get(key) for one in facts] for key in PLAIN},
    }


def _shared(before: str, after: str) -> int:
    """How many characters two texts have in common at their beginning."""
    differ = (at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    return next(differ, min(len(before), len(after)))


def decode(data: bytes) -> Segment:
    """The segment of these bytes. Raises CorruptionError for any others."""
    try:
        return _decoded(data)
    except (struct.error, zlib.error, ValueError, TypeError, LookupError) as error:
        raise CorruptionError(f"a segment of the ledger cannot be read: {error}") from None


def _decoded(data: bytes) -> Segment:
    start = len(MAGIC) + _HEAD.size
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("it lacks the header of a segment")
    shards, digests, length = _HEAD.unpack_from(data, len(MAGIC))
    if start + length + HASH_BYTES * (shards + digests) != len(data):
        raise ValueError(f"{len(data)} bytes, but its header claims another length")
    most = LEAST_JSON + SHARD_JSON * shards + DIGEST_JSON * digests
    unpacked = zlib.decompressobj()
    text = unpacked.decompress(data[start : start + length], most)
    if not unpacked.eof or unpacked.unused_data:
        raise ValueError(f"its JSON has more than {most} bytes, or ends early")
    fields = Fields(parse(text), "the segment")
    hashes = memoryview(data)[start + length :]
    facts = [*_facts(fields, shards, hashes)]
    changed = fields.items("changed")
    added = shards - len(changed)
    first = fields.number("first", 1 << 62)
    if added < 0 or not all(type(one) is int and 0 <= one < first for one in changed):
        raise ValueError("it changes shards that are not before it")
    return Segment(
        first,
        tuple(facts[:added]),
        tuple(zip(changed, facts[added:], strict=True)),
        tuple(_runs(fields.items("digests"), hashes[HASH_BYTES * shards :], first + added)),
    )


def _facts(fields: Fields, shards: int, hashes: memoryview) -> Iterator[Facts]:
    columns = [fields.items(key) for key in ("url", "mtime_ns", "schema", *PLAIN)]
    schemas, url, time = fields.items("schemas"), "", 0
    for at, ((shared, rest), later, schema, *plain) in enumerate(zip(*columns, strict=True)):
        if not 0 <= shared <= len(url) or not isinstance(rest, str):
            raise ValueError("a URL that does not follow the one before it")
        url, time = url[:shared] + rest, time + int(later)
        found = {"url": url, **dict(zip(PLAIN, plain, strict=True))}
        found["mtime_ns"] = time if time >= 0 else None
        found["schema"] = schemas[schema] if schema >= 0 else None
        footer = bytes(hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES])
        found["footer_sha256"] = footer.hex() if any(footer) else None
        _check(found)
        yield brief(found)
    if len(columns[0]) != shards:
        raise ValueError(f"{len(columns[0])} shards, not {shards}")


def _check(facts: Facts) -> None:
    kinds = {"format": str, "size": int, "rows": int, "row_groups": int, "etag": str, "key": str}
    for key, kind in kinds.items():
        if facts[key] is not None and type(facts[key]) is not kind:
            raise ValueError(f"{key} of a shard is no {kind.__name__}")
    groups = facts["groups"]
    if groups is not None and not all(type(rows) is int for rows in groups):
        raise ValueError("rows of a row group are no int")
    for name, kind, nullable in facts["schema"] or ():
        if not (isinstance(name, str) and isinstance(kind, str) and isinstance(nullable, bool)):
            raise ValueError("a column of a schema has fields of other types")


def _runs(told: Sequence[Any], hashes: memoryview, shards: int) -> Iterator[Run]:
    shard = low = 0
    for more, group, count in told:
        shard += more
        high = low + count * HASH_BYTES
        if not (0 <= shard < shards and group >= 0 and count > 0 and high <= len(hashes)):
            raise ValueError("digests of row groups that are not there")
        yield shard, group, bytes(hashes[low:high])
        low = high
    if low != len(hashes):
        raise ValueError("digests that are of no row group")
