"""What the jobs of a reader take of a store: all of a small object, or ranges of a large one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamomd.shards.fetch_ahead import JOBS_AT_ONCE, Need
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.jobs import Job
from streamomd.shards.open_shard import MOST_LOADED, OpenShard, shard_object
from streamomd.shards.shard import Shard
from streamomd.shards.stored_object import GAP_BYTES, WHOLE_BYTES, Span, StoredObject, merge

if TYPE_CHECKING:
    import fsspec


class JobBytes:
    """Finds what jobs read. Threads share it, and with it each shard's object and footer.

    is_cached: whether a job's rows come from elsewhere, so that nothing is requested for them.
    """

    def __init__(
        self,
        fs: fsspec.AbstractFileSystem,
        wanted: ReadRequest,
        is_cached: Callable[[Job], bool] = lambda job: False,
    ) -> None:
        self._fs, self._wanted, self._is_cached = fs, wanted, is_cached
        self._lock = threading.Lock()
        self._opened: OrderedDict[int, _Shared] = OrderedDict()

    def need(self, job: Job) -> Need:
        """What a job reads, which for a large object takes a request of its footer. Raises what
        opening a shard raises."""
        if self._is_cached(job):
            return Need()
        with self._lock:
            shared = self._opened.get(job.position)
            if shared is None:
                shared = self._opened[job.position] = _Shared(self._fs, job.group.shard)
                if len(self._opened) > 2 * JOBS_AT_ONCE:
                    self._opened.popitem(last=False)
        return shared.need(job, self._wanted)


class _Shared:
    """A shard that is open for all jobs that read it."""

    def __init__(self, fs: fsspec.AbstractFileSystem, shard: Shard) -> None:
        self._fs, self._shard = fs, shard
        self._lock = threading.Lock()
        self._opened: OpenShard | None = None
        self._object: StoredObject | None = None

    def need(self, job: Job, wanted: ReadRequest) -> Need:
        shard, group = self._shard, job.group
        with self._lock:
            if shard.size <= WHOLE_BYTES:
                if self._object is None:
                    self._object = shard_object(self._fs, shard)
                share = -(-shard.size * group.rows // max(1, shard.rows))
                return Need(self._object, share, partial(_load_whole, self._object))
            if self._opened is None:
                self._opened = OpenShard(self._fs, shard, wanted)
            stored = self._opened.stored
            assert stored is not None
            ranges = merge(self._opened.ranges(group.number), GAP_BYTES)
        nbytes = sum(length for _, length in ranges)
        if nbytes > MOST_LOADED:
            return Need(stored)
        return Need(stored, nbytes, partial(stored.load, ranges))


def _load_whole(stored: StoredObject) -> Sequence[Span]:
    stored.load_tail(stored.size)
    return ()
