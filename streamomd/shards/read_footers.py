"""The shards of listed files: their footers are read, each once, by several threads.

Of a file that did not change, as a run's ledger records it, the footer is not read. What the ledger
says of it is compared when the shard is opened, before a row of it is learned; see ``open_shard``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from streamomd.checkpoint.segments import HASH_BYTES, TYPES, Facts, groups_of
from streamomd.core.errors import DataError, InputNotFoundError
from streamomd.core.run_events import phase, same_receivers
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.shards.file_schema import Projection, parse_projection, schema_of_text
from streamomd.shards.filesystem import CONNECTIONS, Entry, FileSystem, is_local, stat_entry
from streamomd.shards.formats.footer import FORMATS, read_shard
from streamomd.shards.renames import project, with_projection
from streamomd.shards.shard import Listed, Shard, ShardSet
from streamomd.shards.stored_object import RECENT_BYTES


def is_unchanged(facts: Facts, entry: Entry) -> bool:
    """Whether a file has the recorded size, ETag and time; at least one of the latter two."""
    if entry.etag is None and entry.mtime_ns is None:
        return False
    now = (entry.size, entry.etag, entry.mtime_ns)
    return (facts.get("size"), facts.get("etag"), facts.get("mtime_ns")) == now


def recorded_shard(file: Listed, entry: Entry, facts: Facts) -> Shard | None:
    """The shard of a file that did not change, without its footer; None if that has to be read.

    Earlier versions recorded less, and of a shard of many row groups not all are recorded.
    """
    text, footer = facts.get(TYPES), facts.get("footer_sha256", "")
    if not is_unchanged(facts, entry) or not isinstance(text, str):
        return None
    known, groups = schema_of_text(text), groups_of(facts)
    whole = len(footer) == 2 * HASH_BYTES and any(one.name == facts["format"] for one in FORMATS)
    if known is None or groups is None or not whole or known.columns != facts.get("schema"):
        return None
    shard = Shard(
        url=file.url,
        path=file.path,
        format=facts["format"],
        size=entry.size,
        rows=sum(groups),
        groups=groups,
        schema=known.fields,
        stored=None if known.fields is known.schema else known.schema,
        footer_sha256=footer,
        etag=entry.etag,
        mtime_ns=entry.mtime_ns,
        name=file.name,
        partitions=file.partitions,
    )
    return with_projection(shard, recorded_projection(facts))


def recorded_projection(facts: Facts) -> Projection | None:
    """How a ledger says that columns of rows follow from those of the file."""
    text = facts.get("projection")
    return None if text is None else parse_projection(text)


LOCAL_THREADS, LOCAL_BATCH = 4, 32
"""Threads that read footers of local files, and files that each of them takes at a time."""
AHEAD = 8
"""Batches for each thread that may wait."""
MOST_BOTH_ENDS = 16
"""Files of which both ends are requested at the same time; of more, several wait anyway."""
NONE_KNOWN: Mapping[str, Facts] = MappingProxyType({})
Opened = Shard | DataError | InputNotFoundError
_Result = TypeVar("_Result")


def open_listed(
    fs: FileSystem,
    listed: Sequence[Listed],
    statistics: Collection[str] = (),
    known: Mapping[str, Facts] = NONE_KNOWN,
) -> ShardSet:
    """The shards of listed files; footers are read of those that are not known. The others: as in
    ``find``."""
    with phase(f"listing {counted(len(listed), 'file')}"), no_garbage_collection():
        found = [_as_listed(file, known.get(file.url)) for file in listed]
        others = [file for file, shard in zip(listed, found, strict=True) if shard is None]
        # What then stays in memory for the reader takes one request an object, instead of three.
        whole = sum(file.size if file.size >= 0 else RECENT_BYTES + 1 for file in others)
        ends = len(others) <= MOST_BOTH_ENDS
        read = partial(
            _read, statistics=statistics, known=known, whole=whole <= RECENT_BYTES, both_ends=ends
        )
        opened = iter(_read_all(fs, others, read))
        return shard_set(fs, [next(opened) if shard is None else shard for shard in found])


def _as_listed(file: Listed, facts: Facts | None) -> Shard | None:
    """A shard that a ledger records, if the listing shows that its file did not change."""
    return None if facts is None else recorded_shard(file, _entry(file), facts)


def _entry(file: Listed) -> Entry:
    return Entry(file.path, "file", file.size, file.etag, file.mtime_ns)


def open_each(
    fs: FileSystem, listed: Sequence[Listed], statistics: Collection[str] = ()
) -> list[Opened]:
    """The shard of each listed file, or the error for one that is damaged or gone."""
    return _read_all(fs, listed, partial(_try_read, statistics=statistics))


def shard_set(fs: FileSystem, shards: Sequence[Shard]) -> ShardSet:
    """Shards as they were just opened."""
    versions: dict[str, object] = {}
    if is_local(fs):
        versions = {one.path: (one.size, one.mtime_ns) for one in shards}
    return ShardSet(tuple(shards), fs, versions)


def _read_all(
    fs: FileSystem, listed: Sequence[Listed], read: Callable[..., _Result]
) -> list[_Result]:
    """``read`` of each file, in order, in threads."""
    threads, size = (LOCAL_THREADS, LOCAL_BATCH) if is_local(fs) else (CONNECTIONS, 1)
    if len(listed) <= size:
        return _read_part(fs, listed, read)
    parts = [listed[at : at + size] for at in range(0, len(listed), size)]
    with ThreadPoolExecutor(threads, "streamomd-footers", **same_receivers()) as pool:
        # As many futures as files would take more memory than the shards.
        waiting: deque[Future[list[_Result]]] = deque()
        results: list[_Result] = []
        try:
            for part in parts:
                waiting.append(pool.submit(_read_part, fs, part, read))
                if len(waiting) > AHEAD * threads:
                    results += waiting.popleft().result()
            while waiting:
                results += waiting.popleft().result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return results


def _read_part(
    fs: FileSystem, listed: Sequence[Listed], read: Callable[..., _Result]
) -> list[_Result]:
    return [read(fs, file) for file in listed]


def _read(
    fs: FileSystem,
    file: Listed,
    statistics: Collection[str] = (),
    known: Mapping[str, Facts] = NONE_KNOWN,
    *,
    whole: bool = False,
    both_ends: bool = False,
) -> Shard:
    """Returns a file's shard: from the ledger where it records the file as it is, else by its
    footer."""
    if file.error is not None:
        raise file.error
    try:
        listed = _entry(file)
        if file.url in known and file.etag is None:
            # A listing may lack what the ledger records: that of a table, or of a web server.
            listed = stat_entry(fs, file.path, file.url)
            recorded = recorded_shard(file, listed, known[file.url])
            if recorded is not None:
                return recorded
        shard = read_shard(
            fs, file.path, file.url, statistics, listed, whole=whole, both_ends=both_ends
        )
        shard = replace(shard, name=file.name, partitions=file.partitions)
        return shard if file.columns is None else project(shard, file.columns)
    except InputNotFoundError:
        if file.table is None:
            raise
        kind, url, missing = file.table
        raise DataError(
            f"{kind} table {shown(url)} lists the file {shown(file.url)}, "
            f"{missing.format(version=file.version[0])} files of old versions. Read a newer "
            "version, or train on the table's current version "
            "(--start URL begins from a model's state)"
        ) from None


def _try_read(fs: FileSystem, file: Listed, statistics: Collection[str] = ()) -> Opened:
    try:
        return _read(fs, file, statistics)
    except (DataError, InputNotFoundError) as error:
        return error
