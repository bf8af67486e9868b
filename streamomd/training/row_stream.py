"""Encoded rows of shards, in order: read ahead in threads, or by the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Protocol

from streamomd.config.data_table import Data
from streamomd.core.batch import Batch
from streamomd.features import Names, Plan, empty_batch, encode, kernels_compiled
from streamomd.shards.cache.cached_reader import Cache, CachedRows, cached_rows
from streamomd.shards.cache.folder import GIB, CacheFolder
from streamomd.shards.directory_columns import infer_partitions, with_partitions
from streamomd.shards.encoded_rows import Rows, encode_rows
from streamomd.shards.filesystem import is_local
from streamomd.shards.filtered_shards import filter_columns, with_filter
from streamomd.shards.open_readers import OpenReaders, open_group
from streamomd.shards.order import Group, Job
from streamomd.shards.output_files import empty_rows
from streamomd.shards.reader import Piece, Read, Reader, ShardBatch, read_batches
from streamomd.shards.renames import refuse_unknown_renames, with_renames
from streamomd.shards.shard import Digests, ShardSet
from streamomd.sources.find import find, options_for, refuse_without_effect, source_texts
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions
from streamomd.training.progress import note


def view_shards(
    shards: ShardSet, data: Data, plan: Plan | None = None, *, anywhere: bool = False
) -> ShardSet:
    """The shards of a run as it learns them. plan: of the run, unless it is new.

    anywhere: whether columns of directories may be anywhere in the paths, of shards whose source is
    not known.

    Raises SchemaError for directories and columns that do not fit.
    """
    if plan is None:
        refuse_unknown_renames(shards, data.rename)
    shards = with_renames(shards, data.rename)
    known = infer_partitions(shards, data.partitions) if plan is None else plan.partitions
    return with_filter(with_partitions(shards, known, trained=anywhere), data.where)


def text_columns(plan: Plan) -> tuple[str, ...]:
    """The columns that are text to a trained model."""
    return tuple(column.name for column in plan.types if column.family == "string")


def find_for_model(
    plan: Plan,
    shards: str | Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    where: str = "",
    order: str = "sorted",
    tables: TableOptions = FILES_OR_TABLES,
    versions: Mapping[str, int] | None = None,
) -> ShardSet:
    """Shards for a trained model: its columns of directories may be anywhere in their paths.

    where: which rows to read. tables, versions: as in ``find``. Raises what ``find`` raises,
    UsageError for ``where``, SchemaError.
    """
    named = source_texts(shards)
    refuse_without_effect(named, tables.keys)
    found = find(
        named,
        order=order,
        storage_options=options_for(named, storage_options or {}),
        tables=replace(tables, texts=text_columns(plan)),
        versions=versions,
        statistics=filter_columns(where),
    )
    found = with_renames(found, dict(plan.rename))
    return with_filter(with_partitions(found, plan.partitions, trained=True), where)


# A thread that decodes a unit holds about four times as much: larger ones cost memory and win no
# time, smaller ones cost time (2 MiB: 10 % of a whole training).
UNIT_BYTES = 4 << 20
# Five times as much wins no time that could be measured (docs/performance.md).
AHEAD_BYTES = 32 << 20
# Rows of the cache are read faster than they are learned, so a queue of any length fills up, and
# memory that is touched first costs 0.4 ms a MiB and more: 5 to 8 % of a training.
CACHED_AHEAD_BYTES = 8 << 20
# Of these, 96 MiB are requests of up to 8 MiB in flight.
REMOTE_AHEAD_BYTES = 128 << 20

Source = Callable[[Sequence[int], tuple[int, int]], Iterator[Piece[Rows]]]
"""``source(places, start)``: pieces of the shards at ``places``, in order, from ``start`` on."""


class SharedDecoding(Protocol):
    """Row groups of which each is decoded by one of several processes, for all of them."""

    @property
    def threads(self) -> int:
        """Groups in work at the same time."""

    def is_elsewhere(self, job: Job) -> bool:
        """Whether another process decodes a job's group."""

    def read(self, read: Read[Piece[Rows]], reader: Reader, job: Job) -> Iterator[Piece[Rows]]:
        """A job's rows: by ``read(reader, job)``, or from the process that decodes the group."""

    def cancel(self) -> None:
        """The rows are no longer read: threads that wait for other processes end."""

    def check(self) -> None:
        """Called while rows are waited for; raises if another process is lost."""


