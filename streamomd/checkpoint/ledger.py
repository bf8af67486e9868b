"""The ledger of a run: its shards in training order, and their digests.

It only grows. A commit names its segments by SHA-256; a later commit writes new entries as another
segment. Two segments are merged if the older is less than twice as large as the newer, so a commit
names few segments and writes on average little more than the new entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from streamomd.checkpoint.documents import read_bytes, read_document, write_shared
from streamomd.checkpoint.manifest import SEGMENTS, Commit
from streamomd.checkpoint.segments import (
    HASH_BYTES,
    Facts,
    Segment,
    decode,
    encode,
    join_runs,
    shorten_facts,
)
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError

RATIO = 2
Digest = tuple[str, int, bytes]
"""URL of a shard, index of the row group, digest."""


class Ledger:
    """Shards, digests and the segments that hold them; an unwritten segment has no hash yet."""

    def __init__(self, segments: Iterable[tuple[Segment, str]] = ()) -> None:
        self._segments = [*segments]
        self._shards: list[Facts] = []
        for segment, _ in self._segments:
            if segment.first != len(self._shards):
                raise CorruptionError("the segments of the ledger are not consecutive")
            self._shards += segment.shards
            for number, facts in segment.changed:
                self._shards[number] = facts
        self._numbers = {str(facts["url"]): number for number, facts in enumerate(self._shards)}

    @classmethod
    def from_fingerprints(cls, fingerprints: Iterable[Facts]) -> Self:
        """The ledger of a new run on these shards."""
        ledger = cls()
        ledger.append([*fingerprints])
        return ledger

    @property
    def shards(self) -> Sequence[Facts]:
        """Facts of each shard, in order; see ``segments.shorten_facts``."""
        return self._shards

    def digests(self, first: int = 0) -> Iterator[Digest]:
        """Every digest of the shards from number ``first`` on."""
        for segment, _ in self._segments:
            for shard, first_group, data in segment.digests:
                if shard < first:
                    continue
                url = str(self._shards[shard]["url"])
                for low in range(0, len(data), HASH_BYTES):
                    yield url, first_group + low // HASH_BYTES, data[low : low + HASH_BYTES]

    def append(self, facts: Sequence[Facts]) -> None:
        """Append shards."""
        known = len(self._shards)
        self._append(Segment(known, tuple(shorten_facts(one) for one in facts)))
        self._shards += [shorten_facts(one) for one in facts]
        for number in range(known, len(self._shards)):
            self._numbers[str(self._shards[number]["url"])] = number

    def change(self, facts: Mapping[int, Facts]) -> None:
        """Replace the facts of shards, by number."""
        found = {number: shorten_facts(one) for number, one in facts.items()}
        changed = tuple((n, one) for n, one in found.items() if self._shards[n] != one)
        self._append(Segment(len(self._shards), changed=changed))
        for number, one in changed:
            self._shards[number] = one
            self._numbers[str(one["url"])] = number

    def add(self, digests: Iterable[Digest]) -> None:
        """Add new digests."""
        found = [(self._numbers[url], group, digest) for url, group, digest in digests]
        self._append(Segment(len(self._shards), digests=join_runs(found)))

    def _append(self, segment: Segment) -> None:
        if not segment.weight:
            return
        self._segments.append((segment, ""))
        while len(self._segments) > 1:
            (before, _), (last, _) = self._segments[-2:]
            if before.weight >= RATIO * last.weight:
                return
            self._segments[-2:] = [(before.merge(last), "")]

    def write(self, store: Store) -> list[str]:
        """Write the new segments; return the hashes of all, for a commit's document."""
        for index, (segment, sha256) in enumerate(self._segments):
            if not sha256:
                self._segments[index] = segment, write_shared(store, SEGMENTS, encode(segment))
        return [sha256 for _, sha256 in self._segments]


def read_ledger(store: Store, commit: Commit) -> Ledger:
    """The ledger of a commit. One of an older version has only fingerprints: no digests.

    Raises CorruptionError if both copies of a segment are missing or damaged.
    """
    if SEGMENTS in commit.document:
        named = commit.document[SEGMENTS]
        return Ledger((decode(read_bytes(store, SEGMENTS, one)), one) for one in named)
    dataset: Any = commit.document.get("dataset")
    return Ledger.from_fingerprints(read_document(store, "dataset", dataset) if dataset else ())
