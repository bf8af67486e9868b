"""The pages of a column chunk that is in memory: found, verified and decompressed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.kernels.lz4_blocks import unfolder
from streamomd.features.kernels.page_headers import (
    DATA,
    DATA_2,
    DEPTH,
    DICTIONARY,
    FIELDS,
    MISSING,
    NO_ROOM,
)
from streamomd.features.kernels.page_values import page_finder
from streamomd.shards.formats.contract import NotFlatError
from streamomd.shards.formats.parquet_footer import read_unsigned
from streamomd.shards.formats.parquet_pages import MOST_UNFOLDED, RATIO

try:  # by carry-less multiplication: 20 GB/s; zlib 2.4
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

CODECS = {"UNCOMPRESSED": "", "SNAPPY": "snappy", "ZSTD": "zstd", "LZ4": "lz4_raw"}
"""By pyarrow's name in a footer; each says how many bytes a page unfolds to."""
MOST_PAGES = 1 << 15
_ZSTD, _UNKNOWN = 0xFD2FB528, -1
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8


class Page(NamedTuple):
    """The numbers of a page's header, in the order of ``page_headers``."""

    kind: int
    unfolded: int
    stored: int
    crc: int
    values: int
    encoding: int
    levels: int
    repetition: int
    nulls: int
    rows: int
    compressed: int
    begin: int

    @property
    def is_coded(self) -> bool:
        """Whether values are codes of a dictionary."""
        return self.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY)

    @property
    def level_bytes(self) -> int:
        """Bytes of levels before what is compressed."""
        return self.levels if self.kind == DATA_2 else 0


class ColumnPages:
    """The pages of a chunk of a column with one value a row, which may be null.

    data: the chunk's bytes. codec: of ``CODECS``. believes_headers: which say what is compressed;
    of other files pyarrow knows it. Raises NotFlatError where pyarrow reads them.
    """

    def __init__(
        self, data: Any, codec: str, rows: int, *, nullable: bool, believes_headers: bool
    ) -> None:
        self._data, self._codec = memoryview(data), codec
        self._bytes = np.frombuffer(self._data, np.uint8)
        self._room = self._bytes[:0]
        pages = self._found(rows)
        has_dictionary = bool(pages) and pages[0].kind == DICTIONARY
        self.dictionary = pages.pop(0) if has_dictionary else None
        self.pages = pages
        for page in pages:
            _check(page, nullable, has_dictionary)
            if codec and not (page.compressed or believes_headers):
                raise NotFlatError
        if self.dictionary and self.dictionary.encoding not in (_PLAIN, _PLAIN_DICTIONARY):
            raise NotFlatError

    def _found(self, rows: int) -> list[Page]:
        room, count = 32, NO_ROOM
        while count == NO_ROOM and room < MOST_PAGES:
            room *= 8
            table = np.empty(room * FIELDS, np.int64)
            count = page_finder()(self._bytes, rows, np.zeros(DEPTH, np.int64), table)
        if count < 0:
            raise NotFlatError
        return [Page(*numbers) for numbers in table.reshape(-1, FIELDS)[:count].tolist()]

    def body(self, page: Page) -> NDArray[np.uint8]:
        """The bytes of a page, decompressed; they are valid until the next page's are asked for."""
        stored = self._bytes[page.begin : page.begin + page.stored]
        if page.crc != MISSING and crc32(stored.data) != page.crc & 0xFFFFFFFF:
            raise NotFlatError
        levels = page.level_bytes
        if levels > min(page.stored, page.unfolded):
            raise NotFlatError
        if not self._codec or not page.compressed:
            if page.stored != page.unfolded:
                raise NotFlatError
            return stored
        values = self._decompressed(stored[levels:], page.unfolded - levels)
        return np.concatenate((stored[:levels], values)) if levels else values

    def _decompressed(self, stored: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
        if not size and not len(stored):
            return stored
        # A page must not claim what would fill the memory.
        if size > max(MOST_UNFOLDED, RATIO * len(stored)):
            raise NotFlatError
        if self._codec == "lz4_raw":
            if len(self._room) < size:
                self._room = np.empty(size, np.uint8)
            if unfolder()(stored, self._room[:size]) != size:
                raise NotFlatError
            return self._room[:size]
        # pyarrow does not say how much of its buffer a codec filled, but the page does.
        head = stored[:32].tobytes()
        if (zstd_size if self._codec == "zstd" else snappy_size)(head) != size:
            raise NotFlatError
        try:
            return np.frombuffer(pa.Codec(self._codec).decompress(stored, size), np.uint8)
        except (pa.ArrowException, OSError):
            raise NotFlatError from None


def _check(page: Page, nullable: bool, has_dictionary: bool) -> None:
    known = page.kind in (DATA, DATA_2) and page.values > 0
    known &= page.encoding == _PLAIN or (page.is_coded and has_dictionary)
    if page.kind == DATA_2:
        known &= page.rows == page.values and not page.repetition and page.nulls <= page.rows
        known &= nullable or not page.levels
    else:
        known &= not nullable or page.levels == _RLE
    if not known:
        raise NotFlatError


def zstd_size(data: Any) -> int:
    """The size in the header of a Zstandard frame, which its decoder compares; −1 if it has none.

    >>> zstd_size(bytes.fromhex("28b52ffd2005"))
    5
    """
    if len(data) < 5 or int.from_bytes(data[:4], "little") != _ZSTD:
        return _UNKNOWN
    how = data[4]
    single = (how >> 5) & 1
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[how & 3]
    length = (single, 2, 4, 8)[how >> 6]
    if not length or at + length > len(data):
        return _UNKNOWN
    return int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0)


def snappy_size(data: Any) -> int:
    """The size that begins a snappy block, which its decoder compares; −1 if it has none."""
    try:
        return read_unsigned(data, 0, 35)[0]
    except (IndexError, ValueError):
        return _UNKNOWN
