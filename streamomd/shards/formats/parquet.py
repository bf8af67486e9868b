"""Parquet: a row group is decoded in slices, sized by the rows as they turn out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.features.arrow_types import selected
from streamomd.features.lists import declared
from streamomd.shards.chunks import ChunkFile, RecordingFile, not_loaded, read_into_of
from streamomd.shards.formats.contract import (
    Check,
    Format,
    Groups,
    NotFlatError,
    ReadAt,
    ReadRequest,
    cut,
    decoded_bytes,
)
from streamomd.shards.formats.parquet_footer import end_of_field, group_statistics, read_struct
from streamomd.shards.formats.parquet_pages import checker, is_always_compressed
from streamomd.shards.stored_object import ObjectFile

if TYPE_CHECKING:
    from streamomd.shards.formats.flat_groups import FlatColumn, FlatGroup

MAGIC = b"PAR1"
FIRST_ROWS = 128
GROWTH = 8
MOST_ROWS = 1 << 17
HEADER_BYTES = 16 << 10
FLAT_VALUES, FLAT_BYTES = 1 << 16, 8 << 20
"""Values and bytes of a row group above which its pages are decoded without pyarrow's readers: to
load compiled code takes as long as they take for fewer."""
LIST_BYTES = 1 << 20
"""The same bytes for lists stored as binary, for which pyarrow takes twice the time."""
TEXT_WIDTH = 16  # a guess, for the first rows alone
ELEMENT_BYTES = 4  # of lists stored as binary, for the most part
_PAGE_CRC = 4  # its field in a page's header
_COLUMNS = 2  # their field in a footer
_RECENT: deque[tuple[bytes, Any, pa.Schema]] = deque(maxlen=16)
"""Footers that were read: the bytes up to the end of the columns, metadata, schema."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


def describe(footer: bytes, read_at: ReadAt) -> tuple[pa.Schema, tuple[int, ...]]:
    """Schema and rows of each row group, from the footer alone."""
    reader = _without_data(footer)
    metadata = reader.metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != metadata.num_rows:
        raise ValueError(f"{metadata.num_rows} rows, but row groups of {groups[:10]}")
    return _schema(footer, reader), tuple(groups)


def _schema(footer: bytes, reader: Any) -> pa.Schema:
    """The schema of a footer: the same object for footers of the same columns and metadata.

    pyarrow takes a third of the time of a footer to make it.
    """
    metadata = reader.metadata.metadata
    for columns, known, schema in tuple(_RECENT):
        if footer.startswith(columns) and metadata == known:
            return schema
    schema = reader.schema_arrow
    if columns := footer[: _end_of_columns(footer)]:
        _RECENT.appendleft((columns, metadata, schema))
    return schema


def _end_of_columns(footer: bytes) -> int:
    """Where the description of the columns ends, which all writers put before the row groups; 0 if
    it cannot be found."""
    try:
        return end_of_field(footer, _COLUMNS)
    except (ValueError, IndexError):
        return 0


def checksummed(head: bytes) -> bool | None:
    """Whether the first page has a checksum: writers begin with it, right after the magic."""
    try:
        header, _ = read_struct(head, len(MAGIC))
    except (ValueError, IndexError):
        return None
    return _PAGE_CRC in header if header.keys() >= {1, 2, 3} else None


def _without_data(footer: bytes) -> Any:
    """A reader of a footer alone. A ``ParquetFile`` would take twice the time for its own index."""
    end = len(footer).to_bytes(4, "little") + MAGIC
    reader = pq.core.ParquetReader()
    source = pa.BufferReader(MAGIC + footer + end)
    reader.open(source, pre_buffer=False, arrow_extensions_enabled=False)
    return reader


def open_groups(
    file: Any, footer: bytes, read_at: ReadAt, wanted: ReadRequest, check: Check | None = None
) -> Groups:
    """Decodes one row group after another from an open file."""
    return _RowGroups(file, footer, read_at, wanted, check)


