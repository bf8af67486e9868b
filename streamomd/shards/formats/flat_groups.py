"""Row groups of flat columns, decoded from their pages without pyarrow's readers.

A row group's dictionary of texts is copied once and its slices share it: pyarrow inserts each value
into a hash table, and copies the dictionary for every slice. pyarrow reads whatever is not read
here (lists, other types, encodings and codecs, invalid pages), and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.buffers import empty
from streamomd.features.kernels.lz4_blocks import unfolder
from streamomd.features.kernels.page_headers import DATA
from streamomd.features.kernels.page_values import (
    MOST_WIDTH,
    SECTION,
    cell_copier,
    code_reader,
    is_cell_copier_at_hand,
    is_code_reader_at_hand,
    level_reader,
    page_finder,
    value_spreader,
    value_taker,
    values_by_pyarrow,
)
from streamomd.shards.formats.column_pages import CODECS, ColumnPages, Page
from streamomd.shards.formats.contract import NotFlatError, ReadRequest, cut

MOST_ROWS, MOST_BORDERS, LINE = 1 << 17, 64, 64
LONGEST = 64
"""Bytes of a plain text, on average: of longer ones nearly all time is copying, as in pyarrow."""
_STORED = {
    "INT32": ("int32", ("int8", "int16", "int32", "uint8", "uint16", "uint32", "date32[day]")),
    "INT64": ("int64", ("int64", "uint64")),
    "FLOAT": ("float32", ("float",)),
    "DOUBLE": ("float64", ("double",)),
}
"""The dtype of values in a page, by Parquet's physical type, and the types of Arrow read of it."""
_CODED = pa.dictionary(pa.int32(), pa.string())
_ALL = np.empty(0, np.uint8)
_MOST_CELLS = (1 << 31) - 1
"""Bytes of a binary column."""

Take = Callable[[int, int], Any]
"""``take(offset, length)``: the bytes of a column chunk; None if the reader found none there."""


@dataclass(frozen=True)
class FlatColumn:
    """A column with one value a row. physical: Parquet's type. stored: the dtype of its values in a
    page; empty: texts, or cells of bytes. is_coded: texts may stay a dictionary. is_list: its cells
    are lists of numbers."""

    name: str
    leaf: int
    nullable: bool
    kind: pa.DataType
    physical: str
    stored: str
    is_coded: bool
    is_list: bool


def flat_columns(
    schema: Any,
    types: pa.Schema,
    leaves: Sequence[int],
    texts: Sequence[str],
    lists: Collection[str] = (),
) -> list[FlatColumn]:
    """The columns of a file, if all of the leaves are read here; none otherwise, and where no text
    may stay a dictionary and no cell is a list: of numbers alone pyarrow is as fast.

    schema: pyarrow's ParquetSchema. texts: columns that may stay dictionaries. lists: binary ones
    whose cells are lists of numbers.
    """
    flat = []
    for leaf in leaves:
        column = schema.column(leaf)
        name, levels = column.path, column.max_definition_level
        if column.max_repetition_level or levels > 1 or types.names.count(name) != 1:
            return []
        kind = types.field(name).type
        others = ("binary",) if name in lists else ("string",)
        stored, kinds = _STORED.get(column.physical_type, ("", others))
        if str(kind) not in kinds or (not stored and column.physical_type != "BYTE_ARRAY"):
            return []
        how = kind, column.physical_type, stored, name in texts, not stored and name in lists
        flat.append(FlatColumn(name, leaf, levels == 1, *how))
    return flat if any(column.is_coded or column.is_list for column in flat) else []


def load_kernels() -> None:
    """Compile what decodes pages, or load it from the disk cache."""
    for load in (page_finder, unfolder, code_reader, level_reader, cell_copier):
        load()
    for stored in ("int32", "int64"):
        value_taker(stored)
        value_spreader(stored)


def is_worth_compiling(values: int, *, lists: bool = False) -> bool:
    """Whether to decode a group of this many values here: what decodes them is compiled already, or
    the process has decoded enough values, or compiles for later ones. lists: some column's cells
    are lists."""
    at_hand = is_cell_copier_at_hand if lists else is_code_reader_at_hand
    return values_by_pyarrow().is_exceeded(values) or at_hand()


