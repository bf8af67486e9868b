"""Objects of a store, read in few requests.

A request takes about as long as a megabyte or two of its answer. So an object of up to
``WHOLE_BYTES`` is one request, and of a larger one ranges are merged across gaps of up to
``GAP_BYTES`` and then read in pieces of about ``REQUEST_BYTES``, several at a time.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa

from streamomd.core.errors import StorageError
from streamomd.core.run_events import request_counter
from streamomd.shards.filesystem import Entry, FileSystem, store_errors


class SeekableFile(ABC):
    """A file of ``size`` bytes that a subclass reads at an offset."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position, from the start, from here or from the end."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def close(self) -> None:  # noqa: B027 (nothing is open here)
        """Nothing to close."""

    def read_buffer(self, length: int) -> Any:
        """Returns what ``read`` does."""
        return self.read(length)

    def read(self, length: int = -1) -> Any:
        """Returns this many bytes from the position on, or all that are left."""
        if length < 0:
            length = self._size - self._at
        if not 0 <= self._at <= self._at + length <= self._size:
            raise OSError(f"{length} bytes at {self._at} are not in a file of {self._size}")
        found = self.take(self._at, length)
        self._at += length
        return found

    @abstractmethod
    def take(self, offset: int, length: int) -> Any:
        """Bytes at an offset, all inside the file."""


class ChangedWhileReadError(OSError):
    """The file changed while it was read."""


WHOLE_BYTES = 8 << 20
GAP_BYTES = 1 << 20
REQUEST_BYTES = 16 << 20
"""A range of up to half as much again is one request, whose answer is used without a copy."""
BATCH_BYTES = 8 << 20
"""Row groups are requested together up to this."""
REQUESTS_AT_ONCE = 16
RECENT_BYTES = 32 << 20
"""Bytes of objects that stay in memory for the next reader: the one that looks for labels, then
the one that learns; in a worker, the tasks of a shard's row groups."""

Fetch = Callable[[int, int], bytes]
"""``fetch(begin, end)``: these bytes, in one request."""
Range = tuple[int, int]
"""Offset and length."""


class StoredObject:
    """One version of an object. Threads may share it: its end is requested once.

    stat: the object's entry now, for a store that sends whatever version it has; it is compared
    after each read, before what was read is used. None: nothing is compared.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        url: str,
        entry: Entry,
        stat: Callable[[], Entry] | None = None,
    ) -> None:
        self.size, self.etag, self.url = entry.size, entry.etag, url
        self._entry, self.stat = entry, stat
        self._fetch = _fetch_of(fs, path, entry)
        self.count_read = request_counter()
        self._lock = threading.Lock()
        self._tail: Any = b""

    def fetch(self, offset: int, length: int) -> bytes:
        """These bytes, in one request; fewer where the object ends before."""
        if length <= 0:
            return b""
        self.count_read()
        with store_errors(self.url):
            return self._fetch(offset, offset + length)

    def load_tail(self, length: int) -> None:
        """Request the last bytes, unless they are in memory; ``size`` is the whole object."""
        length = min(length, self.size)
        with self._lock:
            if len(self._tail) < length:
                self._tail = self.exactly(self.size - length, length)
                _RECENT.add(self, len(self._tail))

    @contextmanager
    def _confirmed(self) -> Iterator[None]:
        """Raise ChangedWhileReadError if the object is of another version after the block."""
        try:
            yield
        except Exception:
            with suppress(StorageError):  # it may say why the block failed
                self._confirm()
            raise
        self._confirm()

    def _confirm(self) -> None:
        if self.stat is None:
            return
        was, now = self._entry, self.stat()
        # A store without ETags has times.
        same = was.mtime_ns == now.mtime_ns if was.etag is None else now.etag in (None, was.etag)
        if not same or was.size != now.size:
            raise ChangedWhileReadError("it was written again")

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in memory."""
        return len(self._tail) == self.size

    def held(self, offset: int, length: int) -> memoryview | None:
        """Bytes of the end that are in memory."""
        tail = self._tail
        begin = offset - (self.size - len(tail))
        return memoryview(tail)[begin : begin + length] if begin >= 0 else None

    def load(self, ranges: Iterable[Range], gap: int = GAP_BYTES) -> list[Span]:
        """These ranges, merged across gaps."""
        wanted = [(low, n) for low, n in ranges if n and self.held(low, n) is None]
        merged = merge(wanted, gap)
        pieces = [(span, *piece) for span in merged for piece in pieces_of(*span)]
        if len(pieces) < 2:
            return [Span(low, self.exactly(low, length)) for low, length in merged]
        with self._confirmed():
            return self._load_pieces(merged, pieces)

    def _load_pieces(
        self, merged: Sequence[Range], pieces: Sequence[tuple[Range, int, int]]
    ) -> list[Span]:
        spans = {span: Span(span[0], pa.allocate_buffer(span[1])) for span in merged}
        with ThreadPoolExecutor(min(len(pieces), REQUESTS_AT_ONCE), "streamomd-ranges") as pool:
            done = [
                pool.submit(self._fill, spans[span], offset, length)
                for span, offset, length in pieces
            ]
            try:
                for one in done:
                    one.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return [*spans.values()]

    def _fill(self, span: Span, offset: int, length: int) -> None:
        span.fill(offset, self._exactly(offset, length))

    def exactly(self, offset: int, length: int) -> bytes:
        """These bytes. Raises ChangedWhileReadError where the store gives fewer, or more, or those
        of another version."""
        with self._confirmed():
            return self._exactly(offset, length)

    def _exactly(self, offset: int, length: int) -> bytes:
        data = self.fetch(offset, length)
        if len(data) != length:
            raise ChangedWhileReadError("it was truncated")
        return data


