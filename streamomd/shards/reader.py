"""Reading shards as record batches: in order, ahead in threads, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.profiling import Stage, current
from streamomd.features.bad_rows import Conflict
from streamomd.features.hashed import HashedValues
from streamomd.features.lists import decoded
from streamomd.shards.directory_columns import read_columns, with_constant_columns
from streamomd.shards.fetch_ahead import Claim, FetchAhead, Fetched
from streamomd.shards.filesystem import connect, is_local
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.io_costs import JobBytes, shares
from streamomd.shards.open_shard import OpenShard, explain
from streamomd.shards.order import Job, jobs_of
from streamomd.shards.prefetch import Prefetcher, Release, Run, return_freed_memory
from streamomd.shards.row_filter import satisfied
from streamomd.shards.shard import Digests, Shard, ShardSet
from streamomd.shards.stored_object import BATCH_BYTES

T = TypeVar("T")
R = TypeVar("R")

LOCAL_BLOCK = 1 << 20
LOCAL_HELD, REMOTE_HELD = 24 << 20, 128 << 20
"""What is read twice costs little from a disk's cache, and from a store as much again as once."""
DECODED_SHARE = 0.25
"""The share of what may wait that decoded rows of a store's shards have; the rest is for bytes that
are requested."""


class ShardBatch(NamedTuple):
    """A record batch, and which rows of which shard it holds."""

    position: int
    """Place of the shard in the order in which shards are read."""
    shard: Shard
    row: int
    """Row in the shard of the first one."""
    batch: pa.RecordBatch
    """Without the rows that the shard's filter drops."""
    conflicts: tuple[Conflict, ...] = ()
    """Rows that contradict the shard's directories, or its schema's metadata."""
    dropped: NDArray[np.int64] | None = None
    """Places, from the first row on, of the rows that were dropped; None without a filter."""
    hashed: HashedValues | None = None
    """Values that earlier batches of the row group had."""

    @property
    def rows(self) -> int:
        """Rows of the shard that it covers, including dropped ones."""
        left_out = 0 if self.dropped is None else len(self.dropped)
        return int(self.batch.num_rows) + left_out

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.batch.nbytes)


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """Consecutive rows of one shard, and a value computed from them."""

    position: int
    """Place of the shard in the order in which shards are read."""
    row: int
    """Row in the shard of the first one."""
    rows: int
    value: T
    nbytes: int = 0
    """Bytes held, for the bound on what waits."""


Read = Callable[["Reader", Job], Iterator[R]]
"""What a thread computes from a job with its reader; ``Reader.read`` gives record batches."""


