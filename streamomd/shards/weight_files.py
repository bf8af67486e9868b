"""Parquet files of weights, in pieces with metadata, and of small tables of results.

The metadata is JSON in the schema's metadata, under ``KEY``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.core.errors import DataError

KEY = b"streamomd.weights"
FEATURE = "feature"


def write_weights(
    file: Any, pieces: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> int:
    """Write at least one piece of columns, all of the same names and types; how many rows."""
    rows, parquet = 0, None
    try:
        for piece in pieces:
            # A piece may have no name at all: then its type would be null.
            columns = {
                name: pa.array(column, pa.string()) if name == FEATURE else pa.array(column)
                for name, column in piece.items()
            }
            table = pa.table(columns)
            if parquet is None:
                schema = table.schema.with_metadata({KEY: json.dumps(metadata).encode()})
                parquet = pq.ParquetWriter(file, schema, compression="zstd")
            parquet.write_table(table.cast(schema))
            rows += table.num_rows
    finally:
        if parquet is not None:
            parquet.close()
    return rows


def write_table(file: Any, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of numbers, booleans or texts; None is null. A column of several kinds of
    values becomes texts."""
    pq.write_table(pa.table({name: _array(values) for name, values in columns.items()}), file)


def _array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def read_metadata(schema: pa.Schema) -> dict[str, Any]:
    """The metadata passed to ``write_weights``; empty for a file of another program.

    Raises DataError for metadata that ``write_weights`` did not write.
    """
    found = (schema.metadata or {}).get(KEY, b"{}")
    try:
        metadata = json.loads(found)
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise DataError(f"the schema's metadata {KEY.decode()} are not a JSON object: remove them")
    return metadata
