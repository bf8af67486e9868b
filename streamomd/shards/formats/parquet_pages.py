"""Check that the page headers of a small Parquet file claim possible sizes, before decoding.

pyarrow believes a page header: a few bytes that claim 2^28 values in one list make it fill
gigabytes before it finds that the footer knows of 60. So the headers of a small file are read
first, and the levels that say how long its lists are.

Layout: Parquet's ``parquet.thrift`` and its page on encodings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.features.kernels.page_headers import (
    COMPRESSED,
    DATA,
    DATA_2,
    DEPTH,
    DICTIONARY,
    ENCODING,
    FIELDS,
    KIND,
    LEVELS,
    MISSING,
    REPETITION_LEVELS,
    STORED,
    UNFOLDED,
    VALUES,
    is_whole,
    read_header,
)
from streamomd.shards.formats.contract import ReadAt
from streamomd.shards.formats.parquet_footer import read_struct, read_unsigned

SMALL_BYTES = 4 << 20
"""Files up to this size are checked: 20 µs per page."""
MOST_UNFOLDED, RATIO = 32 << 20, 64
"""A page may unfold to more bytes than either, not than both."""
MOST_IN_A_ROW = 1 << 21
"""Elements of one list: a row cannot be decoded in pieces. Honest ones of that number need more
bytes than a small file has, unless nearly all are equal."""
PADDING = 100
"""Writers before 2014 leave the dictionary's header out of a chunk's size; pyarrow adds as much."""
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_HADOOP_LZ4, _RAW_LZ4 = 5, 7
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4}
"""Bytes of a dictionary's value at least, by Parquet's physical type; of texts, their length."""
_DELTAS = (5, 6, 7)
_BIT_PACKED = 4
_LEVEL_BITS = 36
"""The most bits of a run's length, or of a number that a delta encoding begins with."""


_BEFORE, _NO_LENGTH = -1, -2


@dataclass(frozen=True)
class Chunk:
    """A column chunk, as the footer has it: its place, and what is in it."""

    start: int
    end: int
    values: int
    kind: int
    codec: int
    most_repetition: int
    most_definition: int


@dataclass(frozen=True)
class Page:
    """A page: its kind, its header's numbers, and its bytes as they are stored."""

    kind: int
    values: int
    encoding: int
    unfolded: int
    body: bytes
    repetition_bytes: int = _BEFORE
    definition_bytes: int = _BEFORE
    """Bytes of levels, or how they are found: ``_BEFORE`` the levels stands their length, or it
    follows from the number of values: ``_NO_LENGTH``."""
    compressed: bool = True


def is_always_compressed(metadata: Any) -> bool:
    """Whether Arrow takes pages of the second version for compressed, whatever their headers say:
    before Arrow 3.0 it compressed them and wrote that they are not (ARROW-17100).

    metadata: pyarrow's FileMetaData.
    """
    try:
        application, _, version = metadata.created_by.lower().partition(" version ")
    except UnicodeDecodeError:
        return True  # pyarrow reads such pages; no writer of today's leaves bytes that are no text
    return application.strip() == "parquet-cpp" and not re.match(r"\s*0*([2-9]|1\d)", version)


def checker(
    footer: bytes, metadata: Any, leaves: list[int], size: int, read_at: ReadAt
) -> Callable[[int], None]:
    """``check(group)``: raises ValueError where a page of the leaves claims what cannot be.

    metadata: pyarrow's FileMetaData. size: of the file; nothing is looked at in a large one.
    """
    if size > SMALL_BYTES:
        return lambda group: None
    groups, schema = read_struct(footer)[0].get(4, []), metadata.schema
    believes_headers = not is_always_compressed(metadata)

    def check(group: int) -> None:
        for leaf in leaves:
            column = schema.column(leaf)
            levels = column.max_repetition_level, column.max_definition_level
            chunk = _chunk(_column_metadata(groups, group, leaf), *levels)
            if chunk.end > size:
                raise ValueError(f"a column chunk ends at {chunk.end} of {size} bytes")
            end = min(size, chunk.end + PADDING)
            _check(chunk, read_at(chunk.start, end - chunk.start), believes_headers)

    return check


