"""A segment: a slice of the ledger as bytes. At most 100 bytes a shard and 16 a row group.

    8 bytes          OMDSEG1 and a line end
    3 × 8 bytes      number of shards, number of digests, length of the next block (little-endian)
    zlib of JSON     the shards' facts by column, the row groups of the digests, schemas
    16 bytes each    first half of each shard's footer SHA-256 (zeros if it has none)
    16 bytes each    digests

The JSON has each schema once, URLs as shared prefix length and rest, times as differences. It has
an optional key only if one of its shards has that fact. Unknown keys are ignored.

Format, row groups, schema and footer hash of a shard are what a reader needs of its footer: a run
that is resumed reads no footer of a file that did not change.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamomd.checkpoint.sealed_json import Fields, canonical, parse
from streamomd.core.errors import CorruptionError, UsageError

MAGIC = b"OMDSEG1\n"
HASH_BYTES = 16
GROUPS = 3
"""Row counts of a shard that are compared and shown in messages."""
MOST_RUNS = 8
"""Numbers that are saved of the row groups after those; see ``run_lengths``. Of a shard with more,
only the number of row groups is saved, and its footer is read when the run is resumed."""
MOST_GROUPS = 1 << 20
"""The most row groups that a shard may have in a ledger, which may be anyone's."""
PLAIN = ("format", "size", "rows", "row_groups", "groups", "etag", "key")
OPTIONAL = ("update", "sequence", "skipped", "name", "partitions", "projection", "accepted")
"""Facts of a shard's place in the run, which no fingerprint has. update: number of the update that
learned it (absent: 0, the first run). sequence: of the first commit that lists it. skipped: why no
row of it was learned; such an entry is not part of a shard list. name: path relative to its source,
where hold-out depends on it. partitions: column and text of each value, from a table's log.
projection: a text of the reader's, on how the columns of rows follow from those of the file.
accepted: a text on the rewritten file that is ignored: size, and ETag or modification time."""
LATER = "later_groups"
"""Fact of a shard: the rows of its row groups after the first three, as ``run_lengths``."""
TYPES = "types"
"""Fact of a shard: its schema as a text of the reader's. Saved once, like ``schema``."""
SHARD_JSON, DIGEST_JSON, MIN_JSON = 1 << 12, 64, 1 << 26
"""Limit of unpacked JSON bytes for each shard, for each digest, and the minimum limit. A column of
a schema takes 90 bytes."""
_HEAD = struct.Struct("<QQQ")
Facts = Mapping[str, Any]
"""Saved facts of a shard; see ``shorten_facts``."""
Run = tuple[int, int, bytes]
"""Number of a shard, of its first row group in the run, and the digests of it and the next ones."""


@dataclass(frozen=True)
class Segment:
    """Entries of a ledger. first: number of its first shard. changed: earlier ones, new facts."""

    first: int
    shards: tuple[Facts, ...] = ()
    changed: tuple[tuple[int, Facts], ...] = ()
    digests: tuple[Run, ...] = ()

    @cached_property
    def weight(self) -> int:
        """Approximate size in bytes; computed once: an append must not look at all shards."""
        count = sum(len(run[2]) for run in self.digests)
        return 100 * (len(self.shards) + len(self.changed)) + count

    def merge(self, other: Segment) -> Segment:
        """This segment and the next as one."""
        shards, changed = [*self.shards, *other.shards], dict(self.changed)
        for number, facts in other.changed:
            if number < self.first:
                changed[number] = facts
            else:
                shards[number - self.first] = facts
        both = join_runs([*self.digests, *other.digests])
        return Segment(self.first, tuple(shards), tuple(changed.items()), both)


