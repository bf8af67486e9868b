"""Row groups from a cache where they are in it, else decoded and added to it.

An entry's key holds all that its rows depend on: the plan, the shard as it was found, the place of
the group in it, and the sources of everything that decodes. So no entry is ever out of date: what
is needed has another name. Names of coordinates in an entry are added to the run's table once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from streamomd.checkpoint.segments import shorten_facts
from streamomd.core.batch import Batch
from streamomd.core.profiling import Stage, staged
from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features import Names, Plan
from streamomd.features.name_table import Watch
from streamomd.features.names import SAMPLED
from streamomd.shards.cache.entry import FORMAT, DamagedError, Draft, Entry
from streamomd.shards.cache.folder import KEY_LETTERS, SHARD_LETTERS, CacheFolder
from streamomd.shards.encoded_rows import Rows, encode_rows
from streamomd.shards.order import Group, Job
from streamomd.shards.reader import Piece, Reader
from streamomd.shards.shard import Digests, Shard

NO_COORDINATES = np.empty(0, np.int32)
SCHEMA = pa.schema({"coordinate": pa.int32(), "name": pa.large_binary()})


class ShardNames(Names):
    """Names of a shard, as threads decode its groups."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.one_by_one = url, threading.Lock()


class RecordedNames(Names):
    """Names of a row group that its shard's table did not have, for its entry; they are noted in
    the run's table too.

    A run reads all groups of a shard and decodes those not in the cache: so it gets each name, even
    if entries were removed.
    """

    def __init__(self, shard: ShardNames, run: Names | None) -> None:
        super().__init__()
        self._shard, self._run = shard, run
        self._spans: list[tuple[int, int]] = []
        """Ranges of the shard's names: from one to another."""

    @property
    def is_full(self) -> bool:
        """Whether there is room for no more names, see ``Names``."""
        return self._shard.is_full

    def is_due(self, column: str) -> bool:
        """Whether names of this column are to be noted, see ``Names``."""
        return self._shard.is_due(column)

    def watch(self, size: int) -> Watch:
        """Returns what watches a batch of this size, see ``Names``."""
        return self._shard.watch(size)

    def note(self, *names: Any) -> None:
        """Notes names in the shard's table and the run's, see ``Names``."""
        with self._shard.one_by_one:
            before = self._shard.version
            self._shard.note(*names)
            self._spans.append((before, self._shard.version))
        if self._run is not None:
            self._run.note(*names)

    def pack(self) -> pa.Buffer:
        """The names as the bytes of a record batch, in order of their coordinates: so a reader's
        table is searched from one end to the other."""
        parts = [self._shard.since(low, high) for low, high in self._spans if low < high]
        coordinates = np.concatenate([NO_COORDINATES, *(part[0] for part in parts)])
        names = pa.chunked_array([part[1] for part in parts], pa.large_binary())
        order = np.argsort(coordinates, kind="stable")
        texts = arrow_function()("take", [names.combine_chunks(), pa.array(order)])
        made = [pa.array(coordinates[order]), texts]
        return pa.RecordBatch.from_arrays(made, schema=SCHEMA).serialize()


def add_names(packed: Any, names: Names) -> None:
    """Add to a table what ``RecordedNames.pack`` packed. Raises DamagedError, ArrowException."""
    record = pa.ipc.read_record_batch(pa.py_buffer(packed), SCHEMA)
    record.validate(full=True)
    coordinates, texts = record.column(0).to_numpy(), record.column(1)
    if coordinates.min(initial=0) < 0 or texts.null_count:
        raise DamagedError("its names are no names of coordinates")
    if names.is_full:  # as of rows that are decoded
        some = np.arange(0, len(texts), SAMPLED)
        coordinates = coordinates[some]
        texts = arrow_function()("take", [texts, pa.array(some)])
    names.add_names(coordinates, arrow_cast(texts, pa.large_string()))


WRONG = (DamagedError, OSError, ValueError, TypeError, KeyError, pa.ArrowException)
"""Whatever an entry may be: the shard has its rows."""
SETTLED_NS = 2_000_000_000
"""A file may be written again within one tick of its time: a younger one has no entry yet."""


class Cache:
    """The folder of a run, and what the run has from it; made once, for one table of names."""

    def __init__(self, folder: CacheFolder) -> None:
        self.folder = folder
        self.named: set[str] = set()
        """Keys of the entries whose names the run knows."""
        self.threads = threading.local()
        self.tables: WeakValueDictionary[str, ShardNames] = WeakValueDictionary()
        """The names of the shards that threads decode, by URL."""
        self.lock = threading.Lock()
        self.prints: dict[str, str] = {}
        """How the keys of a shard begin, by its URL."""