def _column_metadata(groups: Any, group: int, leaf: int) -> dict[int, Any]:
    """The ColumnMetaData of a chunk. pyarrow ignores fields of other kinds than it expects."""
    found = groups
    for key, kind in ((group, list), (1, dict), (leaf, list), (3, dict)):
        if not isinstance(found, kind):
            raise ValueError("a row group of the footer has no metadata of its columns")
        found = found[key]
    right = isinstance(found, dict) and all(
        type(found.get(key, 0)) is int for key in (1, 4, 5, 7, 9, 11)
    )
    if not right:
        raise ValueError("the metadata of a column chunk has other values than numbers")
    return dict(found)


def _chunk(meta: dict[int, Any], most_repetition: int, most_definition: int) -> Chunk:
    dictionary, data = meta.get(11, 0), meta[9]
    start = dictionary if 0 < dictionary < data else data
    if start < 4 or meta[7] < 0 or meta[5] < 0:
        raise ValueError(f"a column chunk of {meta[7]} bytes at {start}, of {meta[5]} values")
    levels = most_repetition, most_definition
    return Chunk(start, start + meta[7], meta[5], meta[1], meta[4], *levels)


def _check(chunk: Chunk, data: bytes, believes_headers: bool) -> None:
    values = in_row = 0
    pages = _pages(data, believes_headers)
    while values < chunk.values and (page := next(pages, None)) is not None:
        _check_size(chunk, page)
        if page.kind == DICTIONARY:
            if page.values * _WIDTHS.get(chunk.kind, 1) > page.unfolded:
                raise ValueError(f"a dictionary of {page.values} values in {page.unfolded} bytes")
            continue
        values += page.values
        if values > chunk.values:
            raise ValueError(f"pages of {values} values or more in a chunk of {chunk.values}")
        if page.values:
            unfolded = _unfolded(chunk, page)
            at, in_row = _check_levels(chunk, page, unfolded, in_row)
            _check_values(page, unfolded, at)


def _pages(data: bytes, believes_headers: bool) -> Iterator[Page]:
    """Yields the pages of a column chunk. Raises ValueError for headers that cannot be."""
    begin = 0
    while begin < len(data):
        header = [MISSING] * FIELDS
        header[COMPRESSED] = 1
        at = read_header(data, begin, header, 0, [0] * DEPTH)
        kind, unfolded, stored = header[KIND], header[UNFOLDED], header[STORED]
        if at < 0 or min(kind, unfolded, stored) < 0 or at + stored > len(data):
            raise ValueError(f"an invalid page header at {begin}, or {stored} bytes behind it")
        body, begin = data[at : at + stored], at + stored
        if kind not in (DATA, DICTIONARY, DATA_2):
            continue
        if not is_whole(header, 0):
            raise ValueError(f"a page of kind {kind} without its numbers, which ends at {begin}")
        levels, of_lists, is_packed = _BEFORE, _BEFORE, True
        if kind == DATA:
            encodings = header[LEVELS], header[REPETITION_LEVELS]
            levels, of_lists = (_NO_LENGTH if x == _BIT_PACKED else _BEFORE for x in encodings)
        elif kind == DATA_2:
            levels, of_lists = header[LEVELS], header[REPETITION_LEVELS]
            is_packed = bool(header[COMPRESSED]) or not believes_headers
            if of_lists + levels > min(stored, unfolded):
                raise ValueError(f"levels of {of_lists} and {levels} bytes in a page of {stored}")
        numbers = header[VALUES], header[ENCODING], unfolded
        yield Page(kind, *numbers, body, of_lists, levels, is_packed)


def _check_size(chunk: Chunk, page: Page) -> None:
    stored = len(page.body)
    packed = chunk.codec != 0 and page.compressed
    if not packed and page.unfolded != stored:
        raise ValueError(f"an uncompressed page of {stored} bytes that claims {page.unfolded}")
    if page.unfolded > max(MOST_UNFOLDED, RATIO * stored):
        raise ValueError(f"a page of {stored} bytes that claims {page.unfolded} uncompressed")


def _unfolded(chunk: Chunk, page: Page) -> bytes:
    """The bytes of a data page: its levels, if it has any, then its values."""
    levels = max(0, page.repetition_bytes) + max(0, page.definition_bytes)
    if chunk.codec == 0 or not page.compressed or page.unfolded == levels:
        return page.body
    packed = memoryview(page.body)[levels:]
    return page.body[:levels] + _decompressed(packed, page.unfolded - levels, chunk.codec)


