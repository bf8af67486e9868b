"""Small shards of every format, and how the tests read them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.shards.reader import Piece, ShardBatch, read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find

Write = Callable[[str, pa.Table, int], None]


def write_parquet(path: str, table: pa.Table, rows: int) -> None:
    pq.write_table(table, path, row_group_size=rows, write_page_checksum=True)


def write_arrow(path: str, table: pa.Table, rows: int) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_compressed_arrow(path: str, table: pa.Table, rows: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


FORMATS = {
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
    "a.feather": write_compressed_arrow,
}
every_format = pytest.mark.parametrize(("suffix", "write"), FORMATS.items())


def table(first: int, rows: int) -> pa.Table:
    """Rows that tell their own number, with a list and a string column."""
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "list": pa.array([[i] * (i % 4) for i in ids], pa.list_(pa.int32())),
            "word": pa.array([f"w{i % 3}" for i in ids], pa.string()),
            "other": pa.array(ids, pa.float64()),
        }
    )


def small_set(folder: Path, suffix: str, write: Write) -> ShardSet:
    """Shards of 7, 0, 5 and 1 rows in groups of 3: 13 rows numbered in order."""
    first = 0
    for number, rows in enumerate((7, 0, 5, 1)):
        write(str(folder / f"{number}-{suffix}"), table(first, rows), 3)
        first += rows
    return find(str(folder))


def ids(batch: pa.RecordBatch) -> list[int]:
    return list(batch.column("id").to_pylist())


def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def read_pieces(
    shards: ShardSet, *, function: Callable[[pa.RecordBatch], Any] = ids, **options: Any
) -> Generator[Piece[Any], None, None]:
    """A function mapped over the record batches of shards, in the threads that read them."""

    def piece(rows: ShardBatch) -> Piece[Any]:
        return Piece(
            rows.position, rows.row, rows.batch.num_rows, function(rows.batch), rows.nbytes
        )

    return read_batches(shards, **options).map(piece)


def read_ids(shards: ShardSet, **options: object) -> list[int]:
    options.setdefault("places", range(len(shards)))
    options.setdefault("columns", ["id"])
    return [i for piece in read_pieces(shards, **options) for i in piece.value]


def open_files() -> set[str]:
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.islink(link)}


def readers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streamomd")]
