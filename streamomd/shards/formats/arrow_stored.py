"""A record batch as an Arrow file stores it: copied into memory of this process, then decoded.

Nothing is mapped: what happens to the file after the copy changes no row and ends no process. The
copy is an IPC stream of its own (schema, dictionaries, one record batch), in which only the buffers
of the requested columns are filled; pyarrow decodes it without copying again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from streamomd.features.arrow_types import roots
from streamomd.features.buffers import BufferPool
from streamomd.shards.chunks import digest_of
from streamomd.shards.formats.arrow_footer import (
    HEADS_AT_ONCE,
    BatchHeader,
    Block,
    batch_head,
    blocks,
    shape_of,
)
from streamomd.shards.stored_object import GAP_BYTES, ObjectFile

GAP = 64 << 10
"""Bytes between two buffers that are read with them rather than skipped."""
UNFOLDED, RATIO = 256 << 20, 256
"""A compressed record batch may be larger than either, not than both: no few bytes of a file take
more memory than any file of rows does."""
_FIRST = 8  # where the first message begins, after the magic and its padding
Span = tuple[int, int]


class StoredBatch(NamedTuple):
    """Bytes of a record batch, as they are in the file, before anything is decoded."""

    data: pa.Buffer
    """An IPC stream; what is outside ``spans`` is no part of the file."""
    spans: tuple[Span, ...]
    """Begin and end, in ``data``, of the bytes that were read, in order."""
    head: BatchHeader


class PendingBatch(NamedTuple):
    """A record batch of which only the metadata was read."""

    block: Block
    metadata: bytes
    head: BatchHeader
    spans: tuple[Span, ...]
    """Begin and end of what is wanted of its body."""

    @property
    def nbytes(self) -> int:
        """Bytes that are wanted of its body."""
        return sum(high - low for low, high in self.spans)


class StoredBatches:
    """The record batches of an open file, of which some columns are wanted (none: all).

    columns: the stored ones, of which wanted ones may be fields.
    """

    def __init__(
        self, file: Any, schema: pa.Schema, footer: bytes, columns: tuple[str, ...]
    ) -> None:
        self._file, self._memory = file, BufferPool()
        self._blocks = blocks(footer)
        self.size = int(file.seek(0, 2))
        self.columns = roots(schema, columns)
        self.fields = [schema.get_field_index(name) for name in self.columns]
        self.schema = _without_dictionaries(schema, self.fields)
        self._head = self.schema.serialize().to_pybytes()
        self._dictionaries: list[tuple[int, bytes]] = []
        if _coded(self.schema):
            # Dictionaries have numbers, which only the file's own schema gives.
            self.schema, self._head = schema, self._own_schema(schema)
            for block in blocks(footer, dictionaries=True):
                data = self.read_at(block.offset, self._within(block).metadata + block.body)
                self._dictionaries.append((block.offset, data))
                self._head += data
        self._options = pa.ipc.IpcReadOptions(included_fields=self.fields, use_threads=False)

    def begin(self, group: int) -> PendingBatch:
        """The metadata of a record batch, read and looked through."""
        block = self._within(self._blocks[group])
        metadata = self.read_at(block.offset, block.metadata)
        head = batch_head(metadata)
        return PendingBatch(block, metadata, head, self._body_spans(head, block.body))

    def ranges_of(self, group: int) -> list[tuple[int, int]]:
        """Offset and length of a record batch's metadata and of what is wanted of its body.

        Of a small one, and where all columns are wanted, that is all of it: its metadata, which
        says where the buffers are, is read with them.
        """
        block = self._within(self._blocks[group])
        if block.body <= GAP_BYTES or len(set(self.fields)) in (0, len(self.schema)):
            return [(block.offset, block.metadata + block.body)]
        if isinstance(self._file, ObjectFile):
            heads = [(one.offset, one.metadata) for one in self._blocks[group:][:HEADS_AT_ONCE]]
            self._file.load(heads[:1] if self._file.is_held(heads[:1]) else heads, GAP)
        spans = self.begin(group).spans
        body = [(block.body_at + low, high - low) for low, high in spans]
        return [(block.offset, block.metadata), *body]

    def stored(self, pending: PendingBatch) -> StoredBatch:
        """A copy of a record batch: its metadata, and the buffers of the requested columns."""
        start, block = len(self._head), pending.block
        data = self._memory.take(start + block.metadata + block.body)
        view = memoryview(data).cast("B")
        view[:start] = self._head
        view[start : start + block.metadata] = pending.metadata
        spans = [(0, start), (start, start + block.metadata)]
        start += block.metadata
        for low, high in pending.spans:
            self.fill(block.body_at + low, view[start + low : start + high])
            spans.append((start + low, start + high))
        return StoredBatch(data, tuple(spans), pending.head)

    def ranges(self, pending: PendingBatch) -> list[tuple[int, int]]:
        """Offset and length, in the file, of the buffers that are wanted of a body."""
        wanted = self._wanted_buffers(pending.head)
        places = [(0, pending.block.body)] if wanted is None else sorted(set(wanted))
        return [(pending.block.body_at + place, length) for place, length in places if length]

    def read_before(self, pending: PendingBatch) -> list[tuple[int, bytes]]:
        """Offset and bytes of what is decoded too and was read before: dictionaries, metadata."""
        return [*self._dictionaries, (pending.block.offset, pending.metadata)]

    def digest(self, pending: PendingBatch, stored: StoredBatch) -> bytes:
        """The digest of a record batch that was copied."""
        view = memoryview(stored.data).cast("B")[stored.spans[1][1] :]
        buffers = [
            (offset, view[offset - pending.block.body_at :][:length])
            for offset, length in self.ranges(pending)
        ]
        return digest_of([*self.read_before(pending), *buffers])

    def decode(self, stored: StoredBatch) -> pa.RecordBatch:
        """The requested columns, of a copy whose memory they share. Raises ArrowInvalid."""
        self._refuse_bomb(stored)
        with pa.ipc.open_stream(pa.BufferReader(stored.data), options=self._options) as stream:
            return stream.read_next_batch()

    def _body_spans(self, head: BatchHeader, body: int) -> tuple[Span, ...]:
        """Where in a body the buffers of the requested columns lie; all of it where unknown."""
        wanted = self._wanted_buffers(head)
        if wanted is None:
            return ((0, body),) if body else ()
        spans: list[Span] = []
        for offset, length in sorted(wanted):
            if offset + length > body:
                raise ValueError(f"a buffer of {length} bytes at {offset} of a body of {body}")
            if spans and offset <= spans[-1][1] + GAP:
                spans[-1] = spans[-1][0], max(spans[-1][1], offset + length)
            elif length:
                spans.append((offset, offset + length))
        return tuple(spans)

    def _wanted_buffers(self, head: BatchHeader) -> list[Span] | None:
        try:
            counts = [shape_of(field.type).buffers for field in self.schema]
        except LookupError:
            return None
        if not self.fields or sum(counts) != len(head.buffers):
            return None
        ends = list(accumulate(counts))
        found = (head.buffers[ends[at] - counts[at] : ends[at]] for at in self.fields)
        return [buffer for buffers in found for buffer in buffers]

    def _refuse_bomb(self, stored: StoredBatch) -> None:
        """ValueError for small compressed buffers that claim a very large size."""
        head, view, body = stored.head, memoryview(stored.data).cast("B"), stored.spans[1][1]
        if not head.compressed:
            return
        buffers = self._wanted_buffers(head)
        unfolded = 0
        for offset, length in head.buffers if buffers is None else buffers:
            # A compressed buffer begins with its length, or -1 where it is stored as it is.
            if length >= 8:
                place = body + offset
                said = int.from_bytes(view[place : place + 8], "little", signed=True)
                unfolded += max(said, 0)
        held = sum(end - begin for begin, end in stored.spans)
        if unfolded > UNFOLDED and unfolded > RATIO * held:
            raise ValueError(
                f"a record batch of {held} bytes says that it unfolds to {unfolded}: write smaller "
                "record batches"
            )

    def _own_schema(self, schema: pa.Schema) -> bytes:
        """The schema's message at the file's beginning, which must be that of the footer."""
        start = self.read_at(_FIRST, 8)
        marked = start[:4] == b"\xff\xff\xff\xff"
        length = int.from_bytes(start[4:] if marked else start[:4], "little")
        if length > self.size:
            raise ValueError(f"a schema of {length} bytes")
        message = self.read_at(_FIRST, length + (8 if marked else 4))
        if not pa.ipc.read_schema(pa.BufferReader(message)).equals(schema):
            raise ValueError("the schema at its beginning is another than the one in its footer")
        return message

    def _within(self, block: Block) -> Block:
        if block.offset + block.metadata + block.body > self.size:
            raise ValueError(f"a record batch ends beyond the file's {self.size} bytes")
        return block

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly these bytes of the file; `ValueError` where it ends before."""
        return memoryview(self.read_buffer(offset, length)).tobytes()

    def read_buffer(self, offset: int, length: int) -> pa.Buffer:
        """Reads as ``read_at`` does, into a buffer of Arrow's pool."""
        data = pa.allocate_buffer(length)
        self.fill(offset, memoryview(data).cast("B"))
        return data

    def fill(self, offset: int, view: memoryview) -> None:
        """Fill memory with the file's bytes at an offset; `ValueError` where it ends before."""
        self._file.seek(offset)
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])
            if not count:
                raise ValueError(f"it ends at {offset + done}, {len(view) - done} bytes too early")
            done += count


def _without_dictionaries(schema: pa.Schema, wanted: list[int]) -> pa.Schema:
    """The schema with codes for the dictionary columns that are not wanted: stored alike, and no
    dictionary is read for them. The schema as it is where a dictionary is wanted."""
    fields = list(schema)
    if any(_coded(pa.schema([fields[at]])) for at in wanted):
        return schema
    for at, field in enumerate(fields):
        if wanted and at not in wanted and pa.types.is_dictionary(field.type):
            fields[at] = field.with_type(field.type.index_type)
    return pa.schema(fields)


def _coded(schema: pa.Schema) -> bool:
    return any(pa.types.is_dictionary(kind) for field in schema for kind in _kinds(field.type))


def _kinds(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type and those inside it."""
    yield kind
    if isinstance(kind, pa.BaseExtensionType):
        yield from _kinds(kind.storage_type)
    for at in range(kind.num_fields):
        yield from _kinds(kind.field(at).type)
