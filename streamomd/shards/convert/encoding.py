"""The encodings of `convert`'s shards: the fastest to read with any Parquet reader.

Measured in benchmarks/layout.py, decided in docs/decisions/025-the-layout-of-shards.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streamomd.features.binary_lists import declared

SAMPLE = 1 << 16
"""Values read to find whether a column has few distinct ones."""
FEW = 1 / 8
"""A column of numbers is a dictionary if its distinct values are at most this share of them."""


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


def stored(batch: pa.RecordBatch) -> dict[str, Any]:
    """The arguments of ``ParquetWriter`` for a shard that begins with ``batch``.

    Numbers are packed by LZ4, all else by zstd: numbers that vary hardly shrink, texts do. Indices
    are stored by their differences, floating-point numbers that vary as they are; all else as
    dictionaries, which become plain where there are many values.

    >>> batch = pa.record_batch({"n": [1.5, 2.5], "s": ["a", "b"]})
    >>> found = stored(batch)
    >>> found["compression"], found["column_encoding"], found["use_dictionary"]
    ({'n': 'lz4', 's': 'zstd'}, {'n': 'PLAIN'}, ['s'])
    """
    compression, encoding = {}, {}
    lists = declared(batch.schema)
    for field in batch.schema:
        if field.name in lists:
            compression[field.name], encoding[field.name] = "none", "PLAIN"
            continue
        path, kind, values = _leaf(field, batch.column(field.name))
        whole = pa.types.is_integer(kind)
        number = whole or pa.types.is_floating(kind)
        compression[path] = "lz4" if number else "zstd"
        if number and (path != field.name or not whole) and _varies(values):
            encoding[path] = "DELTA_BINARY_PACKED" if whole else "PLAIN"
    found: dict[str, Any] = {"write_statistics": [*compression.keys() - lists]} if lists else {}
    return found | {
        "compression": compression,
        "column_encoding": encoding,
        "use_dictionary": [path for path in compression if path not in encoding],
        "write_page_checksum": True,
    }


def _leaf(field: pa.Field, column: pa.Array) -> tuple[str, pa.DataType, pa.Array]:
    """The path in Parquet, type and values of what a column holds."""
    if not pa.types.is_list(field.type):
        return field.name, field.type, column
    return f"{field.name}.list.element", field.type.value_type, column.flatten()


def _varies(values: pa.Array) -> bool:
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    sample = values[:SAMPLE]
    found: int = pc.count_distinct(sample).as_py()
    return found > FEW * len(sample)
