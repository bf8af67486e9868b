"""Row groups to be read, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamomd.core.errors import UsageError
from streamomd.core.urls import shown
from streamomd.shards.shard import Shard, ShardSet


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
