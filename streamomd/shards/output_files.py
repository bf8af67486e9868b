"""Output files, complete or absent: predictions of a shard, weights, small tables of results.

The metadata is JSON in the schema's metadata, under ``KEY``.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streamomd.checkpoint.stores.local import remove_abandoned_outputs, temporary_name
from streamomd.core.errors import DataError, OutputExistsError, UsageError
from streamomd.core.urls import absolute, local_name, protocol, shown
from streamomd.shards.filesystem import FileSystem, connect_output, output_errors
from streamomd.shards.renames import near
from streamomd.shards.shard import Shard, ShardSet


class OutputFile(io.RawIOBase):
    """An open file of a store, to write to: any error of the store's client is a StorageError that
    names the URL, and errors of what is written are not."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def writable(self) -> bool:
        """Whether the file can be written: always."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        with output_errors(self._url):
            return int(self._file.write(data))

    def tell(self) -> int:
        """The bytes that were written."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file; a store may receive all of it only now."""
        if not self.closed:
            super().close()
            with output_errors(self._url):
                self._file.close()


@contextmanager
def open_atomic(
    to: str, *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> Iterator[OutputFile]:
    """A file to write bytes to. Raises OutputExistsError and StorageError naming the URL."""
    url = absolute(to)
    fs = connect_output(url, storage_options)
    path = str(fs._strip_protocol(url)) if protocol(url) else local_name(url)
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with output_errors(url):
            if fs.exists(path) and not overwrite:
                raise OutputExistsError(f"{shown(url)} already exists; --overwrite replaces it")
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            file = OutputFile(fs.open(temporary, "wb"), url)
        try:
            yield file
        except BaseException:
            with suppress(Exception):  # the error before it is the one to report
                file.close()
            raise
        file.close()
        with output_errors(url):
            fs.mv(temporary, path)
    finally:
        with suppress(Exception):  # a store that failed may do so again
            if fs.exists(temporary):
                fs.rm(temporary)


OWN = ("row", "prediction", "score", "probability")
INTERVAL = ("lower", "upper")
NEW_VALUE = ("new_lower", "new_upper")


def output_names(shards: ShardSet) -> list[str]:
    """A file name for each shard: its path below its source if unique, else its own name prefixed
    by its position."""
    names = [shard.name or os.path.basename(shard.path) for shard in shards]
    stems = [os.path.splitext(name)[0] for name in names]
    inside = all({*stem.split("/")}.isdisjoint({"", ".", ".."}) for stem in stems)
    if inside and len(set(stems)) == len(stems):
        return [f"{stem}.parquet" for stem in stems]
    own = [os.path.basename(stem) for stem in stems]
    return [f"{place:05d}-{stem}.parquet" for place, stem in enumerate(own)]


def check_passthrough(shard: Shard, keep: Sequence[str], added: Sequence[str] = ()) -> None:
    """Raises UsageError for a column of ``keep`` that is missing or has an output column's name."""
    for name in keep:
        if name not in shard.schema.names:
            raise UsageError(
                f"--keep {name}: {shown(shard.url)} has no such column; "
                f"{near(name, shard.schema.names)}"
            )
        if name in OWN or name in added:
            raise UsageError(f"--keep {name}: the output already has a column of that name")


def empty_rows(shard: Shard, keep: Sequence[str]) -> pa.RecordBatch:
    """No rows of the shard's columns ``keep``."""
    schema = _passthrough_schema(shard, keep)
    # Not of pa.array, which imports pandas where it is installed: 0.2 s.
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def passthrough_columns(
    columns: pa.RecordBatch, shard: Shard, keep: Sequence[str]
) -> pa.RecordBatch:
    """The columns ``keep`` of some rows, with their types in the shard."""
    schema = _passthrough_schema(shard, keep)
    arrays = [columns.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _passthrough_schema(shard: Shard, keep: Sequence[str]) -> pa.Schema:
    return pa.schema([shard.schema.field(name) for name in keep])


def remove_unfinished(directory: str, storage_options: Mapping[str, Any] | None) -> None:
    """Remove the files that killed processes of this host did not finish in a directory.

    Raises StorageError for a store that does not answer.
    """
    url = absolute(directory)
    fs = connect_output(url, storage_options)
    with output_errors(url):
        remove_abandoned_outputs(fs, _root(fs, url))


def _root(fs: FileSystem, url: str) -> str:
    return str(fs._strip_protocol(url) if protocol(url) else local_name(url)).rstrip("/")


class PredictionWriter:
    """One output file; ``with`` renames it at the end, or removes it after an error."""

    def __init__(
        self,
        directory: str,
        name: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        classes: Sequence[Any] = (),
    ) -> None:
        """classes: saved to the schema's metadata, as JSON, in the order of lists of numbers."""
        self._metadata = {"classes": json.dumps(list(classes), default=str)} if classes else None
        url = absolute(directory)
        self._fs: FileSystem = connect_output(url, storage_options)
        root = _root(self._fs, url)
        self.path = f"{root}/{name}"
        with output_errors(self.path):
            if self._fs.exists(self.path) and not overwrite:
                raise OutputExistsError(
                    f"{shown(self.path)} already exists; --overwrite replaces it"
                )
            try:
                self._fs.makedirs(self.path.rpartition("/")[0], exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise OutputExistsError(
                    f"{shown(directory)} is a file; predictions are written to a directory, a file "
                    "a shard: choose another name"
                ) from None
        self._temporary = f"{root}/{temporary_name()}"
        self._file: Any = None
        self._parquet: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        with output_errors(self.path):
            self._file = OutputFile(self._fs.open(self._temporary, "wb"), self.path)
        return self

    def write(self, columns: Mapping[str, Any], passthrough: pa.RecordBatch | None) -> None:
        """Add rows: our columns (numpy or Arrow arrays; 2-d ones become lists), then the others."""
        arrays = {name: as_arrow(column) for name, column in columns.items()}
        if passthrough is not None:
            arrays |= {field.name: passthrough.column(field.name) for field in passthrough.schema}
        table = pa.table(arrays).replace_schema_metadata(self._metadata)
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        self._parquet.write_table(table)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # Of several errors the first one is reported.
            with suppress(*([] if kind is None else [Exception])):
                if self._parquet is not None:
                    self._parquet.close()
                self._file.close()
            if kind is None:
                with output_errors(self.path):
                    self._fs.mv(self._temporary, self.path)
        finally:
            with suppress(Exception):  # a store that failed may do so again
                if self._fs.exists(self._temporary):
                    self._fs.rm(self._temporary)


def as_arrow(column: Any) -> pa.Array:
    """A numpy array, of one dimension or of two (lists), or what is Arrow's already."""
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return _lists(column)
    return column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)


def _lists(matrix: NDArray[Any]) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])


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
