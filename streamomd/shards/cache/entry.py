"""A cache's entry: the batches of a row group as an uncompressed Arrow IPC file with an index.

Its record batches are (rows: large_list<index: int32>, values: large_list<value>, y, weight), or of
a matrix (rows: fixed_size_list<value>, y, weight), both with a column time if the job has one; any
Arrow library opens the file. Values that are all 1, as of words, are not stored: the batch's lists
of values are empty. Between the last batch and Arrow's footer stand the names and an index of ours
(JSON, its length, its XXH3): where each batch lies and the XXH3 of its bytes.

Nothing is mapped: bytes are read into memory of this process, the copy is checked, and the copy is
used. So what happens to the file afterwards changes no row and ends no process.
"""

from __future__ import annotations

import base64
import io
import json
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from streamomd.core.batch import NONE_SKIPPED, Batch, DenseBatch, Skipped, SparseBatch
from streamomd.core.platform_calls import WITHOUT_WAITING
from streamomd.features.buffers import BufferPool, ones

FORMAT = 4
_MAGIC, _END_OF_STREAM = b"ARROW1", 8
_TRAILER = struct.Struct("<QQ")


class DamagedError(Exception):
    """An entry is damaged."""


class Draft:
    """An entry that is being written, under a temporary name."""

    def __init__(self, path: str, key: str) -> None:
        self.path = path
        self._index: dict[str, Any] = {"format": FORMAT, "key": key, "batches": []}
        self._file = _Recorded(path)
        self._writer: Any = None

    def add(self, row: int, batch: Batch) -> None:
        """The next batch, the first row it stands for being ``row`` of the shard. Raises OSError,
        ValueError for a batch unlike those before."""
        kind = kind_of(batch)
        schema = schema_of(kind)
        if self._writer is None:
            sink = pa.PythonFile(self._file, "w")
            self._writer, self._index["kind"] = pa.ipc.new_file(sink, schema), kind
        elif kind != self._index["kind"]:
            raise ValueError(f"{kind} after {self._index['kind']}")
        record = pa.RecordBatch.from_arrays(_columns(batch, schema), schema=schema)
        length = pa.ipc.get_record_batch_size(record)
        self._file.pieces.clear()
        self._writer.write_batch(record)
        offset = self._file.tell() - length
        skipped = batch.skipped
        texts = [_text(skipped.places), _text(skipped.reasons)] if len(skipped) else []
        found = self._file.checksum(length)
        self._index["batches"].append([offset, length, found, row, len(batch), texts])

    def finish(self, names: Any, digest: bytes) -> None:
        """Finish and close the file. names: bytes saved with the batches. digest: of their row
        group. Raises OSError."""
        self._index["digest"] = digest.hex()
        end = self._file.tell()
        self._file.write(bytes(-end % 8))
        place = [self._file.tell(), len(names), xxhash.xxh3_64_intdigest(names)]
        self._index["names"] = place
        self._file.write(names)
        index = json.dumps(self._index).encode()
        trailer = _TRAILER.pack(len(index), xxhash.xxh3_64_intdigest(index))
        self._file.write(index + trailer)
        self._writer.close()
        self._close()

    def remove(self) -> None:
        """Close and remove the file, if it still exists under this name."""
        with suppress(OSError):
            self._close()
        with suppress(OSError):
            os.unlink(self.path)

    def _close(self) -> None:
        self._file.close()


