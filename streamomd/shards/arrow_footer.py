"""Rows of each record batch of an Arrow file, without decoding a single one.

pyarrow tells them only after reading (and decompressing) the batches, so the three flatbuffer
tables that hold them are followed here. Layout: Arrow's ``File.fbs`` and ``Message.fbs``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from streamomd.shards.format import ReadAt

_FOOTER_BATCHES = 3
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_BATCH_ROWS, _BATCH_COMPRESSION = 0, 3
_RECORD_BATCH = 3
_BLOCK = struct.Struct("<qi4xq")


def batch_rows(footer: bytes, read_at: ReadAt) -> Iterator[int]:
    """Rows of each record batch, in order; `ValueError` or `struct.error` if forged."""
    for message in _messages(footer, read_at):
        at = _field(message, _batch_table(message), _BATCH_ROWS)
        rows = 0 if at is None else int(struct.unpack_from("<q", message, at)[0])
        if rows < 0:
            raise ValueError(f"a record batch of {rows} rows")
        yield rows


def is_compressed(footer: bytes, read_at: ReadAt) -> bool:
    """Whether the first record batch is compressed (writers do all or none)."""
    for message in _messages(footer, read_at):
        return _field(message, _batch_table(message), _BATCH_COMPRESSION) is not None
    return False


def _messages(footer: bytes, read_at: ReadAt) -> Iterator[bytes]:
    for offset, length in _blocks(footer):
        if offset < 0 or length < 8:
            raise ValueError(f"a record batch at {offset} of {length} bytes")
        message = read_at(offset, length)
        # Since Arrow 0.15 a message starts with a continuation mark before its length.
        yield message[8 if message[:4] == b"\xff\xff\xff\xff" else 4 :]


def _blocks(footer: bytes) -> Iterator[tuple[int, int]]:
    at = _field(footer, _root(footer), _FOOTER_BATCHES)
    if at is None:
        return
    start = _follow(footer, at)
    (count,) = struct.unpack_from("<I", footer, start)
    for i in range(count):
        offset, length, _ = _BLOCK.unpack_from(footer, start + 4 + i * _BLOCK.size)
        yield offset, length


def _batch_table(message: bytes) -> int:
    root = _root(message)
    kind = _field(message, root, _MESSAGE_KIND)
    header = _field(message, root, _MESSAGE_HEADER)
    if kind is None or header is None or message[kind] != _RECORD_BATCH:
        raise ValueError("a block that is no record batch")
    return _follow(message, header)


def _root(data: bytes) -> int:
    return _follow(data, 0)


def _follow(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, index: int) -> int | None:
    """Where a table's field lies; None if it has its default and is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0 or 4 + 2 * index >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0])
    return table + offset if offset else None