class Span:
    """Consecutive bytes of an object, in memory."""

    def __init__(self, offset: int, data: Any) -> None:
        self.offset = offset
        self._view = memoryview(data).cast("B")

    def fill(self, offset: int, data: bytes) -> None:
        """Put bytes in their place."""
        begin = offset - self.offset
        self._view[begin : begin + len(data)] = data

    def held(self, offset: int, length: int) -> memoryview | None:
        """These bytes, if all of them are here."""
        begin = offset - self.offset
        inside = begin >= 0 and begin + length <= len(self._view)
        return self._view[begin : begin + length].toreadonly() if inside else None


def merge(ranges: Iterable[Range], gap: int) -> list[Range]:
    """Ranges in order of their offsets, those joined that overlap or have no larger gap between.

    >>> merge([(40, 5), (0, 10), (12, 8)], gap=2)
    [(0, 20), (40, 5)]
    """
    merged: list[Range] = []
    for offset, length in sorted(ranges):
        if merged and offset <= sum(merged[-1]) + gap:
            begin = merged[-1][0]
            merged[-1] = (begin, max(sum(merged[-1]), offset + length) - begin)
        else:
            merged.append((offset, length))
    return merged


def pieces_of(offset: int, length: int, size: int = REQUEST_BYTES) -> list[Range]:
    """A range cut into requests of about the same length, near ``size``.

    >>> pieces_of(0, 11, 8), pieces_of(100, 30, 8)
    ([(0, 11)], [(100, 7), (107, 8), (115, 7), (122, 8)])
    """
    count = max(1, round(length / size))
    edges = [offset + length * at // count for at in range(count + 1)]
    return [(low, high - low) for low, high in pairwise(edges)]


class ObjectFile(SeekableFile):
    """A reader's position in an object. ``spans``: what was read ahead for it."""

    def __init__(self, stored: StoredObject) -> None:
        super().__init__(stored.size)
        self.stored = stored
        self.spans: Sequence[Span] = ()

    @property
    def etag(self) -> str | None:
        """The ETag of the object's version."""
        return self.stored.etag

    def held(self, offset: int, length: int) -> memoryview | None:
        """Bytes that are in memory; None: they take a request."""
        for span in self.spans:
            if (found := span.held(offset, length)) is not None:
                return found
        return self.stored.held(offset, length)

    def is_held(self, ranges: Iterable[Range]) -> bool:
        """Whether all of these are in memory."""
        return all(self.held(*one) is not None for one in ranges)

    def load(self, ranges: Sequence[Range], gap: int = GAP_BYTES) -> None:
        """Read ranges into memory in few requests, in place of those before."""
        if not self.is_held(ranges):
            self.spans = ()
            self.spans = self.stored.load(ranges, gap)

    def take(self, offset: int, length: int) -> Any:
        """Returns bytes that are held, or else requests them."""
        found = self.held(offset, length)
        return self.stored.exactly(offset, length) if found is None else found

    def readinto(self, view: memoryview) -> int:
        """Fill a buffer from the position on; returns how many bytes it has."""
        data = self.read(min(len(view), max(0, self._size - self._at)))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Release what is held."""
        self.spans = ()
        self.closed = True


class _Recent:
    """Objects in use by their version, and the last ones that were: of each, its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[Any, StoredObject] = weakref.WeakValueDictionary()
        self._last: OrderedDict[StoredObject, int] = OrderedDict()
        self._total = 0

    def get(self, key: Any) -> StoredObject | None:
        """Returns the object of a key, if it is in use."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: Any, stored: StoredObject) -> StoredObject:
        """The object of that key: another thread may have made it."""
        with self._lock:
            return self._known.setdefault(key, stored)

    def add(self, stored: StoredObject, nbytes: int) -> None:
        """Counts an object's bytes as in memory, and forgets the oldest objects beyond
        ``RECENT_BYTES``."""
        with self._lock:
            self._total += nbytes - self._last.pop(stored, 0)
            self._last[stored] = nbytes
            while self._total > RECENT_BYTES:
                self._total -= self._last.popitem(last=False)[1]

    def clear(self) -> None:
        """Forgets the last objects."""
        with self._lock:
            self._last.clear()
            self._total = 0


_RECENT = _Recent()


def forget_recent() -> None:
    """Free the objects that are in memory for the next reader."""
    _RECENT.clear()


def stored_object(
    fs: FileSystem, path: str, url: str, entry: Entry, stat: Callable[[], Entry] | None = None
) -> StoredObject:
    """The object of an entry. stat: the entry now; what is read is of that version. Without it
    only S3 refuses to send another one."""
    if entry.etag is None:
        return StoredObject(fs, path, url, entry, stat)
    key = fs, path, entry.size, entry.etag
    stat = None if _speaks(fs, "s3") else stat
    known = _RECENT.get(key) or _RECENT.put(key, StoredObject(fs, path, url, entry, stat))
    known.stat = known.stat or stat
    known.count_read = request_counter()  # for the run that reads it now
    return known


def _speaks(fs: FileSystem, protocol: str) -> bool:
    return protocol in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def _fetch_of(fs: FileSystem, path: str, entry: Entry) -> Fetch:
    if _speaks(fs, "s3"):
        return _pinned(fs, path, entry)
    if _speaks(fs, "https"):
        # It notices a server that answers a request for a range with the whole file.
        file = fs.open(path, "rb", cache_type="none", size=entry.size)
        return lambda begin, end: bytes(file._fetch_range(begin, end))
    return lambda begin, end: bytes(fs.cat_file(path, start=begin, end=end))


def _pinned(fs: FileSystem, path: str, entry: Entry) -> Fetch:
    """Requests that S3 refuses with another version. A file is opened without a request, as its
    size is given; then it is told the ETag, for which it would have asked with the size."""
    file = fs.open(path, "rb", cache_type="none", size=entry.size)
    if entry.etag is not None and not getattr(file, "version_id", None):
        etag = f'"{entry.etag}"'
        file.details = {"name": path, "size": entry.size, "type": "file", "ETag": etag}
        if not fs.local_expiry_check:
            file.read_kw = {**file.read_kw, "IfMatch": etag}
    return lambda begin, end: bytes(file._fetch_range(begin, end))