def _decompressed(packed: memoryview, size: int, codec: int) -> bytes:
    if codec == _HADOOP_LZ4:
        with suppress(ValueError, OSError):
            return b"".join(_hadoop_blocks(packed, size))
        codec = _RAW_LZ4  # what Arrow wrote under this codec before it knew of Hadoop's blocks
    name = _CODECS.get(codec)
    if name is None:
        raise ValueError(f"codec {codec}")
    return bytes(pa.decompress(packed, size, name))


def _hadoop_blocks(packed: memoryview, size: int) -> Iterator[bytes]:
    """The blocks of a page in Hadoop's framing of LZ4: before each stand its two sizes, unfolded
    and as stored. ValueError where it is another."""
    while packed:
        unfolded, stored = (int.from_bytes(packed[at : at + 4], "big") for at in (0, 4))
        if stored > len(packed) - 8 or unfolded > size:
            raise ValueError("no block of Hadoop's")
        yield bytes(pa.decompress(packed[8 : 8 + stored], unfolded, "lz4_raw"))
        packed, size = packed[8 + stored :], size - unfolded


def _check_levels(chunk: Chunk, page: Page, data: bytes, in_row: int) -> tuple[int, int]:
    """Where the values begin, and how many elements the last row has until now."""
    at = 0
    if chunk.most_repetition:
        width = chunk.most_repetition.bit_length()
        low, at = _levels_at(data, at, page.repetition_bytes, width * page.values)
        runs = _rows(data[low:at], width, page.values)
        # Levels without a length take their bits each: there are no long runs.
        for count, starts in runs if page.repetition_bytes != _NO_LENGTH else ():
            in_row = count if starts else in_row + count
            if in_row > MOST_IN_A_ROW:
                raise ValueError(
                    f"a list of {in_row} elements or more in {chunk.end - chunk.start} bytes"
                )
    if chunk.most_definition:
        width = chunk.most_definition.bit_length()
        _, at = _levels_at(data, at, page.definition_bytes, width * page.values)
    return at, in_row


def _levels_at(data: bytes, at: int, length: int, bits: int) -> tuple[int, int]:
    """Where levels begin and end. bits: those of a level, for all values."""
    if length == _NO_LENGTH:
        length = (bits + 7) // 8
    elif length == _BEFORE:
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4
    if at + length > len(data):
        raise ValueError(f"levels of {length} bytes in a page of {len(data)}")
    return at, at + length


def _rows(data: bytes, width: int, values: int) -> Iterator[tuple[int, bool]]:
    """Repetition levels in runs: how many elements follow, and whether with them a row starts; of
    several rows in a run, the longest and the last.

    Levels are runs of one value, or groups of eight values of ``width`` bits each.
    """
    at, done, size = 0, 0, (width + 7) // 8
    while done < values and at < len(data):
        head, at = read_unsigned(data, at, _LEVEL_BITS)
        if not head & 1:
            count = min(head >> 1, values - done)
            level = int.from_bytes(data[at : at + size], "little")
            at += size
            yield (count, False) if level else (1, True)
        else:
            stored = data[at : at + (head >> 1) * width]
            at += (head >> 1) * width
            count = min(len(stored) * 8 // width, values - done)
            bits = np.unpackbits(np.frombuffer(stored, np.uint8), bitorder="little")
            starts = np.flatnonzero(~bits[: count * width].reshape(count, width).any(axis=1))
            yield (int(starts[0]) if len(starts) else count), False
            if len(starts):
                yield int(np.diff(starts, append=count).max()), True
                yield int(count - starts[-1]), True
        done += count
        if not count:
            raise ValueError("an empty run of levels")


def _check_values(page: Page, data: bytes, at: int) -> None:
    """What the values themselves claim, where an encoding begins with numbers."""
    if page.encoding not in _DELTAS or at == len(data):
        return
    block, at = read_unsigned(data, at, _LEVEL_BITS)
    parts, at = read_unsigned(data, at, _LEVEL_BITS)
    count, at = read_unsigned(data, at, _LEVEL_BITS)
    if count > page.values or parts > 1 << 12 or block > 1 << 20:
        raise ValueError(f"{count} values in {parts} parts of blocks of {block}, of {page.values}")