class CachedRows(NamedTuple):
    """Reads encoded rows from a cache, or from the shard and into the cache. Threads share it.

    names: collects hashed values.
    """

    cache: Cache
    plan: Plan
    names: Names | None

    def read(self, reader: Reader, job: Job) -> Iterator[Piece[Rows]]:
        """The job's rows in order, encoded."""
        if reader.digests is None:  # an entry is bound to the digest of its row group
            reader.digests = Digests()
        # The shard must be the one that was found, also where its rows come from the cache.
        opened = reader.open(job)
        group, begin, last = job.group, job.begin, job.group.row + job.group.rows
        end = last if job.end is None else job.end
        key = self._key(group, opened.identity)
        if not self.plan.column_values:  # which no entry has
            for row, batch in self._from_entry(key, group, reader.digests, begin, end):
                yield Piece(job.position, row, batch.passed, Rows(batch, None), batch.nbytes)
                begin = row + batch.passed
                del batch
        if begin >= end:
            reader.release()
        else:
            rest = Job(job.position, group, begin, None if end == last else end)
            whole = (begin, end) == (group.row, last) and is_settled(group.shard, opened.version)
            known = self.plan.column_values and self.cache.folder.has(key)
            draft = self.cache.folder.begin(key) if whole and not known else None
            yield from self._from_shard(reader, rest, key, draft)

    def has(self, job: Job) -> bool:
        """Whether there is an entry for a job of a shard in a store."""
        if self.plan.column_values:
            return False
        key = self._key(job.group, job.group.shard.etag)
        return job.group.shard.etag is not None and self.cache.folder.has(key)

    def _from_entry(
        self, key: str, group: Group, digests: Digests, begin: int, end: int
    ) -> Iterator[tuple[int, Batch]]:
        """What the entry gives of these rows, up to where it is found to be damaged."""
        entry = self.cache.folder.open(key, self.plan.size - int(self.plan.bias))
        if entry is None:
            return
        try:
            known = digests.get(group.shard.url, group.number)
            if known not in (None, entry.digest):
                # The shard itself must have the bytes that were read first, then.
                return self.cache.folder.drop(key, "made of other bytes of its shard")
            digests.check(group.shard, group.number, entry.digest)
            try:
                self._learn_names(key, entry)
                batches = staged("cache", entry.batches(begin, end))
                rows = next(batches, None)
            except WRONG as error:
                return self.cache.folder.drop(key, error)
            while rows is not None:
                yield rows
                del rows  # not held while the next one comes
                try:
                    rows = next(batches, None)
                except WRONG as error:
                    return self.cache.folder.drop(key, error)
        finally:
            entry.close()

    def _learn_names(self, key: str, entry: Entry) -> None:
        if self.names is not None and key not in self.cache.named:
            add_names(entry.names(), self.names)
            self.cache.named.add(key)

    def _from_shard(
        self, reader: Reader, job: Job, key: str, draft: Draft | None
    ) -> Iterator[Piece[Rows]]:
        """The job's rows decoded and encoded, and written to the draft."""
        own = None if draft is None else RecordedNames(self._table(job.group.shard), self.names)
        encode = partial(encode_rows, self.plan, names=self.names if own is None else own)
        try:
            for piece in map(encode, reader.read(job)):
                if draft is not None and not self._added(draft, piece):
                    draft.remove()
                    draft = None
                yield piece
                del piece
            assert reader.digests is not None
            digest = reader.digests.get(job.group.shard.url, job.group.number)
            if draft is not None and own is not None and digest is not None:
                with Stage("cache"):
                    self.cache.folder.publish(key, draft, own.pack(), digest)
                self.cache.named.add(key)
                draft = None
        finally:
            if draft is not None:
                draft.remove()

    def _table(self, shard: Shard) -> ShardNames:
        """The shard's table, which lives as long as a thread decodes the shard."""
        held: ShardNames | None = getattr(self.cache.threads, "noted", None)
        if held is None or held.url != shard.url:
            with self.cache.lock:
                held = self.cache.tables.get(shard.url)
                if held is None:
                    held = self.cache.tables[shard.url] = ShardNames(shard.url)
            self.cache.threads.noted = held
        return held

    def _added(self, draft: Draft, piece: Piece[Rows]) -> bool:
        try:
            with Stage("cache"):
                draft.add(piece.row, piece.value.batch)
            return True
        except (OSError, ValueError, pa.ArrowException) as error:
            self.cache.folder.cannot_write(error)
            return False

    def _key(self, group: Group, identity: object) -> str:
        """identity: of the shard on this machine, which may have a copy of its own."""
        text = f"{identity} {group.number}"
        return self.begins(group.shard) + _hash(text)[: KEY_LETTERS - SHARD_LETTERS]

    def begins(self, shard: Shard) -> str:
        """How the keys of a shard's groups begin."""
        found = self.cache.prints.get(shard.url)
        if found is None:
            by = [FORMAT, _sources(), pa.__version__, unicodedata.unidata_version]
            columns = [[one.column, one.kind, one.text] for one in shard.constants]
            # A shard that a ledger records has no more than these of its facts.
            facts = shorten_facts(shard.fingerprint())
            about = [by, self.plan.to_json(brief=True), facts, columns]
            about.append(repr(shard.row_filter))
            about += ["learned"] * self.plan.learns
            found = _hash(json.dumps(about, sort_keys=True))[:SHARD_LETTERS]
            self.cache.prints[shard.url] = found
        return found


def cached_rows(
    cache: Cache | None, shards: Iterable[Shard], plan: Plan, names: Names | None
) -> CachedRows | None:
    """How a run reads these shards through its cache; None without a cache, or where rows have no
    feature at all: Arrow cannot read such lists back."""
    if cache is None or plan.size == int(plan.bias):
        return None
    made = CachedRows(cache, plan, names)
    cache.folder.spare(lambda: [made.begins(shard) for shard in shards])
    return made


def is_settled(shard: Shard, version: object) -> bool:
    """Whether changed content of the shard is detected: by its ETag, or by a time in the past."""
    if isinstance(version, str) or shard.etag is not None:
        return True
    time_ns = version[1] if isinstance(version, tuple) else shard.mtime_ns
    return time_ns is not None and time.time_ns() - time_ns >= SETTLED_NS


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _sources() -> str:
    """A hash of every source that has a part in what a batch is: no version to forget."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for folder in ("core", "features", "shards"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
