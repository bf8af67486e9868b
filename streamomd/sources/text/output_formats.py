"""The output formats of `convert`: Parquet, or Arrow, which is larger and needs no decoding.

Measured in benchmarks/layout.py, decided in docs/decisions/025-the-layout-of-shards.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.features.lists import declared

SAMPLE = 1 << 16
"""Values read to find whether a column has few distinct ones."""
FEW = 1 / 8
"""A column of numbers is a dictionary if its distinct values are at most this share of them."""
LONG = 64
"""Strings of more bytes on average are texts: plain, unless they repeat."""
_ELEMENT = ".list.element"
COMPRESSIONS: Mapping[str, int | None] = {"lz4": None, "zstd": 3, "none": None}
"""Codecs and, for all but numbers, their levels. LZ4 of level 3 writes texts in 0.77 of the bytes,
and takes two whole trainings longer to write them: docs/decisions/025-the-layout-of-shards.md."""


def pair_of(values: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """The types of a list of indices and of its values, without nulls inside.

    >>> str(pair_of(pa.float32())[1])
    'list<element: float not null>'
    """
    kinds = (pa.int32(), values)
    indices, numbers = (pa.list_(pa.field("element", kind, nullable=False)) for kind in kinds)
    return indices, numbers


def required(columns: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """A schema of columns that have no nulls: a null that cannot be costs nothing to read."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


def stored(batch: pa.RecordBatch, compression: str = "lz4") -> dict[str, Any]:
    """The arguments of ``ParquetWriter`` for a shard that begins with ``batch``.

    compression: one of COMPRESSIONS. Indices are stored by their differences, floating-point
    numbers that vary and long texts as they are; all else as dictionaries, which become plain where
    there are many values.

    >>> batch = pa.record_batch({"n": [1.5, 2.5], "s": ["a", "b"]})
    >>> found = stored(batch)
    >>> found["compression"], found["column_encoding"], found["use_dictionary"]
    ({'n': 'lz4', 's': 'lz4'}, {'n': 'PLAIN'}, ['s'])
    >>> found = stored(batch, "zstd")
    >>> found["compression"], found["compression_level"]
    ({'n': 'zstd', 's': 'zstd'}, {'s': 3})
    """
    level = COMPRESSIONS[compression]
    codecs, encoding, levels = {}, {}, {}
    lists = declared(batch.schema)
    for field in batch.schema:
        if field.name in lists:
            codecs[field.name], encoding[field.name] = "none", "PLAIN"
            continue
        for path, values in _leaves(field.name, batch.column(field.name)):
            whole = pa.types.is_integer(values.type)
            number = whole or pa.types.is_floating(values.type)
            codecs[path] = compression
            if not number and level is not None:
                levels[path] = level
            if number and (path.endswith(_ELEMENT) or not whole) and _varies(values):
                encoding[path] = "DELTA_BINARY_PACKED" if whole else "PLAIN"
            elif _are_texts(values):
                encoding[path] = "PLAIN"
    options: dict[str, Any] = {"write_statistics": [*codecs.keys() - lists]} if lists else {}
    options |= {"compression_level": levels} if levels else {}
    return options | {
        "compression": codecs,
        "column_encoding": encoding,
        "use_dictionary": [path for path in codecs if path not in encoding],
        "write_page_checksum": True,
    }


def _leaves(path: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The path in Parquet and the values of each leaf of a column."""
    if pa.types.is_struct(column.type):
        for at, field in enumerate(column.type):
            yield from _leaves(f"{path}.{field.name}", column.field(at))
    elif pa.types.is_list(column.type):
        yield from _leaves(path + _ELEMENT, column.flatten())
    else:
        yield path, column


def _are_texts(values: pa.Array) -> bool:
    """Whether a dictionary of these strings would be filled and given up in each row group."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return False
    sample = values[:SAMPLE]
    return sample.nbytes > LONG * max(1, len(sample)) and _varies(sample)


def _varies(values: pa.Array) -> bool:
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    sample = values[:SAMPLE]
    found: int = pc.count_distinct(sample).as_py()
    return found > FEW * len(sample)


SIZE_KEY = "streamomd.size"


@dataclass(frozen=True)
class OutputFormat:
    """How shards of a form are written, by a writer of pyarrow's."""

    suffix: str
    group_bytes: int
    """Decoded bytes of a row group, or of a record batch, at most."""
    begin: Callable[[Any, pa.Schema, pa.RecordBatch, int | None], Any]
    """``begin(file, schema, first, size)``: a writer. first: rows it begins with. size: of a sparse
    pair, for the schema's metadata; None: there is no pair; 0: ``add_size`` will set it."""
    write: Callable[[Any, pa.Table], None]
    """``write(writer, table)``: a group."""
    add_size: Callable[[Any, int | None], None] | None
    """``add_size(writer, size)``, before the end. None: the size must be known at the beginning."""


def _parquet(
    file: Any, schema: pa.Schema, first: pa.RecordBatch, size: int | None, compression: str = "lz4"
) -> Any:
    found = stored(first, compression)
    # With a stored Arrow schema, metadata added at the end is not read as the schema's.
    return pq.ParquetWriter(file, _with(schema, size), store_schema=size != 0, **found)


def _arrow(file: Any, schema: pa.Schema, first: pa.RecordBatch, size: int | None) -> Any:
    return pa.ipc.new_file(file, _with(schema, size))


def _with(schema: pa.Schema, size: int | None) -> pa.Schema:
    return schema.with_metadata(_metadata(schema, size) or None)


def _metadata(schema: pa.Schema, size: int | None) -> dict[bytes, bytes]:
    """The schema's metadata with the size; pyarrow replaces all of it by what is added last."""
    own = {SIZE_KEY.encode(): str(size).encode()} if size else {}
    return {**(schema.metadata or {}), **own}


FORMS: Mapping[str, OutputFormat] = {
    form.suffix: form
    for form in (
        OutputFormat(
            "parquet",
            48 << 20,
            _parquet,
            lambda writer, table: writer.write_table(table, row_group_size=max(1, table.num_rows)),
            lambda writer, size: writer.add_key_value_metadata(_metadata(writer.schema, size)),
        ),
        # A record batch of a remote shard is read in one batch: it fits in a piece of rows.
        OutputFormat(
            "arrow",
            16 << 20,
            _arrow,
            lambda writer, table: writer.write_table(table.combine_chunks()),
            None,
        ),
    )
}

BINARY_GROUP_BYTES = 16 << 20
"""Bytes of a row group of lists stored as binary: they are as many in the file, and what a reader
does not hold in memory between hashing and decoding it reads twice (`reader.LOCAL_HELD`)."""


def with_compression(form: OutputFormat, compression: str) -> OutputFormat:
    """How shards of Parquet are written with a compression, of `COMPRESSIONS`."""
    return replace(form, begin=partial(_parquet, compression=compression))


def with_binary_lists(form: OutputFormat) -> OutputFormat:
    """How shards with lists stored as binary are written in a form."""
    return replace(form, group_bytes=min(form.group_bytes, BINARY_GROUP_BYTES))
