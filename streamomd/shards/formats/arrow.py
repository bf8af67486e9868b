"""Arrow IPC files: record batches, copied into memory, decoded without another copy, and sliced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamomd.shards.chunks import ChunkFile
from streamomd.shards.digests import WINDOW
from streamomd.shards.formats import arrow_rows
from streamomd.shards.formats.arrow_footer import batch_rows
from streamomd.shards.formats.arrow_stored import PendingBatch, StoredBatches
from streamomd.shards.formats.contract import Check, Format, Groups, ReadAt, ReadRequest, cut

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
        found = iter([batches.decode(stored)])
    else:
        read = batches.read_buffer
        if check is not None:
            file = ChunkFile(batches.size, batches.fill, WINDOW, 0)
            check(group, file.load(batches.ranges(pending), batches.read_before(pending)))
            read = file.buffer
        found = arrow_rows.slices(
            parts, wanted.columns, pending.head.rows, wanted.unit_bytes,
            lambda place, length: read(pending.block.body_at + place, length),
        )  # fmt: skip
    for batch in found:
        chosen = batch.select(wanted.columns)
        for column in chosen.columns:
            _validate(column)
        yield from cut(chosen, wanted.unit_bytes)
        del batch, chosen


def _parts(
    batches: StoredBatches, pending: PendingBatch, wanted: ReadRequest
) -> list[arrow_rows.Part] | None:
    """The columns of a record batch that is too large to be copied whole, where their types allow
    slices."""
    if pending.nbytes <= MOST_COPIED or pending.head.compressed or not wanted.columns:
        return None
    return arrow_rows.parts_of(batches.schema, batches.fields, pending.head)


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
