"""The ledger of a run: its shards in training order and their digests, compared field by field.

It only grows. A commit names its segments by SHA-256; a later commit writes new entries as another
segment. Two segments are merged if the older is less than twice as large as the newer, so a commit
names few segments and writes on average little more than the new entries.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from streamomd.checkpoint.commit_reader import (
    check_format,
    first_sequence_of_run,
    read_commit,
    require_commits,
    sequences,
)
from streamomd.checkpoint.documents import (
    MOST_INLINE,
    bytes_of,
    read_document,
    save_document,
    write_shared,
)
from streamomd.checkpoint.manifest import SEGMENTS, Commit
from streamomd.checkpoint.segments import (
    HASH_BYTES,
    OPTIONAL,
    Facts,
    Segment,
    decode,
    encode,
    join_runs,
    shorten_facts,
)
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import shown
from streamomd.core.wording import first_lines

CONTENT = ("format", "size", "rows", "row_groups", "groups", "schema", "footer_sha256", "key")
ADVISORY = ("etag", "mtime_ns")
"""Fields that change when a file is copied; alone they do not show changed rows."""
MAX_LINES = 10
Fingerprint = Mapping[str, Any]


class Difference(NamedTuple):
    """A changed shard. position: in the order of the run, or in the new order if it is new."""

    position: int
    url: str
    text: str
    refused: bool


def compare(
    saved: Sequence[Fingerprint], found: Sequence[Fingerprint], *, accept_new: bool = False
) -> list[Difference]:
    """Every difference between two lists of fingerprints, or of facts of a ledger, in read order.

    A copied file (another time or ETag, the same footer and size) is reported but not refused, and
    so are new shards after the last if ``accept_new``. All other changes are refused.
    """
    saved, found = (
        [shorten_facts(facts) for facts in saved],
        [shorten_facts(facts) for facts in found],
    )
    differences = [
        difference
        for position, (before, after) in enumerate(zip(saved, found, strict=False))
        if before["url"] == after["url"]
        for difference in _changes(position, before, after)
    ]
    if [facts["url"] for facts in saved] == [facts["url"] for facts in found[: len(saved)]]:
        return differences + list(_added(len(saved), found, refused=not accept_new))
    return differences + list(_moves(saved, found))


def explain(differences: Sequence[Difference]) -> str:
    """At most ten differences, one per line."""
    lines = [f"shard {one.position} {shown(one.url)}: {one.text}" for one in differences]
    return "\n".join(first_lines(lines, MAX_LINES))


def _changes(position: int, before: Fingerprint, after: Fingerprint) -> Iterator[Difference]:
    changed = [key for key in CONTENT if before.get(key) != after.get(key)]
    noted = [key for key in ADVISORY if before.get(key) != after.get(key)]
    if changed:
        shown_keys = [key for key in changed if key != "row_groups" or "groups" not in changed]
        text = "; ".join(_change(key, before, after) for key in shown_keys)
        yield Difference(position, after["url"], text, refused=True)
    elif noted:
        text = f"copied or touched ({', '.join(noted)} changed), with the same footer and size"
        yield Difference(position, after["url"], text, refused=False)


def _added(start: int, found: Sequence[Fingerprint], *, refused: bool) -> Iterator[Difference]:
    hint = "; pass --accept-new-shards to continue with it" if refused else ""
    for position in range(start, len(found)):
        text = f"new, after the last{hint}"
        yield Difference(position, found[position]["url"], text, refused=refused)


def _moves(saved: Sequence[Fingerprint], found: Sequence[Fingerprint]) -> Iterator[Difference]:
    """The URLs or their order differ: shards removed, inserted, or moved."""
    before, after = [facts["url"] for facts in saved], [facts["url"] for facts in found]
    stayed, there = set(before) & set(after), set(after)
    for position, url in enumerate(before):
        if url not in there:
            yield Difference(position, url, "removed", refused=True)
    for position, url in enumerate(after):
        if url not in stayed:
            yield Difference(
                position, url, "new, not after the last of an unchanged list", refused=True
            )
    kept_order, new_order = (
        [url for url in before if url in stayed],
        [url for url in after if url in stayed],
    )
    for position, url in enumerate(kept_order):
        if position >= len(new_order) or new_order[position] != url:
            yield Difference(
                before.index(url), url, "not at its position in the order", refused=True
            )


def _change(key: str, before: Fingerprint, after: Fingerprint) -> str:
    old, new = before.get(key), after.get(key)
    if key == "schema":
        return _schema_change(old or (), new or ())
    if key in ("groups", "row_groups"):
        return f"row groups {_groups(before)} -> {_groups(after)}"
    if key in ("footer_sha256", "key"):
        return f"{key.removesuffix('_sha256')} {str(old)[:12]} -> {str(new)[:12]}"
    return f"{key} {old} -> {new}"


def _groups(facts: Fingerprint) -> str:
    rows, count = facts.get("groups", ()), facts.get("row_groups", 0)
    some = ", ".join(str(one) for one in rows)
    return f"[{some}{', …' if count > len(rows) else ''}] ({count})"


def _schema_change(before: Sequence[Any], after: Sequence[Any]) -> str:
    """The first column that differs, by position; columns are [name, type, nullable]."""
    for old, new in zip(before, after, strict=False):
        if old != new:
            return f"column {_column(old)} -> {_column(new)}"
    longer, sign = (before, "-") if len(before) > len(after) else (after, "+")
    position = min(len(before), len(after))
    return f"column {sign}{_column(longer[position])}"


def _column(column: Sequence[Any]) -> str:
    name, kind, nullable = column
    return f"{name} {kind}{'' if nullable else ' not null'}"


RATIO = 2
Digest = tuple[str, int, bytes]
"""URL of a shard, index of the row group, digest."""


class Ledger:
    """Shards, digests and the segments that hold them; an unwritten segment has no hash yet.

    inline: the bytes of segments that are in manifests, by hash.
    """

    def __init__(self, segments: Iterable[tuple[Segment, str]] = ()) -> None:
        self._segments = [*segments]
        self.inline: dict[str, bytes] = {}
        self._shards: list[Facts] = []
        for segment, _ in self._segments:
            if segment.first != len(self._shards):
                raise CorruptionError("the segments of the ledger are not consecutive")
            self._shards += segment.shards
            for number, facts in segment.changed:
                self._shards[number] = facts
        self._numbers = _numbers(self._shards)

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

    def digests(self, first: int = 0, last: int | None = None) -> Iterator[Digest]:
        """Every digest of the shards from number ``first`` to ``last``; None: to the end."""
        for segment, _ in self._segments:
            runs = segment.digests
            begin = bisect.bisect_left(runs, first, key=lambda run: run[0])
            end = None if last is None else bisect.bisect_right(runs, last, key=lambda run: run[0])
            for shard, group, data in runs[begin:end]:
                url = str(self._shards[shard]["url"])
                for low in range(0, len(data), HASH_BYTES):
                    yield url, group + low // HASH_BYTES, data[low : low + HASH_BYTES]

    def refresh(self, fingerprints: Mapping[int, Facts]) -> None:
        """Replace the fingerprints of known shards, given by number.

        What the ledger records of a shard besides its fingerprint stays.
        """
        found = {
            number: {**shorten_facts(one), **_recorded(self._shards[number])}
            for number, one in fingerprints.items()
        }
        self.change({at: facts for at, facts in found.items() if facts != self._shards[at]})

    def append(self, facts: Sequence[Facts]) -> None:
        """Append new shards after the last. A skipped one's URL may be that of a later entry."""
        self._add((), [shorten_facts(one) for one in facts])

    def change(self, facts: Mapping[int, Facts]) -> None:
        """Replace all facts of known shards, given by number; their digests stay."""
        self._add([(number, shorten_facts(facts[number])) for number in sorted(facts)], ())

    def _add(self, changed: Sequence[tuple[int, Facts]], new: Sequence[Facts]) -> None:
        self._append(Segment(len(self._shards), tuple(new), tuple(changed)))
        for number, facts in changed:
            if self._numbers.get(str(self._shards[number]["url"])) == number:
                del self._numbers[str(self._shards[number]["url"])]
            self._shards[number] = facts
            self._numbers |= _numbers([facts], number)
        self._numbers |= _numbers(new, len(self._shards))
        self._shards += new

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
        """Write the new segments; return the hashes of all, for a commit's document.

        The last ones of a consistent store are ``inline`` as long as there is room for them.
        """
        inline: dict[str, bytes] = {}
        for index, (segment, sha256) in reversed([*enumerate(self._segments)]):
            if sha256 and sha256 not in self.inline:
                continue
            data = self.inline.get(sha256) or encode(segment)
            if sum(map(len, inline.values())) + len(data) <= MOST_INLINE:
                self._segments[index] = segment, save_document(store, SEGMENTS, data, inline)
            else:
                self._segments[index] = segment, write_shared(store, SEGMENTS, data)
        self.inline = inline
        return [sha256 for _, sha256 in self._segments]