class _RowGroups:
    """See ``open_groups``."""

    def __init__(
        self, file: Any, footer: bytes, read_at: ReadAt, wanted: ReadRequest, check: Check | None
    ) -> None:
        self._file, self._wanted, self._check = file, wanted, check
        reader = _without_data(footer)
        self._metadata, schema = reader.metadata, _schema(footer, reader)
        self._texts = [name for name in wanted.dictionary if _is_string(schema, name)]
        self._lists = declared(schema).keys() & {*wanted.columns}
        self._leaves = _leaves(self._metadata, wanted.columns)
        self._first = _first_rows(self._metadata.schema, self._leaves, wanted.unit_bytes)
        self._size = int(file.seek(0, os.SEEK_END))
        steps = (wanted.buffer_bytes, wanted.held_bytes, getattr(file, "held", not_loaded))
        self._chunks = None if check is None else ChunkFile(self._size, read_into_of(file), *steps)
        given = (self._metadata, self._leaves, self._size, read_at)
        self._check_pages = checker(footer, *given)
        self._types = schema
        self._flat: list[FlatColumn] | None = None
        self._opened: dict[tuple[bool, int], pq.ParquetFile] = {}
        self._recording: tuple[RecordingFile, pq.ParquetFile] | None = None
        self._ranges: tuple[int, list[tuple[int, int]]] = (-1, [])

    def ranges(self, group: int) -> list[tuple[int, int]]:
        """The column chunks that are read of a row group: pyarrow reads all, then decodes."""
        if self._ranges[0] != group:
            if self._recording is None:
                recorder = RecordingFile(self._size)
                self._recording = recorder, _opened(recorder, self._metadata, self._texts, 0)
            found = sorted(_ranges(*self._recording, group, self._wanted.columns))
            self._ranges = group, found
        return self._ranges[1]

    def __call__(self, group: int) -> Iterator[pa.RecordBatch]:
        if self._chunks is not None and self._check is not None:
            self._check(group, self._chunks.load(self.ranges(group)))
        self._check_pages(group)
        flat = self._flat_group(group)
        kinds = (True, False) if self._texts else (False,)
        buffer_bytes = self._buffer_bytes(group)
        attempts = [partial(self._open, as_texts, buffer_bytes) for as_texts in kinds]
        threads = self._is_shared(group)
        return _slices(flat, attempts, group, self._leaves, self._first, self._wanted, threads)

    def _is_shared(self, group: int) -> bool:
        """Whether threads decode the columns of a group: one that is larger than what may wait
        would be decoded by one thread alone while the threads of later groups wait for room."""
        most = self._wanted.one_thread_bytes
        return most is not None and self._metadata.row_group(group).total_byte_size > most

    def _flat_group(self, group: int) -> FlatGroup | None:
        """The group, where its pages are decoded without pyarrow's readers."""
        chunks = self._chunks
        if not (self._texts or self._lists) or chunks is None or not chunks.is_held:
            return None
        # As many as the reader found: to ask pyarrow for a forged chunk would end the process.
        if len(self.ranges(group)) != len(self._leaves):
            return None
        facts = self._metadata.row_group(group)
        least = LIST_BYTES if self._lists else FLAT_BYTES
        if facts.num_rows * len(self._leaves) < FLAT_VALUES and facts.total_byte_size < least:
            return None
        from streamomd.shards.formats import flat_groups  # late: numba

        if self._flat is None:
            given = self._metadata.schema, self._types, self._leaves, self._texts, self._lists
            self._flat = flat_groups.flat_columns(*given)
        values = facts.num_rows * len(self._leaves)
        if self._lists:
            values += facts.total_byte_size // ELEMENT_BYTES
        lists = bool(self._lists)
        if not self._flat or not flat_groups.is_worth_compiling(values, lists=lists):
            return None
        known = {*self.ranges(group)}

        def take(*chunk: int) -> Any:
            return chunks.take(*chunk) if chunk in known else None

        with suppress(NotFlatError):
            believed = not is_always_compressed(self._metadata)
            return flat_groups.FlatGroup(self._flat, facts, take, self._wanted, believed)
        return None

    def release(self) -> None:
        """Refer to no bytes of the group that was read."""
        if self._chunks is not None:
            self._chunks.clear()

    def _buffer_bytes(self, group: int) -> int:
        # What is in memory is not copied; of what is read in blocks no more than page headers.
        if self._chunks is not None:
            return 0 if self._chunks.is_held else HEADER_BYTES
        if isinstance(self._file, ObjectFile) and self._file.is_held(self.ranges(group)):
            return 0
        return self._wanted.buffer_bytes

    def _open(self, as_texts: bool, buffer_bytes: int) -> pq.ParquetFile:
        key = as_texts, buffer_bytes
        if key not in self._opened:
            source = self._file if self._chunks is None else self._chunks
            dictionaries = self._texts if as_texts else []
            self._opened[key] = _opened(source, self._metadata, dictionaries, buffer_bytes)
        return self._opened[key]


def _opened(source: Any, metadata: Any, dictionaries: list[str], buffer_bytes: int) -> Any:
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=dictionaries,
        pre_buffer=False,
        buffer_size=buffer_bytes,
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
    )


def _ranges(
    recorder: RecordingFile, parquet: pq.ParquetFile, group: int, columns: tuple[str, ...]
) -> set[tuple[int, int]]:
    recorder.ranges.clear()
    rows = parquet.iter_batches(
        batch_size=1, row_groups=[group], columns=list(columns), use_threads=False
    )
    with suppress(pa.ArrowException, OSError):  # zeros are no pages
        next(rows, None)
    return recorder.ranges


