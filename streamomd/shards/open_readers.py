"""Reading ranges of rows: by a reader for each, or by one that stays open for the next range."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from streamomd.shards.filesystem import connect
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.order import Group, Job
from streamomd.shards.prefetch import return_freed_memory
from streamomd.shards.reader import Reader, request_of
from streamomd.shards.shard import Digests, Shard, ShardSet

Key = tuple[object, ...]


class OpenReaders:
    """A reader for each thread, of the shard that it read last.

    Ranges of a row group that follow each other are decoded once: a reader of its own for each
    range would decode the group from its first row. The readers are closed with the last reference
    to this object.
    """

    def __init__(self) -> None:
        self._readers: dict[int, tuple[Key, Reader]] = {}
        weakref.finalize(self, _close_all, self._readers)

    @contextmanager
    def reader(
        self, shard: Shard, wanted: ReadRequest, make: Callable[[], Reader]
    ) -> Iterator[Reader]:
        """The calling thread's reader of a shard, made unless it is open; closed after an error."""
        thread = threading.get_ident()
        key = shard.url, shard.footer_sha256, shard.etag, shard.mtime_ns, wanted
        known, reader = self._readers.pop(thread, (None, None))
        if reader is not None and known != key:
            reader.close()
            reader = None
        reader = reader or make()
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self._readers[thread] = key, reader


def _close_all(readers: dict[int, tuple[Key, Reader]]) -> None:
    while readers:
        readers.popitem()[1][1].close()


@contextmanager
def open_group(
    group: Group,
    begin: int,
    end: int,
    *,
    options: Mapping[str, Any],
    columns: Sequence[str],
    dictionary: Sequence[str] = (),
    unit_bytes: int = 16 << 20,
    digests: Digests | None = None,
    readers: OpenReaders | None = None,
) -> Iterator[tuple[Reader, Job]]:
    """A reader and its job: rows ``begin`` … ``end`` − 1 of a shard, which lie in one group.

    For another process than the one that found the shard; the calling thread reads. readers: where
    the reader stays open, to continue from these rows. Other parameters and errors as in
    ``read_batches``.
    """
    return_freed_memory()
    fs, shard = connect(group.shard.url, options), group.shard
    wanted = request_of(fs, columns, dictionary, unit_bytes)
    job = Job(0, group, begin, end)
    if readers is None:
        with closing(Reader(ShardSet((shard,), fs), wanted, digests)) as reader:
            yield reader, job
        return
    own = partial(Reader, ShardSet((shard,), fs), wanted, Digests())
    with readers.reader(shard, wanted, own) as reader:
        yield reader, job
        # A group's digest is found when its first rows are read, maybe for an earlier range.
        digest = reader.digests.get(shard.url, group.number) if reader.digests else None
        if digests is not None and digest is not None:
            digests.check(shard, group.number, digest)
