"""Arrow IPC files: record batches, mapped into memory where they are local, and sliced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamomd.shards.arrow_footer import batch_rows, is_compressed
from streamomd.shards.format import Format, Groups, ReadAt, Wanted, cut

MAGIC = b"ARROW1"


def describe(footer: bytes, read_at: ReadAt) -> tuple[pa.Schema, tuple[int, ...]]:
    """Schema from the footer, rows from the head of each record batch."""
    alone = MAGIC + b"\0\0" + footer + len(footer).to_bytes(4, "little") + MAGIC
    with pa.ipc.open_file(pa.BufferReader(alone)) as reader:
        schema, count = reader.schema, reader.num_record_batches
    groups = tuple(batch_rows(footer, read_at))
    if len(groups) != count:
        raise ValueError(f"{count} record batches, of which {len(groups)} were found")
    return schema, groups


def open_groups(file: Any, footer: bytes, read_at: ReadAt, wanted: Wanted) -> Groups:
    """Reads one record batch after another from an open file."""
    whole = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
    if isinstance(file, pa.MemoryMappedFile) and not is_compressed(footer, read_at):
        # Nothing is read before it is used; asking for some fields would copy them at once.
        return lambda group: _slices(whole, group, wanted)
    fields = [whole.schema.get_field_index(name) for name in wanted.columns]
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    some = pa.ipc.open_file(file, options=options)
    return lambda group: _slices(some, group, wanted)


def _slices(reader: Any, group: int, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    batch = reader.get_batch(group).select(wanted.columns)
    for column in batch.columns:
        _validate(column)
    yield from cut(batch, wanted.unit_bytes)


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
    mapped=True,
    describe=describe,
    open_groups=open_groups,
)
