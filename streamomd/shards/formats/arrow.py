"""Arrow IPC files: record batches, copied into memory, decoded without another copy, and sliced.

A file may be one record batch of many gigabytes. What a slice of its rows takes of each buffer
follows from the types and from the offsets of lists and texts, which are read first and checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamomd.features.arrow_types import selected
from streamomd.shards.chunks import ChunkFile
from streamomd.shards.formats.arrow_footer import (
    TEXTS,
    BatchHeader,
    Pair,
    batch_rows,
    is_list,
    shape_of,
)
from streamomd.shards.formats.arrow_stored import PendingBatch, StoredBatches
from streamomd.shards.formats.contract import Check, Format, Groups, ReadAt, ReadRequest, cut
from streamomd.shards.shard import WINDOW

Read = Callable[[int, int], pa.Buffer]
"""``read(place, length)``: a copy of these bytes of the record batch's body."""


class Part(NamedTuple):
    """A column, or the elements of one: its type, rows, nulls, buffers and what is inside it."""

    kind: pa.DataType
    rows: int
    nulls: int
    buffers: tuple[Pair, ...]
    inner: Part | None = None


def can_be_sliced(kind: pa.DataType) -> bool:
    """Whether ``take`` knows a type: numbers, booleans, texts, and lists of these."""
    if is_list(kind):
        return can_be_sliced(kind.value_type)
    return kind in TEXTS or pa.types.is_primitive(kind)


def parts_of(schema: pa.Schema, wanted: list[int], head: BatchHeader) -> list[Part] | None:
    """The wanted columns of a record batch; None where one cannot be sliced."""
    found: dict[int, Part] = {}
    nodes, buffers = iter(head.nodes), iter(head.buffers)
    for at, field in enumerate(schema):
        if at in wanted and not can_be_sliced(field.type):
            return None
        if at in wanted:
            found[at] = _part(field.type, nodes, buffers)
            continue
        try:
            shape = shape_of(field.type)
        except LookupError:
            return None
        deque(islice(nodes, shape.nodes), 0)
        deque(islice(buffers, shape.buffers), 0)
    return [found[at] for at in wanted]


def _part(kind: pa.DataType, nodes: Iterator[Pair], buffers: Iterator[Pair]) -> Part:
    rows, nulls = next(nodes)
    inside = kind.value_type if is_list(kind) else None
    count = shape_of(kind).buffers - (shape_of(inside).buffers if inside else 0)
    own = tuple(islice(buffers, count))
    return Part(kind, rows, nulls, own, _part(inside, nodes, buffers) if inside else None)


def slices(
    parts: list[Part], names: tuple[str, ...], rows: int, unit_bytes: int, read: Read
) -> Iterator[pa.RecordBatch]:
    """All rows in order, in slices of about ``unit_bytes``. Raises ValueError for forged parts."""
    if any(part.rows != rows for part in parts):
        raise ValueError(f"a record batch of {rows} rows, but columns of {parts[0].rows}")
    width = max(1, sum(map(_bytes_of, parts)) // max(1, rows))
    step = max(8, unit_bytes // width // 8 * 8)  # bits of eight rows share a byte
    for low in range(0, rows, step):
        high = min(rows, low + step)
        columns = [take(part, low, high, read) for part in parts]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))
        del columns


def _bytes_of(part: Part) -> int:
    inner = 0 if part.inner is None else _bytes_of(part.inner)
    return inner + sum(length for _, length in part.buffers)


def take(part: Part, low: int, high: int, read: Read) -> pa.Array:
    """Rows ``low`` (a multiple of 8) … ``high`` − 1, in memory of their own."""
    kind, rows = part.kind, high - low
    if not 0 <= low <= high <= part.rows:
        raise ValueError(f"rows {low} to {high - 1} of {part.rows}")
    validity = _read(part, 0, low // 8, -(-high // 8), read) if part.nulls else None
    if kind in TEXTS:
        offsets, first, last = _offsets(part, TEXTS[kind], low, high, read)
        text = _read(part, 2, first, last, read)
        return pa.Array.from_buffers(kind, rows, [validity, _buffer(offsets - first), text])
    if part.inner is None:
        bits = kind.bit_width
        values = _read(part, 1, low * bits // 8, -(-high * bits // 8), read)
        return pa.Array.from_buffers(kind, rows, [validity, values])
    if pa.types.is_fixed_size_list(kind):
        inside = take(part.inner, low * kind.list_size, high * kind.list_size, read)
        return pa.Array.from_buffers(kind, rows, [validity], children=[inside])
    width = "i8" if pa.types.is_large_list(kind) else "i4"
    offsets, first, last = _offsets(part, width, low, high, read)
    first -= first % 8
    children = [take(part.inner, first, last, read)]
    return pa.Array.from_buffers(
        kind, rows, [validity, _buffer(offsets - first)], children=children
    )


def _offsets(part: Part, width: str, low: int, high: int, read: Read) -> tuple[Any, int, int]:
    """Where rows begin and end inside, checked; and the first and the last of these places."""
    size = int(width[1:])
    offsets = np.frombuffer(_read(part, 1, low * size, (high + 1) * size, read), f"<{width}")
    if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("offsets that are negative or decrease")
    return offsets, int(offsets[0]), int(offsets[-1])


def _read(part: Part, buffer: int, low: int, high: int, read: Read) -> pa.Buffer:
    place, length = part.buffers[buffer]
    if not 0 <= low <= high <= length:
        raise ValueError(f"bytes {low} to {high - 1} of a buffer of {length}")
    return read(place + low, high - low)


def _buffer(array: Any) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array))


