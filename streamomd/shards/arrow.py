"""Arrow IPC files: record batches, copied into memory, decoded without another copy, and sliced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamomd.shards import arrow_rows
from streamomd.shards.arrow_footer import batch_rows
from streamomd.shards.arrow_stored import Batches, Begun
from streamomd.shards.format import Format, Groups, ReadAt, Wanted, cut

MAGIC = b"ARROW1"
MOST_COPIED = 64 << 20
"""Bytes of an uncompressed record batch that are read at once; of more, slices are."""


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


def open_groups(file: Any, footer: bytes, read_at: ReadAt, wanted: Wanted) -> Groups:
    """Reads one record batch after another from an open file."""
    with pa.ipc.open_file(pa.BufferReader(_alone(footer))) as reader:
        batches = Batches(file, reader.schema, footer, wanted.columns)
    return lambda group: _slices(batches, group, wanted)


def _slices(batches: Batches, group: int, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    begun = batches.begin(group)
    found = _large(batches, begun, wanted)
    if found is None:
        found = iter([batches.decode(batches.stored(begun))])
    for batch in found:
        chosen = batch.select(wanted.columns)
        for column in chosen.columns:
            _validate(column)
        yield from cut(chosen, wanted.unit_bytes)
        del batch, chosen


def _large(batches: Batches, begun: Begun, wanted: Wanted) -> Iterator[pa.RecordBatch] | None:
    """A record batch that is too large to be copied whole, in slices, where its types allow it."""
    if begun.nbytes <= MOST_COPIED or begun.head.compressed or not wanted.columns:
        return None
    parts = arrow_rows.parts_of(batches.schema, batches.fields, begun.head)
    if parts is None:
        return None
    return arrow_rows.slices(
        parts, wanted.columns, begun.head.rows, wanted.unit_bytes,
        lambda place, length: batches.read_buffer(begun.block.body_at + place, length),
    )  # fmt: skip


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
