"""Format: the interface between a file format and the reader; one file per format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from streamomd.shards.formats.parquet_footer import GroupStatistics

Check = Callable[[int, bytes], None]
"""``check(group, digest)``: given the digest of a group before a row of it is given; may raise."""
Statistics = Callable[[bytes, pa.Schema, Collection[str]], tuple[GroupStatistics, ...]]


class NotFlatError(Exception):
    """pyarrow reads these pages, and says what is wrong with them, if anything is."""


class ReadAt(Protocol):
    """``read_at(offset, length)``: exactly that many bytes."""

    def __call__(self, offset: int, length: int, /) -> bytes:
        """The bytes."""

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announces the offsets and lengths that will be read next: a store is asked once."""


class Groups(Protocol):
    """The row groups or record batches of an open file."""

    def __call__(self, group: int, /) -> Iterator[pa.RecordBatch]:
        """The rows of one, in slices."""

    def ranges(self, group: int, /) -> list[tuple[int, int]]:
        """Offset and length of the bytes that are read for one; those of a store are loaded into
        memory before its rows are asked for."""

    def release(self) -> None:
        """The rows of the last one were read: refer to none of its bytes."""


class ReadRequest(NamedTuple):
    """The columns and limits of a reader."""

    columns: tuple[str, ...]
    dictionary: tuple[str, ...]
    """String columns to be left as dictionaries where the format can."""
    unit_bytes: int
    """Decoded bytes aimed at; no slice has over four times as many unless one row has."""
    buffer_bytes: int
    """Read in one step from the file."""
    held_bytes: int = 24 << 20
    """Bytes of a row group whose digest is computed that stay in memory; the rest is read twice."""
    one_thread_bytes: int | None = None
    """Row groups with more bytes may be decoded by a thread a column; None: no row group."""


class Format(NamedTuple):
    """A file format with ``magic`` at both ends and the footer's length before the last."""

    name: str
    magic: bytes
    suffixes: tuple[str, ...]
    checksummed: Callable[[bytes], bool | None]
    """``checksummed(head)``: whether the first page has a checksum; None: the file's first bytes do
    not say."""
    describe: Callable[[bytes, ReadAt], tuple[pa.Schema, tuple[int, ...]]]
    """``describe(footer, read_at)``: the schema, and the rows of each group."""
    open_groups: Callable[[Any, bytes, ReadAt, ReadRequest, Check | None], Groups]
    """``open_groups(file, footer, read_at, wanted, check)``; the caller closes the file. Without
    ``check`` no digest is computed."""
    statistics: Statistics | None = None
    """``statistics(footer, schema, columns)``: bounds of columns in each group; None: none."""


def decoded_bytes(columns: Iterable[pa.Array]) -> int:
    """Bytes of the rows alone: what a dictionary holds is shared, and cannot be sliced."""
    return sum(c.indices.nbytes if pa.types.is_dictionary(c.type) else c.nbytes for c in columns)


def cut(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most ``limit`` bytes (or one row), in order."""
    if batch.num_rows <= 1 or decoded_bytes(batch.columns) <= limit:
        yield batch
        return
    half = batch.num_rows // 2
    yield from cut(batch.slice(0, half), limit)
    yield from cut(batch.slice(half), limit)