MAGIC = b"ARROW1"
MOST_COPIED = 64 << 20
"""Bytes of an uncompressed record batch that are read in one batch; of a larger one, slices are."""


def describe(footer: bytes, read_at: ReadAt) -> tuple[pa.Schema, tuple[int, ...]]:
    """Schema from the footer, rows from the head of each record batch."""
    with pa.ipc.open_file(pa.BufferReader(_alone(footer))) as reader:
        schema, count = reader.schema, reader.num_record_batches
    groups = tuple(batch_rows(footer, read_at))
    if len(groups) != count:
        raise ValueError(f"{count} record batches, of which {len(groups)} were found")
    return schema, groups


def _alone(footer: bytes) -> bytes:
    return MAGIC + b"\0\0" + footer + len(footer).to_bytes(4, "little") + MAGIC


def open_groups(
    file: Any, footer: bytes, read_at: ReadAt, wanted: ReadRequest, check: Check | None = None
) -> Groups:
    """Reads one record batch after another from an open file."""
    with pa.ipc.open_file(pa.BufferReader(_alone(footer))) as reader:
        batches = StoredBatches(file, reader.schema, footer, wanted.columns)
    return _Batches(batches, wanted, check)


class _Batches:
    """See ``open_groups``."""

    def __init__(self, batches: StoredBatches, wanted: ReadRequest, check: Check | None) -> None:
        self._batches, self._wanted, self._check = batches, wanted, check

    def ranges(self, group: int) -> list[tuple[int, int]]:
        """The metadata of a record batch, and the buffers that are wanted of its body."""
        return self._batches.ranges_of(group)

    def __call__(self, group: int) -> Iterator[pa.RecordBatch]:
        return _slices(self._batches, group, self._wanted, self._check)

    def release(self) -> None:
        """Nothing is referred to."""


def _slices(
    batches: StoredBatches, group: int, wanted: ReadRequest, check: Check | None
) -> Iterator[pa.RecordBatch]:
    pending = batches.begin(group)
    parts = _parts(batches, pending, wanted)
    if parts is None:
        stored = batches.stored(pending)
        if check is not None:
            check(group, batches.digest(pending, stored))
        rows_in_slices = iter([batches.decode(stored)])
    else:
        read = batches.read_buffer
        if check is not None:
            file = ChunkFile(batches.size, batches.fill, WINDOW, 0)
            check(group, file.load(batches.ranges(pending), batches.read_before(pending)))
            read = file.buffer
        rows_in_slices = slices(
            parts, batches.columns, pending.head.rows, wanted.unit_bytes,
            lambda place, length: read(pending.block.body_at + place, length),
        )  # fmt: skip
    for batch in rows_in_slices:
        for name in batches.columns:
            if pa.types.is_struct(batch.schema.field(name).type):
                batch.column(name).validate()  # lengths, before its fields are taken
        chosen = selected(batch, wanted.columns)
        for column in chosen.columns:
            _validate(column)
        yield from cut(chosen, wanted.unit_bytes)
        del batch, chosen


def _parts(batches: StoredBatches, pending: PendingBatch, wanted: ReadRequest) -> list[Part] | None:
    """The columns of a record batch that is too large to be copied whole, where their types allow
    slices."""
    if pending.nbytes <= MOST_COPIED or pending.head.compressed or not wanted.columns:
        return None
    return parts_of(batches.schema, batches.fields, pending.head)


def _validate(column: pa.Array) -> None:
    """Refuse offsets that lead outside: unlike Parquet's, they are used as they lie."""
    if pa.types.is_string(column.type):
        # Only the offsets matter; bytes that are not UTF-8 are hashed as they are.
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    column.validate(full=True)


FORMAT = Format(
    name="arrow",
    magic=MAGIC,
    suffixes=(".arrow", ".feather", ".ipc"),
    checksummed=lambda head: False,  # the format has none
    describe=describe,
    open_groups=open_groups,
)
