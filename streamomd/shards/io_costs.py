"""The costs of reading: the store's bytes, decompression, decoding.

pyarrow does all three in one call. So some rows are read again separately: their bytes only; and,
written to memory, with and without compression.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.shards.directory_columns import read_columns, stored_columns
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.open_shard import OpenShard
from streamomd.shards.shard import ShardSet
from streamomd.shards.shard_file import open_file

TIMES = 3
UNITS = 8
PIECE = 128 << 10


def shares(shard_set: ShardSet, wanted: ReadRequest) -> Mapping[str, float]:
    """read, decompress, decode: what share of a Parquet shard's reading each has; they sum to 1.

    Of another format, which has nothing to take apart, all is decode. Raises what reading raises.
    """
    shard = next(iter(shard_set))
    group = next((number for number, rows in enumerate(shard.groups) if rows), None)
    if shard.format != "parquet" or group is None:
        return {"decode": 1.0}
    opened = OpenShard(shard_set.fs, shard, wanted)
    try:
        rows = _first(opened.read(group), UNITS * wanted.unit_bytes)
    finally:
        opened.close()
    file = open_file(shard_set.fs, shard.path, shard.url)
    try:
        columns = stored_columns(shard, read_columns(shard, wanted.columns))
        chunks = _chunks(pq.ParquetFile(file).metadata.row_group(group), columns)
        read = _least(lambda: _bytes(file, chunks))
    finally:
        file.close()
    names = ((chunk.path_in_schema, chunk.compression) for chunk in chunks)
    codecs = {name: "none" if codec == "UNCOMPRESSED" else codec for name, codec in names}
    tables = [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page]
    bare, pressed = (_decoding(rows, codec, tables) for codec in ("none", codecs))
    parts = {
        "read": read * rows.num_rows / shard.groups[group],
        "decompress": max(0.0, pressed - bare),
        "decode": bare,
    }
    return {name: seconds / sum(parts.values()) for name, seconds in parts.items()}


def _first(batches: Iterator[pa.RecordBatch], most: int) -> pa.Table:
    found = [next(batches)]
    for batch in batches:
        found.append(batch)
        if sum(part.nbytes for part in found) >= most:
            break
    return pa.Table.from_batches(found)


def _chunks(group: Any, columns: tuple[str, ...]) -> list[Any]:
    every = [group.column(place) for place in range(group.num_columns)]
    return [chunk for chunk in every if chunk.path_in_schema.split(".")[0] in columns]


def _bytes(file: Any, chunks: list[Any]) -> None:
    """Read column chunks, in pieces whose memory is used again, as pyarrow reads."""
    for chunk in chunks:
        begins = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at]
        file.seek(min(begins))
        left: int = chunk.total_compressed_size
        while left > 0:
            left -= len(file.read(min(left, PIECE))) or left


def _decoding(rows: pa.Table, codec: Any, dictionaries: list[str]) -> float:
    sink, whole = pa.BufferOutputStream(), rows.num_rows
    pq.write_table(rows, sink, whole, compression=codec, use_dictionary=dictionaries)
    written = sink.getvalue()
    return _least(lambda: pq.ParquetFile(written).read_row_group(0, use_threads=False))


def _least(job: Callable[[], object]) -> float:
    """Seconds of this thread, the least of some runs."""
    seconds = []
    for _ in range(TIMES):
        began = time.thread_time()
        job()
        seconds.append(time.thread_time() - began)
    return min(seconds)
