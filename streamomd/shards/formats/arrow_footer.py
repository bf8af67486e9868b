"""Where the record batches of an Arrow file lie, and the parts of each, without decoding one.

pyarrow gives the rows of a record batch only after reading (and decompressing) it, and not the
places of its buffers, so the flatbuffer tables that hold them are followed here. Layout: Arrow's
``File.fbs`` and ``Message.fbs``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from streamomd.shards.formats.contract import ReadAt

TEXTS = {pa.string(): "i4", pa.binary(): "i4", pa.large_string(): "i8", pa.large_binary(): "i8"}
"""Types of bytes, and of the offsets that say where each value ends."""


class Shape(NamedTuple):
    """How many nodes (a column, and each inside it) and buffers a column has."""

    nodes: int
    buffers: int


def shape_of(kind: pa.DataType) -> Shape:
    """The shape of a column. Raises LookupError for a type that alone does not say.

    >>> shape_of(pa.list_(pa.int32())), shape_of(pa.null())
    (Shape(nodes=2, buffers=4), Shape(nodes=1, buffers=0))
    """
    if isinstance(kind, pa.BaseExtensionType):
        return shape_of(kind.storage_type)
    if pa.types.is_struct(kind) or is_list(kind):
        inside = [shape_of(kind.field(at).type) for at in range(kind.num_fields)]
        own = 2 if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 1
        return Shape(1 + sum(one.nodes for one in inside), own + sum(one.buffers for one in inside))
    if kind in TEXTS:
        return Shape(1, 3)
    if pa.types.is_null(kind):
        return Shape(1, 0)
    if pa.types.is_primitive(kind) or pa.types.is_dictionary(kind):
        return Shape(1, 2)
    raise LookupError(str(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a list of variable or fixed size (not a map, and no list view)."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(known(kind) for known in lists)


_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_BATCH_ROWS, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3
_DICTIONARY_DATA = 1
_DICTIONARY, _RECORD_BATCH = 2, 3
_BLOCK, _PAIR = struct.Struct("<qi4xq"), struct.Struct("<qq")
Pair = tuple[int, int]
HEADS_AT_ONCE = 256
"""Record batches whose metadata is requested together."""


class Block(NamedTuple):
    """A message of a file: where it begins, and the bytes of its metadata and of its body."""

    offset: int
    metadata: int
    body: int

    @property
    def body_at(self) -> int:
        """Where its body begins."""
        return self.offset + self.metadata


class BatchHeader(NamedTuple):
    """What the metadata of a record batch says."""

    rows: int
    nodes: tuple[Pair, ...]
    """Rows and nulls of each column and of each child, depth first."""
    buffers: tuple[Pair, ...]
    """Place in the body and bytes of each buffer."""
    compressed: bool


def blocks(footer: bytes, *, dictionaries: bool = False) -> list[Block]:
    """The record batches in order, or the dictionaries. `ValueError`, `struct.error` if forged."""
    at = _field(footer, _root(footer), _FOOTER_DICTIONARIES if dictionaries else _FOOTER_BATCHES)
    if at is None:
        return []
    start = _follow(footer, at)
    (count,) = struct.unpack_from("<I", footer, start)
    if start + 4 + count * _BLOCK.size > len(footer):
        raise ValueError(f"{count} record batches in a footer of {len(footer)} bytes")
    found = [Block(*_BLOCK.unpack_from(footer, start + 4 + i * _BLOCK.size)) for i in range(count)]
    for block in found:
        if block.offset < 0 or block.metadata < 8 or block.body < 0:
            raise ValueError(f"a record batch at {block.offset} of {block.metadata} bytes")
    return found


def batch_rows(footer: bytes, read_at: ReadAt) -> Iterator[int]:
    """Rows of each record batch, in order; `ValueError` or `struct.error` if forged."""
    found = blocks(footer)
    for first in range(0, len(found), HEADS_AT_ONCE):
        some = found[first : first + HEADS_AT_ONCE]
        read_at.expect([(block.offset, block.metadata) for block in some])
        for block in some:
            message = _message(read_at(block.offset, block.metadata))
            yield _rows(message, _batch_table(message))


def batch_head(metadata: bytes) -> BatchHeader:
    """What the metadata of a block says; `ValueError` or `struct.error` if forged."""
    message = _message(metadata)
    table = _batch_table(message)
    compressed = _field(message, table, _BATCH_COMPRESSION) is not None
    nodes, buffers = (_pairs(message, table, one) for one in (_BATCH_NODES, _BATCH_BUFFERS))
    return BatchHeader(_rows(message, table), nodes, buffers, compressed)


def is_compressed(message: bytes) -> bool:
    """Whether a message, without its length, is a record batch or dictionary with compressed
    buffers; `ValueError` or `struct.error` if forged."""
    root = _root(message)
    kind, header = (_field(message, root, one) for one in (_MESSAGE_KIND, _MESSAGE_HEADER))
    if kind is None or header is None or message[kind] not in (_DICTIONARY, _RECORD_BATCH):
        return False
    table = _follow(message, header)
    if message[kind] == _DICTIONARY:
        data = _field(message, table, _DICTIONARY_DATA)
        if data is None:
            return False
        table = _follow(message, data)
    return _field(message, table, _BATCH_COMPRESSION) is not None


def _message(metadata: bytes) -> bytes:
    # Since Arrow 0.15 a message starts with a continuation mark before its length.
    return metadata[8 if metadata[:4] == b"\xff\xff\xff\xff" else 4 :]


def _rows(message: bytes, table: int) -> int:
    at = _field(message, table, _BATCH_ROWS)
    rows = 0 if at is None else int(struct.unpack_from("<q", message, at)[0])
    if rows < 0:
        raise ValueError(f"a record batch of {rows} rows")
    return rows


def _pairs(message: bytes, table: int, index: int) -> tuple[Pair, ...]:
    """A vector of structs of two 64-bit integers, of which none is negative."""
    at = _field(message, table, index)
    if at is None:
        return ()
    start = _follow(message, at)
    (count,) = struct.unpack_from("<I", message, start)
    data = message[start + 4 : start + 4 + count * _PAIR.size]
    found = tuple(_PAIR.iter_unpack(data))
    if len(found) != count or any(min(pair) < 0 for pair in found):
        raise ValueError(f"{count} nodes or buffers in a record batch's metadata")
    return found


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
    """Where a table's field lies; None if it has its default and is omitted."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0 or 4 + 2 * index >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0])
    return table + offset if offset else None