def join_runs(digests: Sequence[Run]) -> tuple[Run, ...]:
    """Runs in order, adjacent ones joined.

    >>> join_runs([(0, 1, b"b" * 16), (0, 0, b"a" * 16), (2, 0, b"c" * 16)])
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


def shorten_facts(facts: Facts) -> Facts:
    """The facts of a shard's fingerprint that the ledger saves; idempotent.

    The first half of the footer's hash, the number of row groups, the rows of the first three, and
    those of the others if they are few numbers.
    """
    shortened = {key: value for key, value in facts.items() if value is not None}
    if "footer_sha256" in shortened:
        shortened["footer_sha256"] = shortened["footer_sha256"][: 2 * HASH_BYTES]
    if "groups" in shortened:
        groups = shortened["groups"]
        shortened.setdefault("row_groups", len(groups))
        later = run_lengths(groups[GROUPS:])
        if 0 < len(later) <= MOST_RUNS:
            shortened[LATER] = later
        shortened["groups"] = list(groups[:GROUPS])
    if "partitions" in shortened:
        shortened["partitions"] = [list(pair) for pair in shortened["partitions"]]
    return shortened


def run_lengths(rows: Sequence[int]) -> list[int]:
    """Row counts, each followed by −n where n more are equal.

    >>> run_lengths([700, 700, 700, 50])
    [700, -2, 50]
    """
    found: list[int] = []
    for count, equal in itertools.groupby(rows):
        more = sum(1 for _ in equal) - 1
        found += [count, -more] if more else [count]
    return found


def groups_of(facts: Facts) -> tuple[int, ...] | None:
    """The rows of each row group of a shard, if the ledger has all of them and they add up."""
    first, later = facts.get("groups", ()), facts.get(LATER, ())
    count = len(first) + sum(1 if number >= 0 else -number for number in later)
    if count != facts.get("row_groups") or count > MOST_GROUPS:
        return None
    groups = [*first]
    for number in later:
        groups += [number] if number >= 0 else groups[-1:] * -number
    whole = len(groups) == count and min(groups, default=0) >= 0
    return tuple(groups) if whole and sum(groups) == facts.get("rows") else None


def encode(segment: Segment) -> bytes:
    """The bytes of a segment; equal segments give equal bytes."""
    facts = [*segment.shards, *(facts for _, facts in segment.changed)]
    at_schema, schemas = _distinct_schemas(facts)
    types = [types for _, types in schemas]
    header = {
        "first": segment.first,
        "changed": [number for number, _ in segment.changed],
        **_columns(facts),
        **_optional_columns(facts),
        "schema": at_schema,
        "schemas": [schema for schema, _ in schemas],
        **({TYPES: types} if any(types) else {}),
        "digests": [
            [shard - before, group, len(data) // HASH_BYTES]
            for before, (shard, group, data) in zip(
                [0, *(run[0] for run in segment.digests)], segment.digests, strict=False
            )
        ],
    }
    json = canonical(header)
    footers = [bytes.fromhex(entry.get("footer_sha256", "00" * HASH_BYTES)) for entry in facts]
    digests = b"".join(run[2] for run in segment.digests)
    if len(json) > (limit := _json_limit(len(facts), len(digests) // HASH_BYTES)):
        raise UsageError(
            f"the names and columns of the shards take {len(json):,} bytes in the ledger, expected "
            f"{limit:,} at most: write shards with fewer columns, or shorter names"
        )
    text = zlib.compress(json, 9)
    head = _HEAD.pack(len(facts), len(digests) // HASH_BYTES, len(text))
    return b"".join([MAGIC, head, text, *footers, digests])


def _json_limit(shards: int, digests: int) -> int:
    return MIN_JSON + SHARD_JSON * shards + DIGEST_JSON * digests


def _distinct_schemas(facts: Sequence[Facts]) -> tuple[list[int], list[tuple[Any, Any]]]:
    """The number of each shard's schema, −1 without one; and the schemas, with their types."""
    numbers: dict[tuple[bytes, str | None], int] = {}
    # Mostly one object, however many shards.
    seen: dict[tuple[int, str | None], int] = {}
    places = []
    for shard in facts:
        schema, types = shard.get("schema"), shard.get(TYPES)
        if schema is None:
            places.append(-1)
            continue
        number = seen.get((id(schema), types))
        if number is None:
            number = numbers.setdefault((canonical(schema), types), len(numbers))
            seen[id(schema), types] = number
        places.append(number)
    return places, [(parse(schema), types) for schema, types in numbers]


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