def rows_of(
    plan: Plan,
    shards: ShardSet,
    places: Sequence[int],
    *,
    start: tuple[int, int] = (0, 0),
    labelled: bool = True,
    keep: Sequence[str] = (),
    names: Names | None = None,
    ahead_bytes: int = 0,
    cache: Cache | None = None,
    digests: Digests | None = None,
    shared: SharedDecoding | None = None,
) -> Generator[Piece[Rows], None, None]:
    """Encoded rows of the shards at ``places``, from place and row ``start`` on, read ahead.

    labelled: with labels and weights. keep: columns to pass through unchanged. names: collects
    hashed values. ahead_bytes: bound on bytes that wait; 0: as usual. digests: of row groups,
    recorded and verified; for the labelled columns alone. cache: where labelled rows are read from
    and written to, unless ``keep`` names columns. shared: other processes decode some groups.
    """
    columns = plan.columns if labelled else plan.features
    cached = cached_rows(cache if labelled and not keep else None, shards, plan, names)
    usual = CACHED_AHEAD_BYTES if cached and is_local(shards.fs) else ahead_of(shards)
    batches = read_batches(
        shards,
        places=places,
        columns=[*columns, *(name for name in keep if name not in columns)],
        dictionary=plan.dictionary,
        start=start,
        threads=max(os.cpu_count() or 1, shared.threads if shared else 1),
        budget_bytes=ahead_bytes or usual,
        unit_bytes=UNIT_BYTES,
        digests=digests,
    )
    encode = partial(encode_rows, plan, labelled=labelled, keep=keep, names=names)
    read = cached.read if cached else partial(_read_encoded, encode)
    is_cached = cached.has if cached else _is_never_cached
    if shared is None:
        return batches.read_ahead(read, is_cached)
    is_elsewhere = shared.is_elsewhere
    return batches.read_ahead(
        partial(shared.read, read),
        lambda job: is_elsewhere(job) or is_cached(job),
        cancel=shared.cancel,
        check=shared.check,
    )


def _is_never_cached(job: Job) -> bool:
    return False


def ahead_of(shards: ShardSet) -> int:
    """Bytes that are read ahead unless a job says otherwise."""
    return AHEAD_BYTES if is_local(shards.fs) else REMOTE_AHEAD_BYTES


def rows_of_group(
    plan: Plan,
    group: Group,
    begin: int,
    end: int,
    *,
    options: Mapping[str, Any],
    names: Names | None = None,
    cached: CachedRows | None = None,
    digests: Digests | None = None,
    unit_bytes: int = UNIT_BYTES,
    readers: OpenReaders | None = None,
) -> Generator[Piece[Rows], None, None]:
    """Encoded rows ``begin`` … ``end`` − 1 of a shard, which lie in one group.

    The calling thread reads them, through the cache if ``cached`` is given. options: storage
    options. readers: see ``open_group``. Other parameters as in ``rows_of``.
    """
    encode = partial(encode_rows, plan, names=names)
    read = cached.read if cached else partial(_read_encoded, encode)
    with open_group(
        group,
        begin,
        end,
        options=options,
        columns=plan.columns,
        dictionary=plan.dictionary,
        unit_bytes=unit_bytes,
        digests=digests,
        readers=None if cached else readers,
    ) as (reader, job):
        yield from read(reader, job)


def _read_encoded(
    encode: Callable[[ShardBatch], Piece[Rows]], reader: Reader, job: Job
) -> Iterator[Piece[Rows]]:
    return map(encode, reader.read(job))


def cache_of(data: Data, *, there: bool = False) -> Cache | None:
    """The cache that a job names, for one run, if it names one; ``there``: and it is there."""
    if not data.cache or (there and not os.path.isdir(data.cache)):
        return None
    return Cache(CacheFolder(data.cache, ceil(data.cache_gib * GIB), note))


@contextmanager
def compiling_kernels(plan: Plan, shards: ShardSet) -> Iterator[Batch]:
    """A batch of no rows, of the kind these shards give, to compile loops for. A second process may
    compile meanwhile what encodes rows; at the end that is ready."""
    schema = _empty_rows(shards, plan.columns).schema
    with kernels_compiled(plan, schema):
        yield empty_batch(plan, schema)


def no_rows(plan: Plan, shards: ShardSet, *, labelled: bool = True) -> Batch:
    """A batch of no rows, of the kind these shards give; what encodes rows is compiled."""
    table = _empty_rows(shards, plan.columns if labelled else plan.features)
    return encode(plan, table, shard="", row=0, labelled=labelled)


def _empty_rows(shards: ShardSet, columns: Sequence[str]) -> Any:
    return empty_rows(next((one for one in shards if one.rows), shards.shards[0]), columns)