@dataclass(frozen=True)
class RecordBatches:
    """Rows to read as record batches: jobs, and a reader for each thread that runs them.

    Iterate it for `ShardBatch` objects, or ``map`` a function over them. Both read ahead: at most
    ``budget_bytes`` of results wait, and one result a thread more. Close the generator to stop
    early: then no thread and no file is left.
    """

    jobs: Iterator[Job]
    shards: ShardSet
    wanted: ReadRequest
    digests: Digests | None
    threads: int
    budget_bytes: int

    def __iter__(self) -> Generator[ShardBatch, None, None]:
        return self.read_ahead(Reader.read)

    def map(self, function: Callable[[ShardBatch], R]) -> Generator[R, None, None]:
        """``function`` of each batch, in order, computed by the threads that read.

        Errors are raised in the place in the order where they happened: `DataError` for rows that
        cannot be decoded, `ChangedDataError` for a shard that changed since it was found,
        `SchemaError` for a missing column, `StorageError`, and what ``function`` raises. Arrow's
        own errors name no row: they become DataError with shard and rows.
        """
        explained = partial(_explained, function)
        return self.read_ahead(lambda reader, job: map(explained, reader.read(job)))

    def read_ahead(
        self,
        read: Read[R],
        is_cached: Callable[[Job], bool] = lambda job: False,
        *,
        cancel: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> Generator[R, None, None]:
        """What ``read(reader, job)`` yields for each job, in the jobs' order.

        is_cached: whether ``read`` has a job's rows from elsewhere: they are not requested ahead.
        cancel, check: see ``Prefetcher``, for a ``read`` that waits for others.
        """
        ends = [] if cancel is None else [cancel]
        if is_local(self.shards.fs):
            return self._decoded(read, self.jobs, None, self.budget_bytes, ends, check).results()
        return self._fetched(read, is_cached, ends, check)

    def _fetched(
        self,
        read: Read[R],
        is_cached: Callable[[Job], bool],
        ends: list[Callable[[], None]],
        check: Callable[[], None] | None,
    ) -> Generator[R, None, None]:
        decoded = max(1, int(self.budget_bytes * DECODED_SHARE))
        most = max(1, self.budget_bytes - decoded)
        needs = JobBytes(self.shards.fs, self.wanted, most, is_cached)
        ahead = FetchAhead(needs.announced(self.jobs), needs.need, most)
        results = self._decoded(read, ahead, ahead, decoded, [*ends, ahead.cancel], check)
        try:
            yield from results.results()
        finally:
            ahead.close()

    def _decoded(
        self,
        read: Read[R],
        jobs: Iterator[Job],
        ahead: FetchAhead | None,
        budget: int,
        ends: list[Callable[[], None]],
        check: Callable[[], None] | None,
    ) -> Prefetcher[Job, R]:
        @contextmanager
        def session() -> Iterator[Run[Job, R]]:
            with closing(Reader(self.shards, self.wanted, self.digests, ahead)) as reader:
                yield partial(read, reader)

        def cancel() -> None:
            for end in ends:
                end()

        threads = max(1, self.threads)
        return Prefetcher(jobs, session, threads=threads, budget=budget, cancel=cancel, check=check)


def _explained(function: Callable[[ShardBatch], R], rows: ShardBatch) -> R:
    try:
        return function(rows)
    except pa.ArrowException as error:
        raise explain(error, rows.shard, rows.row, rows.row + rows.batch.num_rows) from error


def read_batches(
    shard_set: ShardSet,
    *,
    places: Sequence[int],
    columns: Sequence[str],
    start: tuple[int, int] = (0, 0),
    dictionary: Sequence[str] = (),
    threads: int = 2,
    budget_bytes: int = 160 << 20,
    unit_bytes: int = 16 << 20,
    digests: Digests | None = None,
) -> RecordBatches:
    """Every row of the shards ``places`` (indexes into the set), in order, from ``start`` on.

    ``start`` is (place in the order, row in that shard). Only ``columns`` are read, in that order;
    those of ``dictionary`` stay dictionaries where they are strings in Parquet. A batch has about
    ``unit_bytes``, at most four times as many unless a single row has. ``threads`` threads read;
    at most ``budget_bytes`` wait. ``digests``: of row groups, recorded when a group is first read
    and verified before a row of it is given later.

    Raises UsageError for a start that does not exist; reading raises what `RecordBatches.map` says.
    """
    return_freed_memory()
    jobs = jobs_of(shard_set, places, start)
    wanted = request_of(shard_set.fs, columns, dictionary, unit_bytes)
    if threads > 1 and current() is None:  # a profile counts what a reader's own thread decodes
        wanted = wanted._replace(one_thread_bytes=budget_bytes // 2)
    if profile := current():
        profile.split(len(columns), lambda: shares(shard_set, wanted))
    return RecordBatches(jobs, shard_set, wanted, digests, threads, budget_bytes)


def request_of(
    fs: Any, columns: Sequence[str], dictionary: Sequence[str], unit_bytes: int
) -> ReadRequest:
    """What to read of each shard, in units of about ``unit_bytes``."""
    steps = (LOCAL_BLOCK, LOCAL_HELD) if is_local(fs) else (BATCH_BYTES, REMOTE_HELD)
    return ReadRequest(tuple(columns), tuple(dictionary), max(1, unit_bytes), *steps)


def check_footer(shard: Shard, options: Mapping[str, Any]) -> None:
    """Open a shard and read its footer, but no row. Raises what reading it raises."""
    fs = connect(shard.url, options)
    OpenShard(fs, shard, ReadRequest((), (), 1, LOCAL_BLOCK)).close()


def digests_of(
    fs: Any,
    shard: Shard,
    columns: Sequence[str],
    dictionary: Sequence[str],
    *,
    decode: bool = False,
) -> dict[int, bytes]:
    """The digest of each row group that is read of a shard, as ``read_batches`` records it.

    The calling thread reads. decode: also all rows, so that damage inside raises. Raises what
    reading raises.
    """
    by_group: dict[int, bytes] = {}
    digests = Digests()
    wanted = request_of(fs, columns, dictionary, LOCAL_BLOCK)
    with closing(OpenShard(fs, shard, wanted, digests=digests)) as opened:
        for group, rows in enumerate(shard.groups):
            if rows and group not in shard.unread:
                with closing(opened.read(group)) as batches:
                    next(batches)  # the digest is found before a row is given
                    for _ in batches if decode else ():
                        pass
                by_group[group] = digests.get(shard.url, group) or b""
    return by_group


class _Rest(NamedTuple):
    """What is left of a row group after the rows before ``end``: ``batch``, which begins at
    ``row``, and those after it."""

    group: int
    end: int
    batches: Generator[pa.RecordBatch, None, None]
    row: int
    batch: pa.RecordBatch | None


class Reader:
    """What one thread reads with: its shard stays open from one job to the next."""

    def __init__(
        self,
        shard_set: ShardSet,
        wanted: ReadRequest,
        digests: Digests | None = None,
        ahead: FetchAhead | None = None,
    ) -> None:
        self.digests = digests
        self._ahead, self._claim = ahead, Claim()
        self._fs, self._versions = shard_set.fs, shard_set.versions
        self._wanted = wanted
        self._position = -1
        self._opened: OpenShard | None = None
        self._rest: _Rest | None = None
        self._release = Release()

    def open(self, job: Job) -> OpenShard:
        """Open the job's shard, unless it is open: it must be the one that was found."""
        return self._open(job, self._fetched(job), whole=False)

    def _fetched(self, job: Job) -> Fetched:
        """What was requested ahead for a job, in place of that of the job before."""
        if self._ahead is not None and not self._claim.is_of(job):
            self._claim.release()
            self._claim = self._ahead.claim(job)
        return self._claim.wait()

    def _open(self, job: Job, fetched: Fetched, *, whole: bool) -> OpenShard:
        if self._opened is None or self._position != job.position:
            self._close_shard()
            given = (self._wanted, self._versions, self.digests, fetched.stored)
            self._opened = OpenShard(self._fs, job.group.shard, *given, whole=whole)
            self._position = job.position
        return self._opened

    def read(self, job: Job) -> Iterator[ShardBatch]:
        """The job's rows, decoded."""
        group = job.group
        # Read to its end, a group must have as many rows as its footer says: then none is cut off.
        end = math.inf if job.end is None else job.end
        rest = self._take_rest(job)
        batches, hashed = rest.batches, HashedValues()
        first, whole = rest.row, rest.batch
        try:
            while first < end:
                with Stage("decode"):
                    batch = next(batches, None) if whole is None else whole
                if batch is None:
                    return
                whole = None
                after = first + batch.num_rows
                if after >= end:  # the next job may continue in this group
                    left = (after, None) if after == end else (first, batch)
                    self._rest = _Rest(group.number, int(end), batches, *left)
                low, high = max(first, job.begin), int(min(after, end))
                if (low, high) != (first, after):
                    # A slice of all rows would hold its parent for nothing.
                    batch = batch.slice(max(0, low - first), max(0, high - low))
                first = after
                if low < high:
                    self._release.passed(batch.nbytes)
                    rows = ShardBatch(job.position, group.shard, low, batch, hashed=hashed)
                    yield self._view(rows) if group.shard.is_view else rows
                    del rows
                del batch
        finally:
            self.release()

    def _take_rest(self, job: Job) -> _Rest:
        """What is left of the job's row group, if an earlier job ended in it and not after this
        one's first row; else all of it."""
        rest, group = self._rest, job.group
        same = rest and (self._position, rest.group) == (job.position, group.number)
        if rest and same and rest.end <= job.begin:
            self._rest = None
            return rest
        self._drop_rest()  # before the next group's bytes are loaded
        fetched = self._fetched(job)
        opened = self._open(job, fetched, whole=True)
        opened.give(fetched.spans)
        return _Rest(group.number, 0, opened.read(group.number), group.row, None)

    def _drop_rest(self) -> None:
        rest, self._rest = self._rest, None
        if rest:
            rest.batches.close()

    def _view(self, rows: ShardBatch) -> ShardBatch:
        """Stored rows with the columns of the shard's directories and its lists that are stored as
        binary, without dropped rows."""
        shard, columns, dropped = rows.shard, self._wanted.columns, None
        batch = rows.batch
        if shard.row_filter is not None:
            with Stage("filter"):
                whole = with_constant_columns(shard, batch, read_columns(shard, ()))[0]
                left_in = satisfied(shard.row_filter, whole)
                dropped = np.flatnonzero(~left_in)
                if len(dropped):
                    batch = batch.filter(pa.array(left_in))
        batch, conflicts = with_constant_columns(shard, batch, columns)
        if kinds := shard.binary_lists:
            with Stage("lists"):
                batch, malformed = decoded(batch, kinds)
            conflicts += malformed
        return rows._replace(batch=batch, conflicts=conflicts, dropped=dropped)

    def release(self) -> None:
        """A job's rows were read: its bytes make room for those of other jobs."""
        self._claim.release()

    def close(self) -> None:
        """Close the shard, if one is open."""
        self._claim.release()
        self._close_shard()

    def _close_shard(self) -> None:
        self._drop_rest()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
