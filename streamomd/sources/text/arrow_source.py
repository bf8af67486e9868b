"""Arrow IPC streams, one after the other: the types are theirs, without dictionaries and views."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamomd.core.errors import DataError
from streamomd.core.urls import printable
from streamomd.features.infer_plan import twice
from streamomd.sources.text.text_source import Text

END = b"\xff\xff\xff\xff\0\0\0\0"
"""What a writer puts at the end of a stream. Without it the writer may have been interrupted."""
STEP = 8 << 20
_INVALID = pa.ArrowException, ValueError, OSError, LookupError


class ArrowStreamReader:
    """arrows as the columns of its streams, which all have the same ones."""

    size: int | None = None
    size_is_final = True

    def __init__(self) -> None:
        self.schema: pa.Schema = pa.schema([])
        self.notes: list[str] = []
        self._known = False

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file; DataError names the file and the problem."""
        file = _Bytes(text)
        while True:
            yield from self._stream(file, text.name)
            if file.is_at_end():
                return

    def _stream(self, file: _Bytes, name: str) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            with pa.ipc.open_stream(pa.PythonFile(file, "r")) as stream:
                self._take(stream.schema, name)
                for batch in stream:
                    # A stream may be anyone's: its offsets may lead outside of its buffers.
                    batch.validate(full=True)
                    yield plain(batch, self.schema)
                    rows += batch.num_rows
        except DataError:
            raise
        except _INVALID as error:
            text = printable(str(error).split("\n")[0])[:200]
            raise DataError(
                f"{name}, from row {rows} of its stream on, is not a valid Arrow IPC stream: "
                f"{text}; write it again"
            ) from None
        # pyarrow takes the end of the file for the end of the stream.
        if file.tail != END:
            raise DataError(
                f"{name} ends after {rows} rows without the end of a stream: its writer was "
                "interrupted, or did not close it; write it again"
            )

    def _take(self, schema: pa.Schema, name: str) -> None:
        found = plain_schema(schema, name)
        if self._known and not found.equals(self.schema):
            raise DataError(
                f"{name} has the columns {printable(_listed(found))}, and those before "
                f"{printable(_listed(self.schema))}: streams of one conversion have the same ones"
            )
        self.schema, self._known = found, True


class _Bytes:
    """The bytes of a text as a file of pyarrow's. tail: the last ones that were read."""

    closed = False

    def __init__(self, text: Text) -> None:
        self._text, self._next, self.tail = text, b"", b""

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        parts, self._next = [self._next[:size]], self._next[size:]
        left = size - len(parts[0])
        # In steps: a damaged stream may claim any number of bytes.
        while left > 0 and (part := self._text.read(min(left, STEP))):
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        self.tail = (self.tail + data)[-len(END) :]
        return data

    def is_at_end(self) -> bool:
        """Whether no byte follows."""
        self._next = self._next or self._text.read(1)
        return not self._next

    def close(self) -> None:
        """The text is closed by who opened it."""


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name} ({one.type})" for one in schema)[:300]


def plain_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """The schema of a stream's rows in a shard, without metadata.

    Raises DataError for columns that Parquet cannot store, and for two of one name. name: of what
    they are in.
    """
    if again := twice(schema.names):
        raise DataError(
            f"{printable(name)} has several columns named {printable(again[0])!r}: rename them"
        )
    found = pa.schema([pa.field(one.name, _plain(one.type)) for one in schema])
    refused = [one for one in found if not _is_stored(one)]
    if refused:
        raise DataError(
            f"{name} has columns of types that Parquet does not have: "
            f"{printable(_listed(pa.schema(refused)))}; drop or cast them"
        )
    return found


def _is_stored(field: Any) -> bool:
    try:
        # The writer itself says which types it has.
        pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
    except pa.ArrowException:
        return False
    return True


def _plain(kind: Any) -> Any:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return pa.float64() if pa.types.is_null(kind) else views.get(kind, kind)


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the types of ``plain_schema``."""
    columns = [
        _decoded(column, one.type) for column, one in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _decoded(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column if column.type == kind else column.cast(kind)
