"""Where the record batches of an Arrow file lie, and the rows of a stream from anyone, as dicts.

pyarrow gives the rows of a record batch only after reading (and decompressing) it, and not the
places of its buffers, so the flatbuffer tables that hold them are followed here. Layout: Arrow's
``File.fbs`` and ``Message.fbs``.

The stream is validated before a value is read, and what a few bytes can make large is refused:
compression, views, runs, dictionaries of long texts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from streamomd.core.errors import DataError
from streamomd.core.urls import printable
from streamomd.features.arrow_types import roots, selected, with_fields
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


Row = dict[str, Any]
_SIMPLE = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_INVALID = pa.ArrowException, ValueError, LookupError, ArithmeticError, OSError, struct.error
_MOST_COLUMNS = 10_000


class TooManyRowsError(DataError):
    """More rows than a request may have; ``rows``: at least as many."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"{rows:,} rows")
        self.rows = rows


def rows_of_stream(
    data: bytes, columns: Sequence[str], *, most_rows: int, most_bytes: int
) -> list[Row]:
    """The rows of a stream as dicts with those of ``columns`` that it has.

    most_bytes: of decoded values. Raises DataError for a stream that is invalid or too large,
    TooManyRowsError.
    """
    try:
        return _stream_rows(data, columns, most_rows, most_bytes)
    except DataError:
        raise
    except _INVALID as error:
        text = printable(str(error).split("\n")[0])[:200]
        raise DataError(f"no valid Arrow IPC stream: {text}") from None


def _stream_rows(data: bytes, columns: Sequence[str], most_rows: int, most_bytes: int) -> list[Row]:
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
        if is_compressed(message.metadata.to_pybytes()):
            raise DataError("the stream is compressed: write it without compression")
    rows: list[Row] = []
    budget, count = most_bytes, 0
    with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
        wanted = _wanted(with_fields(stream.schema), set(columns))
        stored = roots(stream.schema, wanted)
        for batch in stream:
            count += batch.num_rows
            if count > most_rows:
                raise TooManyRowsError(count)
            for name in stored:
                batch.column(name).validate(full=True)
            found = dict(zip(wanted, selected(batch, wanted).columns, strict=True))
            budget -= sum(map(_decoded_bytes, found.values()))
            if budget < 0:
                raise DataError(f"its values take more than {most_bytes:,} bytes: send fewer rows")
            rows += _dicts(found, batch.num_rows)
    return rows


def _wanted(schema: pa.Schema, columns: set[str]) -> list[str]:
    """The columns that are needed. Raises DataError for those of an unsupported type."""
    if len(schema.names) > _MOST_COLUMNS:
        raise DataError(f"{len(schema.names):,} columns, and a stream may have {_MOST_COLUMNS:,}")
    taken = [name for name in schema.names if name in columns]
    if twice := sorted({name for name in taken if taken.count(name) > 1})[:10]:
        raise DataError(f"there are several columns {', '.join(map(repr, twice))}")
    strange = [
        f"{name!r} ({printable(str(schema.field(name).type))[:100]})"
        for name in taken
        if not _is_supported(schema.field(name).type)
    ]
    if strange:
        raise DataError(
            f"unsupported types of columns {', '.join(strange[:10])}: send numbers, text, dates, "
            "times, dictionaries of these, or lists of numbers or text"
        )
    return taken


def _is_supported(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or is_list(kind):
        kind = kind.value_type
    return any(is_simple(kind) for is_simple in _SIMPLE)


def _decoded_bytes(column: pa.Array) -> int:
    """Bytes of a column's values as Python has them, about: at least a pointer each."""
    kind = column.type
    if is_list(kind):
        values = column.flatten()
        return max(int(values.nbytes), 8 * len(values))
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        if any(is_text(words.type) for is_text in _SIMPLE[5:10]):
            # A long text is hashed in every row that has it.
            import pyarrow.compute as pc  # late: it writes 300 docstrings

            lengths = pc.binary_length(words).take(column.indices)
            return int(words.nbytes) + int(pc.sum(lengths).as_py() or 0)
    return int(column.nbytes)


def _dicts(columns: dict[str, pa.Array], count: int) -> Iterator[Row]:
    values = [_values(column) for column in columns.values()]
    if not values:
        return ({} for _ in range(count))
    return (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        # Each text once: to_pylist makes a copy for every row.
        words = _values(column.dictionary)
        return [None if at is None else words[at] for at in column.indices.to_pylist()]
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return list(column.to_pylist())
