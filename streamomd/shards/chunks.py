"""The column chunks of a row group: read, hashed and decoded as the same bytes.

Column chunks that fit into memory are read once and decoded from there. The rest of a large row
group is read twice: first to hash it, window by window, before a row is yielded; then to decode it,
each window compared with its hash. So all decoded bytes are in the digest.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from streamomd.core.platform_calls import reader_at
from streamomd.shards.shard import WINDOW, combine, hash_window
from streamomd.shards.stored_object import ChangedWhileReadError, SeekableFile

ReadInto = Callable[[int, memoryview], None]
"""``read_into(offset, view)``: fill the view with the bytes at that offset of the file."""
Loaded = Callable[[int, int], memoryview | None]
"""``loaded(offset, length)``: these bytes if they are in memory, else None."""


def not_loaded(offset: int, length: int) -> None:
    """Nothing is in memory."""


class RecordingFile(SeekableFile):
    """Records the ranges that are read, and returns zeros.

    The ranges of column chunks are what pyarrow itself reads. They are not taken from the footer's
    column chunks: asking pyarrow for those of a forged footer ends the process.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ranges: set[tuple[int, int]] = set()
        self._zeros = memoryview(b"")

    def take(self, offset: int, length: int) -> Any:
        """Record the range, and return zeros."""
        self.ranges.add((offset, length))
        if len(self._zeros) < length:
            # Zero pages of the system: they take no memory until they are read.
            self._zeros = memoryview(mmap.mmap(-1, length)).toreadonly()
        return self._zeros[:length]


class ChunkFile(SeekableFile):
    """A file of which only the column chunks of one row group can be read, as they were hashed.

    block: bytes that are read in one step. held: how many of a row group's stay in memory.
    loaded: gives bytes that are in memory already.
    """

    def __init__(
        self, size: int, read_into: ReadInto, block: int, held: int, loaded: Loaded = not_loaded
    ) -> None:
        super().__init__(size)
        self._read_into, self._block, self._most_held = read_into, block, held
        self._loaded = loaded
        self._offsets: list[int] = []
        self._parts: list[_ChunkBytes] = []
        self._memory = ReusableBuffer()
        self.is_held = True

    def load(
        self, ranges: Iterable[tuple[int, int]], before: Iterable[tuple[int, bytes]] = ()
    ) -> bytes:
        """Take other column chunks, (offset, length), in place of those before; their digest.

        before: offset and bytes of what was read already and is in the digest too.
        """
        self._parts.clear()
        chunks = sorted(ranges)
        views = [self._loaded(*chunk) for chunk in chunks]
        if chunks and None not in views:
            return self._load_views(chunks, views, before)
        held = [*_shares(chunks, self._most_held)]
        self.is_held = held == [length for _, length in chunks]
        memory = self._filled(
            [(offset, share) for (offset, _), share in zip(chunks, held, strict=True) if share],
            self._memory.of(sum(held)),
        )
        scratch = ReusableBuffer()
        hashed = []
        for (offset, length), share in zip(chunks, held, strict=True):
            parts: list[_ChunkBytes] = []
            if share:
                parts.append(_InMemory(self._memory, offset, memory[:share]))
                memory = memory[share:]
            if share < length:
                rest = (offset + share, length - share)
                parts.append(_Windowed(self._read_into, *rest, scratch.of(self._block)))
            hashed.append((offset, length, [one for part in parts for one in part.hashes]))
            self._parts += parts
        self._offsets = [part.offset for part in self._parts]
        return _combined(before, hashed)

    def clear(self) -> None:
        """Refer to no bytes until other column chunks are loaded."""
        self._parts.clear()

    def _load_views(
        self,
        chunks: list[tuple[int, int]],
        views: list[memoryview | None],
        before: Iterable[tuple[int, bytes]],
    ) -> bytes:
        """Loads column chunks that are in memory, see ``load``."""
        self.is_held = True
        self._memory.of(0)
        self._parts += [
            _InMemory(self._memory, offset, view)
            for (offset, _), view in zip(chunks, views, strict=True)
            if view is not None
        ]
        self._offsets = [part.offset for part in self._parts]
        hashed = [(part.offset, part.length, part.hashes) for part in self._parts]
        return _combined(before, hashed)

    def _filled(self, ranges: list[tuple[int, int]], memory: memoryview) -> memoryview:
        """The memory, with these ranges in it, one after the other."""
        done = 0
        for span in _spans(ranges):
            begin, end = span[0][0], sum(span[-1])
            for low in range(begin, end, self._block):
                step = min(self._block, end - low)
                self._read_into(low, memory[done : done + step])
                done += step
        return memory

    def buffer(self, offset: int, length: int) -> pa.Buffer:
        """A copy of these bytes."""
        copy = pa.allocate_buffer(length)
        view, done = memoryview(copy).cast("B") if length else memoryview(b""), 0
        while done < length:
            found = self._part(offset + done, length - done)
            view[done : done + len(found)] = found
            done += len(found)
        return copy

    def take(self, offset: int, length: int) -> Any:
        """These bytes; without a copy if they are contiguous."""
        found = self._part(offset, length) if length else memoryview(b"")
        return found if len(found) == length else memoryview(self.buffer(offset, length)).cast("B")

    def _part(self, offset: int, length: int) -> memoryview:
        """The first of these bytes, at least one."""
        # Chunks of a forged file may lie in one another.
        for place in range(bisect_right(self._offsets, offset) - 1, -1, -1):
            part = self._parts[place]
            if offset < part.offset + part.length:
                return part.take(offset - part.offset, length)
        raise OSError(f"{length} bytes at {offset} are in no column chunk that was hashed")


