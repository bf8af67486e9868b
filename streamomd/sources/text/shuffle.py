"""All rows in a random order, in bounded memory: sorted by a random key, on disk.

The key of a row is made of the seed and the row's number only, so the order depends on
nothing else. Rows are scattered to files by the first eight bits of their key; a file that fits
in memory is sorted there, a larger one scattered by the next eight.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CHUNK_BYTES = 24 << 20
"""Bytes sorted in memory in one batch."""
_KEY = "\0key"
_FIRST_SHIFT = 56
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """Keys of the rows ``first … first + count - 1``: distinct, SplitMix64 of seed and row.

    >>> keys(0, 0, 3).tolist()
    [16294208416658607535, 7960286522194355700, 487617019471545679]
    """
    rows = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    start = _mixed(np.array([seed], np.uint64))
    return _mixed(start + rows * np.uint64(0x9E3779B97F4A7C15))


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def shuffled(
    batches: Iterable[pa.RecordBatch], seed: int, scratch: str | None
) -> Iterator[pa.RecordBatch]:
    """The rows of ``batches`` in the order of (seed, row number); all are read before the first.

    scratch: the directory for temporary files, or None for the system's.
    """
    for table in _sorted(_keyed(batches, seed), _FIRST_SHIFT, scratch):
        yield from table.drop_columns([_KEY]).to_batches()


def _keyed(batches: Iterable[pa.RecordBatch], seed: int) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        key = pa.array(keys(seed, row, batch.num_rows))
        yield batch.append_column(pa.field(_KEY, pa.uint64()), key)
        row += batch.num_rows


def _sorted(
    batches: Iterable[pa.RecordBatch], shift: int, scratch: str | None
) -> Iterator[pa.Table]:
    chunks = _chunks(batches)
    held = list(itertools.islice(chunks, 2))
    if len(held) < 2:
        yield from held
        return
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=scratch) as directory:
        _scatter(itertools.chain(_drained(held), chunks), shift, directory)
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            yield from _sorted(_stored(path), shift - 8, scratch)
            os.remove(path)


def _drained(held: list[pa.Table]) -> Iterator[pa.Table]:
    """The batches one after the other, without references to earlier ones."""
    while held:
        yield held.pop(0)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """About `CHUNK_BYTES` of rows at a time, in the order of their keys."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > CHUNK_BYTES:
            yield _by_key(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield _by_key(held)


def _by_key(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.take(pa.array(np.argsort(_keys_of(table))))


def _keys_of(table: pa.Table) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = table.column(_KEY).to_numpy()
    return found


def _scatter(chunks: Iterable[pa.Table], shift: int, directory: str) -> None:
    """Write the rows of each chunk to the file of their eight bits; all agree on those before."""
    with ExitStack() as opened:
        writers: dict[int, Any] = {}
        for chunk in chunks:
            digits = (_keys_of(chunk) >> np.uint64(shift)).astype(np.uint8)
            edges = [0, *(np.flatnonzero(np.diff(digits)) + 1).tolist(), len(digits)]
            for start, stop in itertools.pairwise(edges):
                digit = int(digits[start])
                if digit not in writers:
                    path = os.path.join(directory, f"{digit:03d}")
                    file = opened.enter_context(pa.OSFile(path, "wb"))
                    stream = pa.ipc.new_stream(file, chunk.schema, options=_LZ4)
                    writers[digit] = opened.enter_context(stream)
                writers[digit].write_table(chunk.slice(start, stop - start))


def _stored(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        yield from stream
