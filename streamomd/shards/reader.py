"""Reading shards ahead, in order, in pieces: bounded memory, exact rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamomd.core.errors import UsageError
from streamomd.core.profiling import current, staged
from streamomd.core.urls import shown
from streamomd.shards.allocator import Release, steady
from streamomd.shards.digests import Digests
from streamomd.shards.filesystem import REMOTE_BLOCK, connect, is_local
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.io_costs import shares
from streamomd.shards.open_shard import OpenShard, explain
from streamomd.shards.prefetch import Prefetcher, Run
from streamomd.shards.shard import Shard, ShardSet

T = TypeVar("T")
Convert = Callable[[pa.RecordBatch, Shard, int], T]
"""``convert(batch, shard, row)``: ``row`` is the absolute row of the batch's first."""

Between = Callable[["Reader", "Job"], Iterator[tuple["Piece[T]", int]]]
"""Gives a job's pieces, each with its bytes, in place of the thread's reader or by it."""

LOCAL_BLOCK = 1 << 20
LOCAL_HELD, REMOTE_HELD = 24 << 20, 128 << 20
"""What is read twice costs little from a disk's cache, and from a store as much again as once."""


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """Consecutive rows of one shard, converted."""

    position: int
    """Place of the shard in the order that was asked for."""
    row: int
    """Absolute row, in its shard, of the first."""
    rows: int
    value: T


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


def read_units(
    shard_set: ShardSet,
    *,
    places: Sequence[int],
    columns: Sequence[str],
    convert: Convert[T],
    start: tuple[int, int] = (0, 0),
    dictionary: Sequence[str] = (),
    threads: int = 2,
    budget_bytes: int = 160 << 20,
    unit_bytes: int = 16 << 20,
    between: Between[T] | None = None,
    digests: Digests | None = None,
) -> Generator[Piece[T], None, None]:
    """Every row of the shards ``places`` (indexes into the set), in order, from ``start`` on.

    ``start`` is (place in the order, absolute row in that shard). Only ``columns`` are read, in
    that order; those of ``dictionary`` stay dictionaries where they are strings in Parquet.
    ``convert`` runs in ``threads`` threads; at most ``budget_bytes`` of decoded rows wait, and
    one piece a thread more. A piece has about ``unit_bytes``, at most four times as many unless
    a single row has. Close the iterator to stop early: then no thread and no file is left.
    ``between`` may have the rows from elsewhere: a cache (`cached.Cached`). ``digests``: of row
    groups, recorded when a group is first read and verified before a row of it is given later.

    Raises, in the place in the order where it happened: `DataError` for rows that cannot be
    decoded, `ChangedDataError` for a shard that changed since it was found, `SchemaError` for a
    column it has not, `StorageError`, and whatever ``convert`` raises.
    """
    steady()
    jobs = jobs_of(shard_set, places, start)
    wanted = _wanted(shard_set.fs, columns, dictionary, unit_bytes)
    if profile := current():
        profile.split(len(columns), lambda: shares(shard_set, wanted))

    @contextmanager
    def session() -> Iterator[Run[Job, Piece[T]]]:
        reader = Reader(shard_set, wanted, digests)
        try:
            if between is not None:
                yield partial(between, reader)
            else:
                yield partial(reader.run, convert=convert)
        finally:
            reader.close()

    return Prefetcher(jobs, session, threads=max(1, threads), budget=budget_bytes).results()


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
    """Every group with rows from ``start`` on. Raises UsageError if there is no such start."""
    return _jobs(shard_set, tuple(places), _legal_start(shard_set, places, start))


def _jobs(shard_set: ShardSet, places: tuple[int, ...], start: tuple[int, int]) -> Iterator[Job]:
    for position in range(start[0], len(places)):
        shard = shard_set.shards[places[position]]
        begin = start[1] if position == start[0] else 0
        row = 0
        for number, rows in enumerate(shard.groups):
            if rows and row + rows > begin:
                yield Job(position, Group(shard, number, row, rows), max(begin, row))
            row += rows


