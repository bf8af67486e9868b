"""The encodings of `convert`'s shards: the fastest to read with any Parquet reader.

Measured in benchmarks/layout.py, decided in docs/decisions/025-the-layout-of-shards.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamomd.features.binary_lists import declared

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
    found: dict[str, Any] = {"write_statistics": [*codecs.keys() - lists]} if lists else {}
    found |= {"compression_level": levels} if levels else {}
    return found | {
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