def _numbers(shards: Sequence[Facts], first: int = 0) -> dict[str, int]:
    """The number of each shard by URL; a skipped one has no digests, so no other needs it."""
    return {
        str(facts["url"]): number
        for number, facts in enumerate(shards, first)
        if "skipped" not in facts
    }


def _recorded(facts: Facts) -> Facts:
    return {key: facts[key] for key in OPTIONAL if key in facts}


def read_ledger(store: Store, commit: Commit) -> Ledger:
    """The ledger of a commit. One of an older version has only fingerprints: no digests.

    Raises CorruptionError if both copies of a segment are missing or damaged.
    """
    if SEGMENTS in commit.document:
        named = commit.document[SEGMENTS]
        # A million facts that all stay: looking for garbage among them would double the time.
        with no_garbage_collection():
            found = Ledger((decode(bytes_of(store, commit, SEGMENTS, one)), one) for one in named)
            found.inline = {one: commit.inline[one] for one in named if one in commit.inline}
            return found
    dataset: Any = commit.document.get("dataset")
    return Ledger.from_fingerprints(read_document(store, "dataset", dataset) if dataset else ())


def read_newest_ledger(store: Store) -> tuple[Commit, Ledger]:
    """The newest commit of a run whose manifest and ledger are intact; no part is read.

    Raises NoCommitError if there is none, StorageError.
    """
    check_format(store)
    listed = sequences(store)
    require_commits(store, listed)
    first, problems = first_sequence_of_run(store, listed[-1]), []
    for sequence in reversed([number for number in listed if number >= first]):
        try:
            commit = read_commit(store, sequence)
            return commit, read_ledger(store, commit)
        except CorruptionError as error:
            problems.append(f"commit {sequence}: {error}")
    raise NoCommitError(f"no usable ledger in {shown(store.url)}: {'; '.join(problems[:10])}")


def list_ledger(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The shards of a run in learned order, and those skipped, as dicts for JSON.

    shards: url, rows, update (0: the first run), sequence (the first commit that lists it).
    skipped: url, reason, update, sequence; without those that were learned later.
    """
    commit, ledger = read_newest_ledger(store)
    first = first_sequence_of_run(store, commit.sequence)
    facts = ledger.shards
    learned = [shard for shard in facts if "skipped" not in shard]
    urls = {shard["url"] for shard in learned}
    skipped = [shard for shard in facts if "skipped" in shard and shard["url"] not in urls]
    return {
        "shards": [
            {"url": shard["url"], "rows": shard.get("rows"), **_place(shard, first)}
            for shard in learned
        ],
        "skipped": [
            {"url": shard["url"], "reason": shard["skipped"], **_place(shard, first)}
            for shard in skipped
        ],
    }


def _place(facts: Facts, first: int) -> dict[str, int]:
    """Update and sequence. The shards of a first run do not record them."""
    return {"update": facts.get("update", 0), "sequence": facts.get("sequence", first)}
