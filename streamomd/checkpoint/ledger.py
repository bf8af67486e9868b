"""The ledger of a run: its shards in the order in which they are learned, and their digests.

It only grows. A commit names its segments by their SHA-256; a later commit writes what is new as
another segment. Two segments become one where the older has less than twice the weight of the
newer, so a commit names few of them and writes, on the average, little more than what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from streamomd.checkpoint.documents import keep_bytes, read_bytes, read_document
from streamomd.checkpoint.manifest import SEGMENTS, Commit
from streamomd.checkpoint.segments import HASH_BYTES, Facts, Segment, brief, decode, encode, runs
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError

RATIO = 2
Digest = tuple[str, int, bytes]
"""URL of a shard, number of its row group, digest."""


class Ledger:
    """Shards and digests, and the segments that hold them; those without a hash are not written."""

    def __init__(self, segments: Iterable[tuple[Segment, str]] = ()) -> None:
        self._segments = [*segments]
        self._shards: list[Facts] = []
        for segment, _ in self._segments:
            if segment.first != len(self._shards):
                raise CorruptionError("the segments of the ledger do not follow one another")
            self._shards += segment.shards
            for number, facts in segment.changed:
                self._shards[number] = facts
        self._numbers = {str(facts["url"]): number for number, facts in enumerate(self._shards)}

    @classmethod
    def begin(cls, fingerprints: Iterable[Facts]) -> Self:
        """The ledger of a run that begins with these shards."""
        ledger = cls()
        ledger.take([brief(one) for one in fingerprints])
        return ledger

    @property
    def shards(self) -> Sequence[Facts]:
        """Facts of each shard, in order; `segments.brief` says which."""
        return self._shards

    def digests(self) -> Iterator[Digest]:
        """Every digest."""
        for segment, _ in self._segments:
            for shard, first, data in segment.digests:
                url = str(self._shards[shard]["url"])
                for low in range(0, len(data), HASH_BYTES):
                    yield url, first + low // HASH_BYTES, data[low : low + HASH_BYTES]

    def take(self, fingerprints: Sequence[Facts]) -> None:
        """Have the shards be these: some may have other facts, and some may follow the last."""
        found, known = [brief(one) for one in fingerprints], len(self._shards)
        changed = [
            (number, facts)
            for number, (before, facts) in enumerate(zip(self._shards, found, strict=False))
            if before != facts
        ]
        self._append(Segment(known, tuple(found[known:]), tuple(changed)))
        self._shards = found
        self._numbers = {str(facts["url"]): number for number, facts in enumerate(found)}

    def add(self, digests: Iterable[Digest]) -> None:
        """Add digests that it does not have."""
        found = [(self._numbers[url], group, digest) for url, group, digest in digests]
        self._append(Segment(len(self._shards), digests=runs(found)))

    def _append(self, segment: Segment) -> None:
        if not segment.weight:
            return
        self._segments.append((segment, ""))
        while len(self._segments) > 1:
            (before, _), (last, _) = self._segments[-2:]
            if before.weight >= RATIO * last.weight:
                return
            self._segments[-2:] = [(before.then(last), "")]

    def write(self, store: Store) -> list[str]:
        """Write the segments that are new; the hashes of all, for a commit's document."""
        for place, (segment, sha256) in enumerate(self._segments):
            if not sha256:
                self._segments[place] = segment, keep_bytes(store, SEGMENTS, encode(segment))
        return [sha256 for _, sha256 in self._segments]


def read_ledger(store: Store, commit: Commit) -> Ledger:
    """The ledger of a commit; of an older version's, which has a fingerprint of the shards alone,
    one without digests and of which nothing is written.

    Raises CorruptionError if a part of it is missing or damaged in both copies.
    """
    if SEGMENTS in commit.document:
        named = commit.document[SEGMENTS]
        return Ledger((decode(read_bytes(store, SEGMENTS, one)), one) for one in named)
    dataset: Any = commit.document.get("dataset")
    return Ledger.begin(read_document(store, "dataset", dataset) if dataset else ())