def _shares(chunks: list[tuple[int, int]], most: int) -> Iterator[int]:
    """How much of each column chunk stays in memory: whole windows, or all of it."""
    for _, length in chunks:
        share = length if length <= most else most // WINDOW * WINDOW
        most -= share
        yield share


def _spans(ranges: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Ranges that follow one another without a gap: from a store they are one request."""
    span: list[tuple[int, int]] = []
    for offset, length in ranges:
        if span and offset != sum(span[-1]):
            yield span
            span = []
        span.append((offset, length))
    if span:
        yield span


class ReusableBuffer:
    """Memory that is used again and again: new pages would cost more than hashing them."""

    def __init__(self) -> None:
        self._whole = memoryview(b"")
        self._lent: list[memoryview] = []

    def of(self, length: int) -> memoryview:
        """This many bytes, reused unless they are still referenced."""
        try:
            while self._lent:
                self._lent.pop().release()
        except BufferError:
            self._whole = memoryview(b"")
            self._lent.clear()
        if len(self._whole) < length:
            self._whole = memoryview(b"")
            self._whole = _memory(length)
        return self._whole[:length]

    def lent(self, view: memoryview) -> memoryview:
        """A part of the memory, given to pyarrow, which may hold it for long."""
        self._lent.append(view)
        return view


class _ChunkBytes(ABC):
    """Consecutive bytes of a column chunk; hashes: of their windows."""

    def __init__(self, offset: int, length: int) -> None:
        self.offset, self.length = offset, length
        self.hashes: list[bytes] = []

    @abstractmethod
    def take(self, begin: int, length: int) -> memoryview:
        """At least one byte and at most ``length``, from ``begin`` on, counted from the first."""


class _InMemory(_ChunkBytes):
    """Bytes in memory."""

    def __init__(self, memory: ReusableBuffer, offset: int, data: memoryview) -> None:
        super().__init__(offset, len(data))
        self._memory, self._data = memory, data
        self.hashes.extend(_hashes(data))

    def take(self, begin: int, length: int) -> memoryview:
        return self._memory.lent(self._data[begin : begin + length])


class _Windowed(_ChunkBytes):
    """Bytes that are read again, in blocks whose windows are compared."""

    def __init__(self, read_into: ReadInto, offset: int, length: int, scratch: memoryview) -> None:
        super().__init__(offset, length)
        self._read_into, self._block_bytes = read_into, len(scratch)
        self._number, self._block, self._memory = -1, scratch[:0], ReusableBuffer()
        for low in range(0, length, len(scratch)):
            block = scratch[: length - low]
            read_into(offset + low, block)
            self.hashes.extend(_hashes(block))

    def take(self, begin: int, length: int) -> memoryview:
        number, inside = divmod(begin, self._block_bytes)
        return self._memory.lent(self._read_again(number)[inside : inside + length])

    def _read_again(self, number: int) -> memoryview:
        if number != self._number:
            low = number * self._block_bytes
            block = self._memory.of(min(self._block_bytes, self.length - low))
            self._read_into(self.offset + low, block)
            first = low // WINDOW
            if [*_hashes(block)] != self.hashes[first : first + -(-len(block) // WINDOW)]:
                raise ChangedWhileReadError("other bytes than those that were hashed")
            self._number, self._block = number, block
        return self._block


def _memory(length: int) -> memoryview:
    return memoryview(pa.allocate_buffer(length)).cast("B")


def digest_of(ranges: Iterable[tuple[int, Any]]) -> bytes:
    """The digest of bytes in memory: (offset in the file, bytes)."""
    return _combined(ranges, ())


def _combined(
    before: Iterable[tuple[int, Any]], chunks: Iterable[tuple[int, int, Iterable[bytes]]]
) -> bytes:
    hashed = [(offset, len(data), _hashes(memoryview(data))) for offset, data in before]
    return combine([*hashed, *chunks])


def _hashes(data: memoryview) -> Iterator[bytes]:
    for low in range(0, len(data), WINDOW):
        yield hash_window(data[low : low + WINDOW])


def read_into_of(file: Any) -> ReadInto:
    """How to fill memory from an open file. ChangedWhileReadError if it has become shorter."""

    read_at = reader_at() if isinstance(file, pa.NativeFile) else None

    def local(offset: int, view: memoryview) -> None:
        assert read_at is not None
        done = 0
        while done < len(view):
            count = read_at(file.fileno(), view[done:], offset + done)
            if not count:
                raise ChangedWhileReadError("it was truncated")
            done += count

    def remote(offset: int, view: memoryview) -> None:
        file.seek(offset)
        data = file.read(len(view))
        if len(data) != len(view):
            raise ChangedWhileReadError("it was truncated")
        view[:] = data

    return remote if read_at is None else local