def _is_string(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type if name in schema.names else pa.null()
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _leaves(metadata: Any, columns: tuple[str, ...]) -> list[int]:
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    inside = tuple(f"{name}." for name in columns)
    return [i for i, path in enumerate(paths) if path in columns or path.startswith(inside)]


def _first_rows(schema: Any, leaves: list[int], unit_bytes: int) -> int:
    """How many rows to begin a group with: one, where a row may be a list of any length."""
    columns = [schema.column(leaf) for leaf in leaves]
    if any(column.max_repetition_level for column in columns):
        return 1
    width = sum(_WIDTHS.get(column.physical_type, TEXT_WIDTH) for column in columns)
    return max(1, min(FIRST_ROWS, unit_bytes // max(1, width)))


def _slices(
    pages: FlatGroup | None,
    attempts: Sequence[Callable[[], pq.ParquetFile]],
    group: int,
    leaves: list[int],
    first: int,
    wanted: ReadRequest,
    threads: bool,
) -> Iterator[pa.RecordBatch]:
    """A group's rows, in slices; each attempt reads on where the one before cannot.

    The first decodes pages of flat columns without Arrow's readers. Of those, the first reads texts
    as dictionaries. Arrow cannot for texts stored by their lengths or common beginnings, as DuckDB
    and Java's second version store them, in Java's case from the
    middle of a group on.
    """
    given = 0
    if pages is not None:
        with suppress(NotFlatError):
            for batch in pages.slices():
                given += batch.num_rows
                yield batch
                del batch
            return
    for attempt in attempts:
        parquet, rows, declared, seen = attempt(), first, 0.0, 0
        fixed = _is_fixed(parquet.metadata.schema, leaves)
        batches = parquet.iter_batches(
            batch_size=rows, row_groups=[group], columns=list(wanted.columns), use_threads=threads
        )
        try:
            for batch in batches:
                # Not before the reader has been there: it raises at a forged column chunk, where
                # asking pyarrow for the chunk itself ends the process.
                declared = declared or _declared_width(parquet.metadata.row_group(group), leaves)
                # To ask each of 54 arrays takes a tenth of the time of decoding them.
                nbytes = int(declared * batch.num_rows) if fixed else decoded_bytes(batch.columns)
                # The reader asks for its batch size again at each batch, so one pass can adapt.
                rows = _next_rows(rows, max(declared, nbytes / max(1, batch.num_rows)), wanted)
                parquet.reader.set_batch_size(rows)
                before, seen = max(0, given - seen), seen + batch.num_rows
                if before < batch.num_rows:
                    flat = {*wanted.columns} <= {*batch.schema.names}
                    pick = pa.RecordBatch.select if flat else selected
                    chosen = pick(batch, wanted.columns).slice(before)
                    _check_codes(chosen.columns)
                    limit = 4 * wanted.unit_bytes
                    for part in [chosen] if nbytes <= limit else cut(chosen, limit):
                        given += part.num_rows
                        yield part
                    del chosen, part
                del batch
            return
        except OSError as error:
            if attempt is attempts[-1] or "Not yet implemented" not in str(error):
                raise


def _check_codes(columns: Sequence[pa.Array]) -> None:
    """Raise ArrowInvalid for a code that is not in its dictionary: pyarrow does not look."""
    for column in columns:
        if pa.types.is_dictionary(column.type) and column.null_count < len(column):
            codes = column.indices.fill_null(0) if column.null_count else column.indices
            numbers = codes.to_numpy()  # of any type of whole numbers, where the schema is Arrow's
            # As an unsigned number a negative code is above all others.
            if int(numbers.view(f"u{numbers.itemsize}").max()) >= len(column.dictionary):
                raise pa.ArrowInvalid("a code of a page is not in its dictionary")


def _next_rows(rows: int, width: float, wanted: ReadRequest) -> int:
    """Rows of the next slice, after one of ``rows`` rows; width: bytes of a row so far."""
    most = min(MOST_ROWS, int(wanted.unit_bytes / width))
    return max(1, min(max(FIRST_ROWS, rows * GROWTH), most))


def _is_fixed(schema: pa.Schema, leaves: list[int]) -> bool:
    """Whether each column has one number a row, so that the footer says how wide a row is."""
    columns = [schema.column(leaf) for leaf in leaves]
    numbers = (column.physical_type in _WIDTHS for column in columns)
    return all(numbers) and not any(column.max_repetition_level for column in columns)


def _declared_width(group: Any, leaves: list[int]) -> float:
    """Bytes a row by the footer: true of numbers, far too low of strings said once."""
    total: int = 0
    for chunk in map(group.column, leaves):
        width = _WIDTHS.get(chunk.physical_type)
        total += chunk.total_uncompressed_size if width is None else width * chunk.num_values
    return max(1.0, total / int(group.num_rows))


FORMAT = Format(
    name="parquet",
    magic=MAGIC,
    suffixes=(".parquet",),
    checksummed=checksummed,
    describe=describe,
    open_groups=open_groups,
    statistics=group_statistics,
)
