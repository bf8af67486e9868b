"""The order in which rows are read: shards, row groups, ranges of rows; the position of a run."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UsageError
from streamomd.core.urls import shown
from streamomd.shards.shard import Shard, ShardSet

_DIGITS = re.compile(rb"([0-9]+)")


def path_key(path: str) -> bytes:
    """Sort key of a path: its bytes, never the order in which a store lists it."""
    return path.encode("utf-8", "surrogateescape")


def natural_key(path: str) -> tuple[tuple[tuple[int, bytes], ...], bytes]:
    """Sort key in which digits compare as numbers, all else bytewise; ties bytewise.

    >>> sorted(["hour=10", "hour=2", "hour=02", "day"], key=natural_key)
    ['day', 'hour=02', 'hour=2', 'hour=10']
    """
    name = path_key(path)
    # Every second part is digits. A number of any length compares by its length, then its digits.
    parts = (
        (len(digits := part.lstrip(b"0")), digits) if place % 2 else (0, part)
        for place, part in enumerate(_DIGITS.split(name))
    )
    return tuple(parts), name


GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Between two states of SplitMix64."""


def mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers that SplitMix64 gives at these states (Steele, Lea & Flood 2014, "Fast splittable
    pseudorandom number generators", Fig. 16)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def places(order: str, seed: int, shards: int, epoch: int) -> list[int]:
    """The shards of an epoch, in order; epoch −1, of a rule's observation pass, is sorted."""
    if order == "shuffled" and epoch >= 0:
        return permutation(shards, seed, epoch)
    return list(range(shards))


def permutation(n: int, seed: int, epoch: int) -> list[int]:
    """Indexes ``0 … n-1`` as permuted in this epoch; the same on every machine and version.

    They are sorted by the SHA-256 of the text ``seed:epoch:index``.
    """
    return sorted(range(n), key=lambda i: hashlib.sha256(f"{seed}:{epoch}:{i}".encode()).digest())


@dataclass(frozen=True, order=True)
class Cursor:
    """The next row to consume: of ``epoch``, of the shard at ``place`` in that epoch's order.

    Epoch −1 is the pass of a rule that observes all rows before it learns from the first.

    Rows are absolute and counted when they are consumed, so batch boundaries and
    prefetching have no effect.
    """

    epoch: int = 0
    place: int = 0
    row: int = 0

    def to_json(self) -> dict[str, int]:
        """For a manifest."""
        return {"epoch": self.epoch, "place": self.place, "row": self.row}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Back from ``to_json``."""
        return cls(int(saved["epoch"]), int(saved["place"]), int(saved["row"]))


COLLECTION = "dask-collection://"
"""Prefix of a collection's name in a job: its graph is not saved."""
STREAM = "arrow-stream://"
"""Prefix of the name of a stream of rows, which are not saved either."""


def unread_rows(dataset: Dataset) -> int:
    """Rows that a pass does not read because of a filter, which collections have none of."""
    return int(getattr(dataset, "unread_rows", 0))


class Dataset(Protocol):
    """Ordered rows, in shards or partitions that a cursor can reference."""

    @property
    def rows(self) -> int:
        """Total rows; 0 if unknown before they are read."""

    @property
    def remedy(self) -> str:
        """What to do where a resumed run finds other rows."""

    def __len__(self) -> int:
        """Number of shards or partitions."""

    def part_name(self, number: int) -> str:
        """A shard or partition, for messages."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict per shard or partition, in order, for JSON; compared on resume."""


@dataclass(frozen=True)
class Group:
    """A row group: its number, its first row in the shard, and how many rows it has."""

    shard: Shard
    number: int
    row: int
    rows: int


@dataclass(frozen=True)
class Job:
    """A row group to be read, from row ``begin`` of the shard on, before row ``end``."""

    position: int
    group: Group
    begin: int
    end: int | None = None
    """None: the group's end."""


def _legal_start(
    shard_set: ShardSet, places: Sequence[int], start: tuple[int, int]
) -> tuple[int, int]:
    position, row = start
    if position == len(places) and row == 0:
        return start
    if not 0 <= position < len(places):
        raise UsageError(f"start is at place {position} of {len(places)} shards")
    shard = shard_set.shards[places[position]]
    if not 0 <= row <= shard.rows:
        raise UsageError(f"start is at row {row} of {shown(shard.url)}, which has {shard.rows}")
    return start


def jobs_of(
    shard_set: ShardSet, places: Sequence[int], start: tuple[int, int] = (0, 0)
) -> Iterator[Job]:
    """Every group with rows from ``start`` on that a filter may take. Raises UsageError if there is
    no such start."""
    return _jobs(shard_set, tuple(places), _legal_start(shard_set, places, start))


def _jobs(shard_set: ShardSet, places: tuple[int, ...], start: tuple[int, int]) -> Iterator[Job]:
    for position in range(start[0], len(places)):
        begin = start[1] if position == start[0] else 0
        for group in groups_from(shard_set.shards[places[position]]):
            if group.row + group.rows > begin:
                yield Job(position, group, max(begin, group.row))


def groups_from(shard: Shard, first: int = 0) -> Iterator[Group]:
    """Row groups with rows that a filter may take, from number ``first`` on."""
    row = sum(shard.groups[:first])
    for number, rows in enumerate(shard.groups[first:], first):
        if rows and number not in shard.unread:
            yield Group(shard, number, row, rows)
        row += rows


NEAR = 0.25  # of a range: the most by which a boundary moves to the edge of a row group


@dataclass(frozen=True)
class ShardRange:
    """Rows ``begin`` … ``end`` − 1 of a shard, which lie in one group."""

    group: Group
    begin: int
    end: int


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of an epoch. begin: position in the order, and row of that shard."""

    begin: tuple[int, int]
    spans: tuple[ShardRange, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(span.end - span.begin for span in self.spans)


def split_rows(
    shards: ShardSet, places: Sequence[int], count: int, begin: int = 0, end: int | None = None
) -> list[RowRange]:
    """All rows of the shards at ``places``, in order, as ``count`` ranges of about equal length;
    fewer if there are fewer rows. begin, end: of rows ``begin`` … ``end`` − 1 of that order only.

    They depend on the shards and the count only. A boundary is at the edge of a row group if one is
    near, because a range that starts inside a group must skip its earlier rows.
    """
    jobs = [*jobs_of(shards, places)]
    edges = [0]
    for job in jobs:
        edges.append(edges[-1] + job.group.rows)
    ranges = []
    for low, high in pairwise(_cuts(edges, count, begin, edges[-1] if end is None else end)):
        if low == high:
            continue
        spans, first_row = [], None
        for at in range(max(0, bisect_left(edges, low + 1) - 1), len(jobs)):
            if edges[at] >= high:
                break
            job, first = jobs[at], jobs[at].group.row - edges[at]
            first_row = first_row or (job.position, first + max(low, edges[at]))
            spans.append(
                ShardRange(job.group, first + max(low, edges[at]), first + min(high, edges[at + 1]))
            )
        assert first_row is not None
        ranges.append(RowRange(first_row, tuple(spans)))
    return ranges


def _cuts(edges: list[int], count: int, begin: int, end: int) -> list[int]:
    """Boundaries of the ranges, in rows from the first."""
    rows = end - begin
    cuts = [begin]
    for k in range(1, count):
        ideal = begin + k * rows // count
        after = bisect_left(edges, ideal)
        near = min(edges[max(0, after - 1) : after + 1], key=lambda edge: abs(edge - ideal))
        cuts.append(near if abs(near - ideal) * count <= NEAR * rows else ideal)
    return [*cuts, end]