def _optional_columns(facts: Sequence[Facts]) -> dict[str, list[Any]]:
    found = {
        key: [one.get(key) for one in facts]
        for key in (*OPTIONAL, LATER)
        if any(key in one for one in facts)
    }
    if "name" in found:
        both = zip(found["name"], facts, strict=True)
        found["name"] = [_shorten_name(name, str(one["url"])) for name, one in both]
    return found


def _shorten_name(name: Any, url: str) -> Any:
    """Its length where the URL ends with it, as nearly all do."""
    return len(name) if isinstance(name, str) and name and url.endswith(name) else name


def _shared(before: str, after: str) -> int:
    """Length of the common prefix of two texts."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def decode(data: bytes) -> Segment:
    """The segment of these bytes. Raises CorruptionError for any others."""
    try:
        return _parse_segment(data)
    except (struct.error, zlib.error, ValueError, TypeError, LookupError) as error:
        raise CorruptionError(f"a segment of the ledger cannot be read: {error}") from None


def _parse_segment(data: bytes) -> Segment:
    """Returns the segment in these bytes. Raises ValueError if they are not one."""
    start = len(MAGIC) + _HEAD.size
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("its header is not that of a segment")
    shards, digests, length = _HEAD.unpack_from(data, len(MAGIC))
    if start + length + HASH_BYTES * (shards + digests) != len(data):
        raise ValueError(f"{len(data)} bytes, but its header gives another length")
    limit = _json_limit(shards, digests)
    unpacked = zlib.decompressobj()
    text = unpacked.decompress(data[start : start + length], limit)
    if not unpacked.eof or unpacked.unused_data:
        raise ValueError(f"its JSON has more than {limit} bytes or is truncated")
    fields = Fields(parse(text), "the segment")
    hashes = memoryview(data)[start + length :]
    facts = [*_parse_facts(fields, shards, hashes)]
    changed = fields.items("changed")
    added = shards - len(changed)
    first = fields.number("first", 1 << 62)
    if added < 0 or not all(type(place) is int and 0 <= place < first for place in changed):
        raise ValueError("it changes shards that do not precede it")
    return Segment(
        first,
        tuple(facts[:added]),
        tuple(zip(changed, facts[added:], strict=True)),
        tuple(_parse_runs(fields.items("digests"), hashes[HASH_BYTES * shards :], first + added)),
    )


def _parse_facts(fields: Fields, shards: int, hashes: memoryview) -> Iterator[Facts]:
    """Facts by shard, from their columns, which are checked as a whole: there may be a million."""
    keys = [*PLAIN, *(key for key in (*OPTIONAL, LATER) if key in fields.values)]
    lists = {key: fields.items(key) for key in ("url", "mtime_ns", "schema", *keys)}
    for key, values in lists.items():
        if len(values) != shards:
            raise ValueError(f"{len(values)} values of {key} for {shards} shards")
    lists["url"] = [*_parse_urls(lists["url"])]
    times = itertools.accumulate(map(int, lists["mtime_ns"]))
    lists["mtime_ns"] = [time if time >= 0 else None for time in times]
    schemas = [_checked_schema(value) for value in fields.items("schemas")]
    if TYPES in fields.values:
        types = _checked_types(fields.items(TYPES), len(schemas))
        lists[TYPES] = [types[place] if place >= 0 else None for place in lists["schema"]]
    lists["schema"] = [schemas[place] if place >= 0 else None for place in lists["schema"]]
    if "name" in lists:
        both = zip(lists["name"], lists["url"], strict=True)
        lists["name"] = [
            _end_of(url, value) if type(value) is int else value for value, url in both
        ]
    digits, width = hashes[: shards * HASH_BYTES].hex(), 2 * HASH_BYTES
    footers = (digits[place : place + width] for place in range(0, len(digits), width))
    lists["footer_sha256"] = [value if value.strip("0") else None for value in footers]
    for key, kind in _KINDS.items():
        _check_kind(key, kind, lists.get(key, ()))
    _check_partitions(lists.get("partitions", ()))
    _shorten_groups(lists)
    # Nearly always a fact is there for all shards or for none.
    columns = {key: values for key, values in lists.items() if any(_is_there(values))}
    partial = not all(all(_is_there(values)) for values in columns.values())
    for row in zip(*columns.values(), strict=True):
        facts = dict(zip(columns, row, strict=True))
        yield (
            {key: value for key, value in facts.items() if value is not None} if partial else facts
        )


def _is_there(values: Sequence[Any]) -> Iterator[bool]:
    return (value is not None for value in values)


def _parse_urls(values: Sequence[Any]) -> Iterator[str]:
    url = ""
    for shared, rest in values:
        if not 0 <= shared <= len(url) or not isinstance(rest, str):
            raise ValueError("a URL shares more than the length of the one before it")
        url = url[:shared] + rest
        yield url


def _end_of(url: str, length: int) -> str:
    if not 0 < length <= len(url):
        raise ValueError("the name of a shard is longer than its URL")
    return url[-length:]


_KINDS = {
    **dict.fromkeys(("format", "etag", "key", "skipped", "name", "projection", "accepted"), str),
    **dict.fromkeys(("size", "rows", "row_groups", "update", "sequence"), int),
}


def _check_kind(key: str, kind: type, values: Sequence[Any]) -> None:
    if not {*map(type, values)} <= {kind, type(None)}:
        raise ValueError(f"{key} of a shard is not a {kind.__name__}")


def _check_partitions(values: Sequence[Any]) -> None:
    for column, value in itertools.chain.from_iterable(filter(None, values)):
        if not (isinstance(column, str) and isinstance(value, str | None)):
            raise ValueError("a partition value of a shard is not a text")


def _shorten_groups(found: dict[str, list[Any]]) -> None:
    """Shortens the facts about row groups in place, as ``shorten_facts`` does, by column."""
    for index, groups in enumerate(found["groups"]):
        if groups is None:
            continue
        if not {*map(type, groups)} <= {int}:
            raise ValueError("the row count of a row group is not an int")
        if found["row_groups"][index] is None:
            found["row_groups"][index] = len(groups)
        if len(groups) > GROUPS:
            found["groups"][index] = groups[:GROUPS]
    for later in filter(None, found.get(LATER, ())):
        if not {*map(type, later)} <= {int}:
            raise ValueError("the row count of a row group is not an int")
    names = {name: name for name in found["format"]}  # one text, however many shards
    found["format"] = [names[name] for name in found["format"]]


def _checked_schema(schema: Any) -> Any:
    for name, kind, nullable in schema or ():
        if not (isinstance(name, str) and isinstance(kind, str) and isinstance(nullable, bool)):
            raise ValueError("a schema has a column with invalid fields")
    return schema


def _checked_types(values: Sequence[Any], schemas: int) -> Sequence[str | None]:
    if len(values) != schemas or not {*map(type, values)} <= {str, type(None)}:
        raise ValueError("the types of a schema are not a text")
    return values


def _parse_runs(values: Sequence[Any], hashes: memoryview, shards: int) -> Iterator[Run]:
    shard = low = 0
    for more, group, count in values:
        shard += more
        high = low + count * HASH_BYTES
        if not (0 <= shard < shards and group >= 0 and count > 0 and high <= len(hashes)):
            raise ValueError("it has digests of missing row groups")
        yield shard, group, bytes(hashes[low:high])
        low = high
    if low != len(hashes):
        raise ValueError("it has digests without a row group")