def read_rows(
    group: Group,
    begin: int,
    end: int,
    *,
    options: Mapping[str, Any],
    columns: Sequence[str],
    convert: Convert[T],
    dictionary: Sequence[str] = (),
    unit_bytes: int = 16 << 20,
    between: Between[T] | None = None,
    digests: Digests | None = None,
) -> Generator[tuple[int, T], None, None]:
    """Rows ``begin`` … ``end`` − 1 of a shard, which lie in one group: (first row, converted).

    For another process than the one that found the shard. ``between``, ``digests``, and what is
    raised: as of ``read_units``.
    """
    steady()
    fs = connect(group.shard.url, options)
    wanted = _wanted(fs, columns, dictionary, unit_bytes)
    if between is not None:
        reader = Reader(ShardSet((group.shard,), fs), wanted, digests)
        try:
            for piece, _ in between(reader, Job(0, group, begin, end)):
                yield piece.row, piece.value
                del piece
        finally:
            reader.close()
        return
    opened = OpenShard(fs, group.shard, wanted, digests=digests)
    try:
        for batch, row in _within(opened.read(group.number), group.row, begin, end):
            yield row, _converted(convert, batch, group.shard, row)
    finally:
        opened.close()


def _wanted(
    fs: Any, columns: Sequence[str], dictionary: Sequence[str], unit_bytes: int
) -> ReadRequest:
    steps = (LOCAL_BLOCK, LOCAL_HELD) if is_local(fs) else (REMOTE_BLOCK, REMOTE_HELD)
    return ReadRequest(tuple(columns), tuple(dictionary), max(1, unit_bytes), *steps)


def look(shard: Shard, options: Mapping[str, Any]) -> None:
    """Open a shard and read its footer. Raises what ``read_units`` does, but of rows nothing."""
    fs = connect(shard.url, options)
    OpenShard(fs, shard, ReadRequest((), (), 1, LOCAL_BLOCK)).close()


def _within(
    batches: Iterator[pa.RecordBatch], row: int, begin: int, end: float
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches, the first beginning at ``row``, cut to rows ``begin`` … ``end`` − 1."""
    for batch in batches:
        after = row + batch.num_rows
        low, high = max(row, begin), min(after, end)
        if high > low:
            # A slice of all rows would do, but hold its parent.
            cut = (low, high) != (row, after)
            yield (batch.slice(low - row, high - low) if cut else batch), low
        row = after
        if row >= end:
            return
        del batch


def _converted(convert: Convert[T], batch: pa.RecordBatch, shard: Shard, row: int) -> T:
    try:
        return convert(batch, shard, row)
    except pa.ArrowException as error:
        raise explain(error, shard, row, row + batch.num_rows) from error


class Reader:
    """What one thread reads with: it keeps its shard open from one job to the next."""

    def __init__(
        self, shard_set: ShardSet, wanted: ReadRequest, digests: Digests | None = None
    ) -> None:
        self.digests = digests
        self._fs, self._versions = shard_set.fs, shard_set.versions
        self._wanted = wanted
        self._position = -1
        self._opened: OpenShard | None = None
        self._release = Release()

    def run(self, job: Job, convert: Convert[T]) -> Iterator[tuple[Piece[T], int]]:
        """The job's rows, decoded and converted: pieces, each with its bytes."""
        batches = self.look(job).read(job.group.number)
        # Read to its end, a group must have as many rows as its footer says: then none is cut off.
        end = math.inf if job.end is None else job.end
        decoded = staged("decode", _within(batches, job.group.row, job.begin, end))
        for batch, row in decoded:
            yield self._piece(job, batch, row, convert)
            del batch

    def look(self, job: Job) -> OpenShard:
        """Open the job's shard, unless it is: it must be the one that was found."""
        if self._opened is None or self._position != job.position:
            self.close()
            told = (self._wanted, self._versions, self.digests)
            self._opened = OpenShard(self._fs, job.group.shard, *told)
            self._position = job.position
        return self._opened

    def _piece(
        self, job: Job, batch: pa.RecordBatch, row: int, convert: Convert[T]
    ) -> tuple[Piece[T], int]:
        value = _converted(convert, batch, job.group.shard, row)
        # A value may share the batch's memory: the larger of the two is what it holds.
        size = max(batch.nbytes, int(getattr(value, "nbytes", 0)))
        self._release.passed(size)
        return Piece(job.position, row, batch.num_rows, value), size

    def close(self) -> None:
        """Close the shard, if one is open."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
