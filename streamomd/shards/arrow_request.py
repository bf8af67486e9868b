"""Rows of an Arrow IPC stream from anyone, as dicts.

The stream is validated before a value is read, and what a few bytes can make large is refused:
compression, views, runs, dictionaries of long texts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamomd.core.errors import DataError
from streamomd.core.urls import printable
from streamomd.features.nested import roots, selected, with_fields
from streamomd.shards.formats.arrow_footer import is_compressed

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
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
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
        return _rows(data, columns, most_rows, most_bytes)
    except DataError:
        raise
    except _INVALID as error:
        text = printable(str(error).split("\n")[0])[:200]
        raise DataError(f"no valid Arrow IPC stream: {text}") from None


def _rows(data: bytes, columns: Sequence[str], most_rows: int, most_bytes: int) -> list[Row]:
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
    if pa.types.is_dictionary(kind) or any(is_list(kind) for is_list in _LISTS):
        kind = kind.value_type
    return any(is_simple(kind) for is_simple in _SIMPLE)


def _decoded_bytes(column: pa.Array) -> int:
    """Bytes of a column's values as Python has them, about: at least a pointer each."""
    kind = column.type
    if any(is_list(kind) for is_list in _LISTS):
        values = column.flatten()
        return max(int(values.nbytes), 8 * len(values))
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        if _has_lengths(words.type):
            # A long text is hashed in every row that has it.
            lengths = pc.binary_length(words).take(column.indices)
            return int(words.nbytes) + int(pc.sum(lengths).as_py() or 0)
    return int(column.nbytes)


def _has_lengths(kind: pa.DataType) -> bool:
    return any(is_text(kind) for is_text in _SIMPLE[5:10])


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
