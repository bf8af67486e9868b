"""A stream of rows in blocks of one size, wherever its batches end, and their encoded rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from streamomd.core.batch import Batch, SparseBatch
from streamomd.core.errors import DataError
from streamomd.core.urls import scrub
from streamomd.features import Names, Plan, encode
from streamomd.features.lists import elements_of
from streamomd.features.nested import table_with_fields
from streamomd.shards.distinct_values import label_counts
from streamomd.shards.prefetch import Release, return_freed_memory
from streamomd.sources.memory.row_streams import plain_rows

HEAD_ROWS, HEAD_BYTES = 1 << 17, 64 << 20
"""The first rows, which say how wide a row is and which labels there are."""
LEAST_ROWS, MOST_ROWS = 256, 1 << 16
"""Of a block."""


class Block(NamedTuple):
    """Rows of a stream: the number of the block, its first row, and the rows."""

    number: int
    row: int
    rows: Any

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.row + int(self.rows.num_rows)

    @property
    def span(self) -> str:
        """For messages."""
        return f"rows {self.row:,} to {self.end - 1:,}"


class RowBlocks:
    """The blocks of a stream, which can be read once, and its first rows: all, of what is in
    memory. nbytes: of a block, about.

    Raises what ``plain_rows`` raises.
    """

    def __init__(self, given: Any, nbytes: int) -> None:
        return_freed_memory()
        self.stored, self._rest = plain_rows(given)
        self.schema = table_with_fields(self.stored.empty_table()).schema
        whole = hasattr(given, "shape") or isinstance(given, list | tuple)
        self._head = _first(self._rest, whole=whole)
        self.size = block_rows(self._head, nbytes)

    def first_labels(self, column: str) -> Iterator[dict[Any, int]]:
        """The rows of each label, of a batch of the first rows after another."""
        return (label_counts(chunk) for chunk in self._first_chunks(column))

    def longest(self, column: str) -> int:
        """The length of the longest list of the first rows."""
        found = 0
        for chunk in self._first_chunks(column):
            begins, _ = elements_of(chunk)
            found = max(found, int((begins[1:] - begins[:-1]).max(initial=0)))
        return found

    def _first_chunks(self, column: str) -> Iterator[Any]:
        for batch in self._head:
            yield from table_with_fields(pa.Table.from_batches([batch]))[column].chunks

    def read(self, columns: Sequence[str]) -> Iterator[Block]:
        """All rows; the last block may have fewer. The first rows are no longer held."""
        number, waiting, count = 0, list[pa.RecordBatch](), 0
        head, self._head = self._head, []
        release = Release()
        for batch in chain(_drained(head), self._rest):
            taken = 0
            while count + batch.num_rows - taken >= self.size:
                some = batch.slice(taken, self.size - count)
                rows = self._joined([*waiting, some], columns)
                yield Block(number, number * self.size, rows)
                release.passed(rows.nbytes)
                taken += some.num_rows
                number, waiting, count = number + 1, [], 0
            if taken < batch.num_rows:
                waiting.append(batch.slice(taken))
                count += batch.num_rows - taken
        if waiting:
            yield Block(number, number * self.size, self._joined(waiting, columns))

    def _joined(self, batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
        rows = table_with_fields(pa.Table.from_batches(batches, self.stored))
        found = rows.select([*columns]).combine_chunks().to_batches()
        if len(found) > 1:  # the offsets of string and list count to 2 GiB
            raise DataError(
                f"{len(rows):,} rows of the stream have more than 2 GiB in a column: cast it to "
                "large_string, large_binary or large_list"
            )
        return found[0]


def block_rows(head: Sequence[pa.RecordBatch], nbytes: int) -> int:
    """The rows that have about ``nbytes``, within bounds."""
    rows, held = (sum(getattr(one, name) for one in head) for name in ("num_rows", "nbytes"))
    return int(max(LEAST_ROWS, min(MOST_ROWS, nbytes * rows // max(1, held))))


def _first(batches: Iterator[pa.RecordBatch], *, whole: bool) -> list[pa.RecordBatch]:
    """The first batches, or all."""
    found, rows, nbytes = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        found.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if not whole and (rows >= HEAD_ROWS or nbytes >= HEAD_BYTES):
            break
    return found


def _drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch is released when its rows were read."""
    batches.reverse()
    while batches:
        yield batches.pop()


def encode_block(
    plan: Plan, names: Names, url: str, begin: int, block: Block
) -> tuple[Block, Batch, bytes]:
    """A block as rows for the engine, those from row ``begin`` of the stream on, and the digest of
    the whole. Raises what ``encode`` raises; url: the stream's name there."""
    given: dict[str, Any] = {"shard": url, "names": names}
    try:
        batch = encode(plan, block.rows, row=block.row, **given)
        digest = digest_of(batch)
        if block.row < begin < block.end:
            batch = encode(plan, block.rows.slice(begin - block.row), row=begin, **given)
    except pa.ArrowException as error:
        text = scrub(str(error).split("\n")[0])[:300]
        raise DataError(f"{url}, {block.span}: {text}") from error
    return block, batch, digest


def digest_of(batch: Batch) -> bytes:
    """XXH3-128 of what is learned of rows, and of the places of those that are skipped."""
    found = xxhash.xxh3_128()
    sparse = (batch.indptr, batch.indices) if isinstance(batch, SparseBatch) else ()
    for array in (batch.values, batch.y, batch.weight, batch.skipped.places, *sparse):
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
