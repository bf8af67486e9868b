"""The output formats of `convert`: Parquet, or Arrow, which is larger and needs no decoding.

Measured in benchmarks/layout.py, decided in docs/decisions/025-the-layout-of-shards.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.sources.text.encoding import stored

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
    file: Any,
    schema: pa.Schema,
    first: pa.RecordBatch,
    size: int | None,
    compression: str = "lz4",
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
    """How shards of Parquet are written with a compression, of `encoding.COMPRESSIONS`."""
    return replace(form, begin=partial(_parquet, compression=compression))


def with_binary_lists(form: OutputFormat) -> OutputFormat:
    """How shards with lists stored as binary are written in a form."""
    return replace(form, group_bytes=min(form.group_bytes, BINARY_GROUP_BYTES))
