"""What reading takes: bytes or ranges of a store, decompression, decoding.

pyarrow does all three in one call. So some rows are read again separately: their bytes only; and,
written to memory, with and without compression.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.shards.directory_columns import read_columns, stored_columns
from streamomd.shards.fetch_ahead import JOBS_AHEAD, JOBS_AT_ONCE, Load, Need
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.open_shard import MOST_LOADED, OpenShard, shard_object
from streamomd.shards.order import Group, Job, groups_from
from streamomd.shards.shard import Shard, ShardSet
from streamomd.shards.shard_file import open_file
from streamomd.shards.stored_object import (
    BATCH_BYTES,
    GAP_BYTES,
    WHOLE_BYTES,
    Span,
    StoredObject,
    merge,
)

TIMES = 3
UNITS = 8
PIECE = 128 << 10


def shares(shard_set: ShardSet, wanted: ReadRequest) -> Mapping[str, float]:
    """read, decompress, decode: what share of a Parquet shard's reading each has; they sum to 1.

    Of another format, which has nothing to take apart, all is decode. Raises what reading raises.
    """
    shard = next(iter(shard_set))
    group = next((number for number, rows in enumerate(shard.groups) if rows), None)
    if shard.format != "parquet" or group is None:
        return {"decode": 1.0}
    opened = OpenShard(shard_set.fs, shard, wanted)
    try:
        rows = _first(opened.read(group), UNITS * wanted.unit_bytes)
    finally:
        opened.close()
    file = open_file(shard_set.fs, shard.path, shard.url)
    try:
        columns = stored_columns(shard, read_columns(shard, wanted.columns))
        chunks = _chunks(pq.ParquetFile(file).metadata.row_group(group), columns)
        read = _least(lambda: _bytes(file, chunks))
    finally:
        file.close()
    names = ((chunk.path_in_schema, chunk.compression) for chunk in chunks)
    codecs = {name: "none" if codec == "UNCOMPRESSED" else codec for name, codec in names}
    tables = [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page]
    bare, pressed = (_decoding(rows, codec, tables) for codec in ("none", codecs))
    parts = {
        "read": read * rows.num_rows / shard.groups[group],
        "decompress": max(0.0, pressed - bare),
        "decode": bare,
    }
    return {name: seconds / sum(parts.values()) for name, seconds in parts.items()}


def _first(batches: Iterator[pa.RecordBatch], most: int) -> pa.Table:
    found = [next(batches)]
    for batch in batches:
        found.append(batch)
        if sum(part.nbytes for part in found) >= most:
            break
    return pa.Table.from_batches(found)


def _chunks(group: Any, columns: tuple[str, ...]) -> list[Any]:
    every = [group.column(place) for place in range(group.num_columns)]
    return [chunk for chunk in every if chunk.path_in_schema.split(".")[0] in columns]


def _bytes(file: Any, chunks: list[Any]) -> None:
    """Read column chunks, in pieces whose memory is used again, as pyarrow reads."""
    for chunk in chunks:
        begins = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at]
        file.seek(min(begins))
        left: int = chunk.total_compressed_size
        while left > 0:
            left -= len(file.read(min(left, PIECE))) or left


def _decoding(rows: pa.Table, codec: Any, dictionaries: list[str]) -> float:
    sink, whole = pa.BufferOutputStream(), rows.num_rows
    pq.write_table(rows, sink, whole, compression=codec, use_dictionary=dictionaries)
    written = sink.getvalue()
    return _least(lambda: pq.ParquetFile(written).read_row_group(0, use_threads=False))


def _least(job: Callable[[], object]) -> float:
    """Seconds of this thread, the least of some runs."""
    seconds = []
    for _ in range(TIMES):
        began = time.thread_time()
        job()
        seconds.append(time.thread_time() - began)
    return min(seconds)


class JobBytes:
    """Finds what jobs read. Threads share it, and with it each shard's object and footer.

    most: bytes that may be in memory. is_cached: whether a job's rows come from elsewhere, so that
    nothing is requested for them.
    """

    def __init__(
        self,
        fs: FileSystem,
        wanted: ReadRequest,
        most: int,
        is_cached: Callable[[Job], bool] = lambda job: False,
    ) -> None:
        self._fs, self._wanted, self._is_cached = fs, wanted, is_cached
        self._most_batch = min(BATCH_BYTES, most)
        self._lock = threading.Lock()
        self._opened: OrderedDict[int, _Shared] = OrderedDict()
        self._first: dict[int, int] = {}

    def announced(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """The jobs; with each shard's first one it is noted where to begin to plan its requests,
        as threads may ask for later ones before."""
        position = -1
        for job in jobs:
            if job.position != position:
                position = job.position
                self._first[position] = job.group.number
                self._first.pop(position - 2 * JOBS_AHEAD, None)  # no thread requests it again
            yield job

    def need(self, job: Job) -> Need:
        """What a job reads, which for a large object takes a request of its footer. Raises what
        opening a shard raises."""
        if self._is_cached(job):
            return Need()
        with self._lock:
            shared = self._opened.get(job.position)
            if shared is None:
                shard, limit = job.group.shard, self._most_batch
                first = self._first.get(job.position, job.group.number)
                given = (self._fs, shard, self._wanted, limit, self._is_cached, first)
                shared = self._opened[job.position] = _Shared(*given)
                if len(self._opened) > 2 * JOBS_AT_ONCE:
                    self._opened.popitem(last=False)
        return shared.need(job)


class _Batch:
    """Row groups that follow one another and are requested together."""

    def __init__(self, stored: StoredObject, first: int, known: Sequence[Span]) -> None:
        self.stored, self.first, self._known = stored, first, known
        self.ranges: list[tuple[int, int]] = []
        self.load = Load(self._request)

    @property
    def nbytes(self) -> int:
        """Bytes that are requested, with the gaps between ranges."""
        return sum(length for _, length in self.ranges)

    def with_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """What would be requested with some more ranges."""
        return merge([*self.ranges, *ranges], GAP_BYTES)

    def _request(self) -> list[Span]:
        return [*self.stored.load(self.ranges), *self._known]


class _Shared:
    """A shard that is open for all jobs that read it. first: the row group of the first of them."""

    def __init__(
        self,
        fs: FileSystem,
        shard: Shard,
        wanted: ReadRequest,
        most_batch: int,
        is_cached: Callable[[Job], bool],
        first: int,
    ) -> None:
        self._fs, self._shard, self._wanted, self._is_cached = fs, shard, wanted, is_cached
        self._most_batch, self._next = most_batch, first
        self._lock = threading.Lock()
        self._opened: OpenShard | None = None
        self._whole: tuple[StoredObject, Load] | None = None
        self._late: Callable[[], StoredObject | None] = lambda: None
        self._is_over = False
        self._batches: dict[int, _Batch] = {}

    def need(self, job: Job) -> Need:
        """Returns what a job needs: an object of the store, the bytes that its rows take, and what
        loads them."""
        shard, group = self._shard, job.group
        with self._lock:
            if shard.size <= WHOLE_BYTES:
                stored, load = self._whole or _whole(self._late() or shard_object(self._fs, shard))
                self._late = weakref.ref(stored)
                # Jobs hold what they need. A thread may ask after that of the last job.
                self._is_over |= next(groups_from(shard, group.number + 1), None) is None
                self._whole = None if self._is_over else (stored, load)
                share = -(-shard.size * group.rows // max(1, shard.rows))
                return Need(stored, share, load)
            while self._next <= group.number:
                self._plan(job)
            batch = self._batches.pop(group.number, None) or self._begin(group.number)
        if batch.nbytes > MOST_LOADED:
            return Need(batch.stored)
        # Later row groups of a batch wait for the first, which has room for all.
        nbytes = batch.nbytes if group.number == batch.first else 0
        return Need(batch.stored, nbytes, batch.load)

    def _plan(self, job: Job) -> None:
        """Plan the request of the next row group that is not cached, and of those after it as long
        as all are one request's worth: in their order, so that no thread's order cuts it."""
        groups = groups_from(self._shard, self._next)
        own = job.group.number
        first = next(one for one in groups if one.number == own or not self._has(job, one))
        batch = self._batches[first.number] = self._begin(first.number)
        self._next = first.number + 1
        for later in groups:
            if self._has(job, later):
                break
            ranges = batch.with_ranges(self._missing(later.number))
            if sum(length for _, length in ranges) > self._most_batch:
                break
            batch.ranges = ranges
            self._batches[later.number] = batch
            self._next = later.number + 1

    def _has(self, job: Job, group: Group) -> bool:
        """Whether all rows of another row group are cached."""
        return self._is_cached(replace(job, group=group, begin=group.row, end=None))

    def _begin(self, number: int) -> _Batch:
        """The request of a row group alone."""
        ranges, opened = self._missing(number), self._opened
        assert opened is not None
        assert opened.stored is not None
        # Metadata of Arrow's record batches, which was read to find their buffers.
        batch = _Batch(opened.stored, number, opened.spans)
        batch.ranges = batch.with_ranges(ranges)
        return batch

    def _missing(self, number: int) -> Sequence[tuple[int, int]]:
        if self._opened is None:
            self._opened = OpenShard(self._fs, self._shard, self._wanted)
        return self._opened.missing(number)


def _whole(stored: StoredObject) -> tuple[StoredObject, Load]:
    return stored, Load(partial(_load_whole, stored))


def _load_whole(stored: StoredObject) -> Sequence[Span]:
    stored.load_tail(stored.size)
    return ()