class FlatGroup:
    """One row group; ``take`` gives its bytes. Raises NotFlatError where pyarrow reads it.

    believes_headers: see ``ColumnPages``.
    """

    def __init__(
        self,
        columns: Sequence[FlatColumn],
        group: Any,
        take: Take,
        wanted: ReadRequest,
        believes_headers: bool,
    ) -> None:
        self._columns = [_Column(column, group, take, believes_headers) for column in columns]
        self._names, self._limit = [column.name for column in columns], wanted.unit_bytes
        self._wanted = list(wanted.columns)
        borders = {row for column in self._columns for row in column.borders}
        self._borders = [*sorted(borders), group.num_rows]
        if len(borders) > MOST_BORDERS:
            raise NotFlatError

    def slices(self) -> Iterator[pa.RecordBatch]:
        """The rows, in slices of about ``unit_bytes``; in a slice each column has one type."""
        width = sum(column.width for column in self._columns)
        most = max(1, min(MOST_ROWS, int(self._limit / width)))
        room, low = _Room.of(most), 0
        for border in self._borders:
            while low < border:
                rows = min(most, border - low)
                batch = self._slice(rows, room).select(self._wanted)
                low += rows
                yield from cut(batch, 4 * self._limit)
                del batch

    def _slice(self, rows: int, room: _Room) -> pa.RecordBatch:
        # One buffer for all columns, which is reused when the rows are encoded.
        steps = [-(-rows * column.itemsize // LINE) * LINE for column in self._columns]
        memory, begin, arrays = empty(sum(steps), np.uint8), 0, []
        for column, step in zip(self._columns, steps, strict=True):
            part = memory[begin : begin + rows * column.itemsize]
            arrays.append(column.read(rows, part, room))
            begin += step
        return pa.RecordBatch.from_arrays(arrays, names=self._names)


@dataclass(frozen=True)
class _Room:
    """Memory for what columns of a slice need one after another."""

    numbers: NDArray[np.uint32]
    valid: NDArray[np.uint8]
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, rows: int) -> _Room:
        """Allocates room for this many rows."""
        return cls(
            np.empty(rows + 1, np.uint32), np.empty(rows, np.uint8), np.empty(rows, np.int32)
        )


class _Column:
    """A column of a row group, and where its next row is.

    borders: rows from which on texts are stored another way, as codes or plainly. width: bytes of a
    row, about. itemsize: bytes that a row needs in the slice's memory.
    """

    def __init__(self, column: FlatColumn, group: Any, take: Take, believes_headers: bool) -> None:
        chunk = group.column(column.leaf)
        codec = CODECS.get(chunk.compression)
        as_declared = chunk.physical_type == column.physical
        if codec is None or not as_declared or chunk.num_values != group.num_rows:
            raise NotFlatError
        begin, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < begin:
            begin = dictionary
        data = take(begin, chunk.total_compressed_size)
        if data is None:
            raise NotFlatError
        self._column = column
        how = {"nullable": column.nullable, "believes_headers": believes_headers}
        self._pages = ColumnPages(data, codec, group.num_rows, **how)
        pages = self._pages.pages
        if not column.stored and not column.is_coded and any(page.is_coded for page in pages):
            raise NotFlatError
        self._values, self._size = self._read_dictionary()
        self.borders = set() if column.stored else _borders(pages)
        self.itemsize = 0 if column.is_list else np.dtype(column.stored or np.int32).itemsize
        plain = sum(page.unfolded for page in pages if not page.is_coded)
        self.width = max(self.itemsize, 1, plain / max(1, group.num_rows))
        if not (column.stored or column.is_list) and self.width > LONGEST:
            raise NotFlatError
        self._next, self._left, self._at = 0, 0, 0
        self._data = _ALL

    def _read_dictionary(self) -> tuple[Any, int]:
        page = self._pages.dictionary
        if page is None:
            return None, 0
        data, stored = self._pages.body(page), self._column.stored
        if not stored:
            return _texts(data, 0, page.values, _ALL)[0], page.values
        size = page.values * np.dtype(stored).itemsize
        if size > len(data):
            raise NotFlatError
        return np.frombuffer(data[:size].tobytes(), _bits(stored)), page.values

    def read(self, rows: int, memory: NDArray[np.uint8], room: _Room) -> pa.Array:
        """The next rows."""
        if self._column.is_list:
            return self._read_cells(rows, room)
        stored, texts = self._column.stored, []
        values = memory.view(_bits(stored)) if stored else memory.view(np.int32)
        codes = room.codes if stored else values
        done = nulls = 0
        while done < rows:
            if not self._left:
                self._turn_page()
            low, done = done, done + min(self._left, rows - done)
            self._left -= done - low
            valid, out = room.valid[low:done], values[low:done]
            if self._page.is_coded:
                present = self._read_codes(codes[low:done], room, valid)
                if stored:
                    value_taker(out.dtype.name)(codes[low:done], self._values, out)
            else:
                present = self._read_levels(done - low, room, valid)
                if stored:
                    self._read_plain(present, valid, out)
                else:
                    some = valid if present < done - low else _ALL
                    text, self._at = _texts(self._data, self._at, done - low, some)
                    texts.append(text)
            if present < done - low and not nulls:
                room.valid[:low] = 1
            elif present == done - low and nulls:
                valid[:] = 1
            nulls += done - low - present
        if texts:
            return texts[0] if len(texts) == 1 else pa.concat_arrays(texts)
        bitmap = _bitmap(room.valid[:rows]) if nulls else None
        if stored:
            return _numbers(self._column, values, bitmap, nulls)
        given = [bitmap, pa.py_buffer(values)]
        return pa.DictionaryArray.from_buffers(_CODED, rows, given, self._values, nulls)

    def _read_cells(self, rows: int, room: _Room) -> pa.Array:
        """The next rows of bytes, those of several pages one after another in one buffer."""
        offsets, cells = empty(rows + 1, np.int32), empty(self._most_bytes(rows), np.uint8)
        offsets[0] = done = nulls = 0
        while done < rows:
            if not self._left:
                self._turn_page()
            low, done = done, done + min(self._left, rows - done)
            self._left -= done - low
            valid = room.valid[low:done]
            present = self._read_levels(done - low, room, valid)
            some = valid if present < done - low else _ALL
            at = cell_copier()(self._data, self._at, some, offsets[low : done + 1], cells)
            self._at = _checked(at)
            if not len(some):
                valid[:] = 1
            nulls += done - low - present
        bitmap = _bitmap(room.valid[:rows]) if nulls else None
        given = [bitmap, pa.py_buffer(offsets), pa.py_buffer(cells[: offsets[-1]])]
        return pa.Array.from_buffers(self._column.kind, rows, given, nulls)

    def _most_bytes(self, rows: int) -> int:
        """The most bytes that the next rows can have, by the sizes of their pages."""
        most, left = len(self._data) - self._at, self._left
        for page in self._pages.pages[self._next :]:
            if left >= rows:
                break
            most, left = most + page.unfolded, left + page.values
        if most > _MOST_CELLS:
            raise NotFlatError
        return most

    def _read_codes(self, out: Any, room: _Room, valid: Any) -> int:
        given = self._data, self._state, int(self._column.nullable), self._size
        return _checked(code_reader()(*given, room.numbers, valid, out))

    def _read_levels(self, rows: int, room: _Room, valid: Any) -> int:
        if not self._column.nullable:
            return rows
        return _checked(level_reader()(self._data, self._state, rows, room.numbers, valid))

    def _read_plain(self, found: int, valid: Any, out: Any) -> None:
        """The next numbers as they are, ``found`` of them."""
        end = self._at + found * out.itemsize
        if end > len(self._data):
            raise NotFlatError
        values = out if found == len(out) else np.empty(found, out.dtype)
        values.view(np.uint8)[:] = self._data[self._at : end]  # which may not be aligned
        self._at = end
        if found < len(out):
            value_spreader(out.dtype.name)(valid, values, out)

    def _turn_page(self) -> None:
        """Begin the next page: of its two sections, levels and values."""
        page = self._page = self._pages.pages[self._next]
        self._next += 1
        self._data, self._left = self._pages.body(page), page.values
        begin, end = self._levels(page)
        codes = end, 0, 0
        if page.is_coded:
            if end >= len(self._data) or self._data[end] > MOST_WIDTH:
                raise NotFlatError
            codes = end + 1, len(self._data), int(self._data[end])
        self._at, new = end, (0,) * (SECTION - 3)
        self._state = np.array([begin, end, 1, *new, *codes, *new])

    def _levels(self, page: Page) -> tuple[int, int]:
        """Where a page's definition levels begin and end."""
        if not self._column.nullable or page.kind != DATA:
            return 0, page.level_bytes
        length = int.from_bytes(self._data[:4].tobytes(), "little")
        if 4 + length > len(self._data):
            raise NotFlatError
        return 4, 4 + length


def _checked(found: int) -> int:
    if found < 0:
        raise NotFlatError
    return found


def _bits(stored: str) -> str:
    """Whole numbers of the same bits: compiled code copies values of two types."""
    return "int32" if np.dtype(stored).itemsize == 4 else "int64"


def _bitmap(valid: NDArray[np.uint8]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _numbers(
    column: FlatColumn, values: NDArray[Any], bitmap: pa.Buffer | None, nulls: int
) -> pa.Array:
    kind = pa.int32() if pa.types.is_date32(column.kind) else column.kind
    # A narrow type is stored as int32.
    values = values.view(column.stored).astype(kind.to_pandas_dtype(), copy=False)
    return pa.Array.from_buffers(column.kind, len(values), [bitmap, pa.py_buffer(values)], nulls)


def _texts(
    data: NDArray[np.uint8], at: int, count: int, valid: NDArray[np.uint8]
) -> tuple[pa.Array, int]:
    """The next texts of a page, and where they end. valid: which rows have one; empty: all."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    room = len(data) - at - 4 * (count - nulls)
    if room < 0:
        raise NotFlatError
    offsets, texts = np.empty(count + 1, np.int32), np.empty(room, np.uint8)
    offsets[0] = 0
    end = _checked(cell_copier()(data, at, valid, offsets, texts))
    written = pa.py_buffer(offsets), pa.py_buffer(texts[: int(offsets[-1])])
    given = [_bitmap(valid) if len(valid) else None, *written]
    return pa.Array.from_buffers(pa.string(), count, given, nulls), end


def _borders(pages: Sequence[Page]) -> set[int]:
    """Rows from which on pages are of another kind."""
    row, found = 0, set()
    for before, page in pairwise(pages):
        row += before.values
        if before.is_coded != page.is_coded:
            found.add(row)
    return found