class _Recorded:
    """A file and the last bytes written to it, as they were in memory: the disk may be wrong."""

    def __init__(self, path: str) -> None:
        self._file = pa.OSFile(path, "wb")
        self.pieces: list[Any] = []

    def write(self, data: Any) -> int:
        """Writes data and remembers it for the checksum; returns its length."""
        self.pieces.append(data)
        self._file.write(data)
        return len(data)

    def checksum(self, length: int) -> int:
        """XXH3 of the last ``length`` bytes of the pieces."""
        first, left = len(self.pieces), length
        while left > 0:
            first -= 1
            left -= len(self.pieces[first])
        found = xxhash.xxh3_64()
        for piece in self.pieces[first:]:
            found.update(piece)
        self.pieces.clear()
        return found.intdigest()

    def tell(self) -> int:
        """Bytes written."""
        return int(self._file.tell())

    def flush(self) -> None:
        """Flushes the file."""
        self._file.flush()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close the file; may be called repeatedly."""
        self.pieces.clear()
        self._file.close()


class Entry:
    """An entry, open for reading; raises DamagedError if it changed. The caller closes it."""

    def __init__(
        self, path: str, key: str, columns: int, buffers: BufferPool | None = None
    ) -> None:
        """columns: of the batches. buffers: memory for them. Raises OSError too."""
        self._columns, self._buffers = columns, buffers or BufferPool()
        self._file = io.FileIO(
            path, opener=lambda name, flags: os.open(name, flags | WITHOUT_WAITING)
        )
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise DamagedError("it is not a regular file")
            self._index = _index(self._file)
            if (self._index["format"], self._index["key"]) != (FORMAT, key):
                raise DamagedError("it belongs to another entry")
            self._schema = schema_of(self._index["kind"])
            self.digest = bytes.fromhex(self._index["digest"])
            """The digest of the row group that the batches are made of."""
        except BaseException:
            self.close()
            raise

    def names(self) -> Any:
        """The bytes that ``Draft.finish`` was given."""
        return self._checked(*self._index["names"])

    def batches(self, begin: int, end: int) -> Iterator[tuple[int, Batch]]:
        """First row and batch, of rows ``begin`` … ``end`` − 1 of the shard, in order."""
        for offset, length, checksum, row, rows, texts in self._index["batches"]:
            skipped = _skipped(texts)
            after = row + rows + len(skipped)
            if after <= begin or row >= end:
                continue
            data = self._checked(offset, length, checksum)
            batch = _batch(data, self._schema, skipped)
            if len(batch) != rows or not _may_be_walked(batch, self._columns):
                raise DamagedError("its rows are no rows of this plan")
            low, high = max(row, begin), min(after, end)
            yield low, batch if (low, high) == (row, after) else _cut(batch, low - row, high - row)
            del data, batch

    def _checked(self, offset: int, length: int, checksum: int) -> Any:
        data = _read(self._file, offset, length, self._buffers)
        if xxhash.xxh3_64_intdigest(data) != checksum:
            raise DamagedError(f"{length} bytes at {offset} differ from those written")
        return data

    def close(self) -> None:
        """Close the file; batches stay valid."""
        self._file.close()


def _index(file: io.FileIO) -> Any:
    """The index of a file of any bytes."""
    size, buffers = os.fstat(file.fileno()).st_size, BufferPool()
    tail = bytes(_read(file, size - 4 - len(_MAGIC), 4 + len(_MAGIC), buffers))
    if tail[4:] != _MAGIC:
        raise DamagedError("it has no end")
    end = size - len(tail) - int.from_bytes(tail[:4], "little") - _END_OF_STREAM - _TRAILER.size
    length, checksum = _TRAILER.unpack(_read(file, end, _TRAILER.size, buffers))
    index = _read(file, end - length, length, buffers)
    if xxhash.xxh3_64_intdigest(index) != checksum:
        raise DamagedError("its index is not the one that was written")
    return json.loads(bytes(index))


def _read(file: io.FileIO, offset: int, length: int, buffers: BufferPool) -> Any:
    """A copy of this many bytes."""
    size = os.fstat(file.fileno()).st_size
    if not 0 <= offset <= offset + length <= size:
        raise DamagedError(f"{length} bytes at {offset} are not in a file of {size}")
    file.seek(offset)
    copy = buffers.take(length)
    view, done = memoryview(copy).cast("B"), 0
    while done < length:  # one call of the system gives 2 GiB at most
        count = file.readinto(view[done:])
        if not count:
            raise DamagedError(f"{length} bytes at {offset} could not be read completely")
        done += count
    return copy


def kind_of(batch: Batch) -> list[Any]:
    """What all batches of an entry share: columns of a matrix, or −1; the type of values; and
    "time" if rows have one."""
    width = batch.values.shape[1] if isinstance(batch, DenseBatch) else -1
    return [width, str(batch.values.dtype), *([] if batch.time is None else ["time"])]


def schema_of(kind: list[Any]) -> pa.Schema:
    """The schema of batches of a kind.

    >>> schema_of([-1, "float32"]).field("values").type.value_type
    DataType(float)
    """
    width, dtype, *time = kind
    value = pa.field("value", pa.from_numpy_dtype(dtype), nullable=False)
    if width < 0:
        index = pa.field("index", pa.int32(), nullable=False)
        columns = {"rows": pa.large_list(index), "values": pa.large_list(value)}
    else:
        columns = {"rows": pa.list_(value, width)}
    columns |= {"y": pa.float64(), "weight": pa.float64()}
    columns |= {name: pa.int64() for name in time}
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in columns.items()])


def _columns(batch: Batch, schema: pa.Schema) -> list[pa.Array]:
    if isinstance(batch, DenseBatch):
        values = pa.array(batch.values.reshape(-1))
        rows = [pa.FixedSizeListArray.from_arrays(values, type=schema.field("rows").type)]
    else:
        all_one = bool((batch.values[:64] == 1).all() and (batch.values == 1).all())
        ends, values = batch.indptr, batch.values
        if all_one:
            ends, values = np.zeros_like(ends), values[:0]
        lists = {"rows": (batch.indptr, batch.indices), "values": (ends, values)}
        rows = [
            pa.LargeListArray.from_arrays(*map(pa.array, arrays), type=schema.field(name).type)
            for name, arrays in lists.items()
        ]
    time = [] if batch.time is None else [pa.array(batch.time)]
    return [*rows, pa.array(batch.y), pa.array(batch.weight), *time]


def _batch(data: Any, schema: pa.Schema, skipped: Skipped) -> Batch:
    """The batch of a record batch's bytes, which it shares."""
    record = pa.ipc.read_record_batch(pa.ipc.read_message(data), schema)
    rows, dense = record.column(0), pa.types.is_fixed_size_list(schema.types[0])
    y, weight, *times = (column.to_numpy() for column in record.columns[1 if dense else 2 :])
    time = times[0] if times else None
    if dense:
        values = rows.values.to_numpy().reshape(len(y), rows.type.list_size)
        return DenseBatch(values, y, weight, skipped, time)
    indices, values = rows.values.to_numpy(), record.column(1).values.to_numpy()
    if not len(values):
        values = ones(len(indices), values.dtype)
    return SparseBatch(rows.offsets.to_numpy(), indices, values, y, weight, skipped, time)


def _may_be_walked(batch: Batch, columns: int) -> bool:
    """Whether all indices are in range: the engine does not check. A checksum can be forged."""
    if isinstance(batch, DenseBatch):
        return bool(batch.values.shape == (len(batch), columns))
    indptr, indices = batch.indptr, batch.indices
    edges = indptr[0] == 0 and indptr[-1] == len(indices) == len(batch.values)
    inside = not len(indices) or indices.view(np.uint32).max() < columns
    return bool(edges and inside and (indptr[1:] >= indptr[:-1]).all())


def _cut(batch: Batch, low: int, high: int) -> Batch:
    """Rows ``low`` … ``high`` − 1 of those that the batch stands for, bad ones counting."""
    skipped = batch.skipped
    first, last = np.searchsorted(skipped.places, (low, high))
    left_out = Skipped(skipped.places[first:last] - low, skipped.reasons[first:last])
    return replace(batch.rows(low - int(first), high - int(last)), skipped=left_out)


def _text(array: Any) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _skipped(texts: list[str]) -> Skipped:
    if not texts:
        return NONE_SKIPPED
    places, reasons = map(base64.b64decode, texts)
    return Skipped(np.frombuffer(places, np.int64), np.frombuffer(reasons, np.int8))
