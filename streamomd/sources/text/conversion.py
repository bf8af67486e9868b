"""Convert text to shards, in one stream and in bounded memory."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from streamomd.core.errors import DataError, UsageError
from streamomd.core.installed import find
from streamomd.core.wording import suggestion
from streamomd.features.lists import declared, encoded, stored_as_binary
from streamomd.sources.text.arrow_source import ArrowStreamReader
from streamomd.sources.text.csv_source import CsvReader
from streamomd.sources.text.jsonl_source import JsonlReader
from streamomd.sources.text.output_formats import (
    COMPRESSIONS,
    FORMS,
    OutputFormat,
    with_binary_lists,
    with_compression,
)
from streamomd.sources.text.shard_writer import ShardWriter, Target, opened_target, refuse_split
from streamomd.sources.text.shuffle_split import Split, TimeKeys, make_split, part_of, shuffled
from streamomd.sources.text.svmlight_source import SvmlightReader
from streamomd.sources.text.text_source import STANDARD_INPUT, TextReader
from streamomd.sources.text.vw_source import VwReader

READERS: dict[str, Callable[..., TextReader]] = {
    "arrows": ArrowStreamReader,
    "csv": CsvReader,
    "jsonl": JsonlReader,
    "svmlight": SvmlightReader,
    "vw": VwReader,
}
LISTS_AS = ("list", "binary")
SPARSE_FORMATS = ("svmlight", "vw")
ROWS_PER_SHARD = 1_000_000
REPORT_SECONDS = 0.5
Progress = Callable[[int, int, int], None]


class Readable(Protocol):
    """A text file, or a shard. size: bytes."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def opened(self, encoding: str) -> Any:
        """A context manager with its bytes or rows; ``done``: bytes that were read."""


@dataclass(frozen=True)
class Converted:
    """The result of a conversion."""

    shards: tuple[str, ...]
    """URLs, in order."""
    rows: int
    columns: tuple[str, ...]
    seconds: float
    size: int | None
    """Coordinates of the sparse pair; None where there is none."""
    almost_numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """csv: columns that became text though most values are numbers, and some of the others."""
    notes: tuple[str, ...] = ()
    """Choices that a user may want otherwise, such as the delimiter."""
    source_rows: tuple[int, ...] = ()
    """Rows of each source."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Rows of each part of a split, by its name."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where and how rows are written.

    to: a directory. form: "parquet" or "arrow" (`forms`). lists_as: "list", or "binary" for columns
    whose cells are the bytes of the lists, which Parquet readers decode faster; of "svmlight" and
    "vw", whose lists have no nulls. compression: of Parquet, "lz4" unless given; "zstd" (smaller,
    slower to read) or "none". rows_per_shard: 1,000,000 unless given; or shards: how many, which
    differ by a row at most (the sources are then read twice; so they are for "arrow" where the size
    is not known). shuffle: a seed; all rows are permuted by it, on disk, and the order depends on
    the seed and the number of rows alone. split: parts by name, each with its share of the rows;
    they are written to directories of these names in ``to``. A row's part is drawn by split_seed
    and its number in the sources; or by its value in the column split_by, so that rows of one value
    are in one part; or by its rank in the column split_time, the earliest rows in the first part
    (the sources are then read twice). overwrite: shards that are there are replaced. append: new
    shards are numbered on from them.
    """

    to: str
    form: str = "parquet"
    lists_as: str = "list"
    compression: str | None = None
    rows_per_shard: int | None = None
    shards: int | None = None
    shuffle: int | None = None
    split: Mapping[str, float] | None = None
    split_by: str = ""
    split_time: str = ""
    split_seed: int = 0
    overwrite: bool = False
    append: bool = False

    def __post_init__(self) -> None:
        if self.rows_per_shard is not None and self.shards is not None:
            raise UsageError("pass rows_per_shard or shards, not both")
        if self.overwrite and self.append:
            raise UsageError("pass overwrite or append, not both")
        for name, value in (("rows_per_shard", self.rows_per_shard), ("shards", self.shards)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.shuffle is not None and not 0 <= self.shuffle < 1 << 64:
            raise UsageError(f"shuffle must be a seed between 0 and 2^64 - 1, not {self.shuffle}")

    def output_format(self, source_format: str) -> OutputFormat:
        """The format of the files. Raises UsageError for what it cannot have."""
        written = find("form", self.form, FORMS)
        if _as_binary(self.lists_as, source_format):
            written = with_binary_lists(written)
        return written if self.compression is None else _compressed(written, self.compression)


def text_reader(
    source_format: str, options: Mapping[str, Any], own: Sequence[str] = ()
) -> Callable[[], TextReader]:
    """What makes the reader of a text format. own: names that are known in addition to its options.

    Raises UsageError for an unknown format or option.
    """
    reader = find("source_format", source_format, READERS)
    known = inspect.signature(reader).parameters
    for name in options:
        if name not in known:
            text = f"convert of {source_format} has no option {name!r}"
            raise UsageError(f"{text}; {suggestion(name, [*known, *own])}")
    return lambda: reader(**options)


def write_shards(
    located: Sequence[Readable],
    make: Callable[[], Any],
    source_format: str,
    layout: Layout,
    *,
    encoding: str = "",
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    known: pa.Schema | None = None,
) -> Converted:
    """Write the rows of sources, one after the other, as shards.

    make: a reader, once for each pass. encoding: of the text. storage_options: of the directory.
    progress: called with rows, bytes done and bytes in all. known: types of columns, if they are in
    the sources and the reader's options have no others; then there need be no rows.

    Shards appear when all are complete; after an error none do. The sparse pair's size is in the
    schema's metadata of every shard, as "streamomd.size".
    """
    began = time.perf_counter()
    written = layout.output_format(source_format)
    shards, to = layout.shards, layout.to
    as_binary = _as_binary(layout.lists_as, source_format)
    stream = _Stream(located, make, progress, encoding)
    if shards is not None or layout.split_time or written.add_size is None:
        _refuse_standard_input(located)
    parts = make_split(
        layout.split, by=layout.split_by, time=layout.split_time, seed=layout.split_seed
    )
    if parts and shards is not None:
        raise UsageError("shards is their number in one directory: with split pass rows_per_shard")
    places = [f"{to.rstrip('/')}/{name}" for name in parts.names] if parts else [to]
    if parts:
        refuse_split(to, storage_options)
    with ExitStack() as opened:
        if parts and not os.path.exists(to):
            opened.callback(_remove_if_empty, to)
        targets = [
            opened.enter_context(
                opened_target(
                    place, storage_options, overwrite=layout.overwrite, append=layout.append
                )
            )
            for place in places
        ]
        stream.may_be_empty = known is not None
        stream.known = targets[0].text_columns() if known is None else known
        twice = shards is not None or (written.add_size is None and not stream.reader.size_is_final)
        batches, counted = _ordered(stream, twice, layout.shuffle, parts, targets[0].scratch)
        size = stream.reader.size if counted or stream.reader.size_is_final else 0
        cuts = _cuts(counted, shards, layout.rows_per_shard)
        written_rows, counts = _write(
            batches,
            stream,
            lambda target: ShardWriter(
                target, written, _schema(stream.reader.schema, as_binary), cuts, size
            ),
            targets,
            parts,
        )
        if counted not in (0, stream.rows):
            raise DataError(
                f"the sources changed while they were read: {counted} rows in the first pass"
            )
        stream.report(always=True)
        pairs = zip(targets, counts, strict=True)
        urls = tuple(url for target, count in pairs for url in target.publish(count, layout.form))
    names = tuple(stream.reader.schema.names)
    almost = stream.reader.almost_numbers if isinstance(stream.reader, CsvReader) else {}
    seconds = time.perf_counter() - began
    notes = tuple(getattr(stream.reader, "notes", ()))
    return Converted(
        urls,
        stream.rows,
        names,
        seconds,
        stream.reader.size,
        almost,
        notes,
        tuple(stream.source_rows),
        dict(zip(parts.names, written_rows, strict=True)) if parts else {},
    )


def _remove_if_empty(folder: str) -> None:
    with suppress(OSError):  # it has the parts, or is not on the local disk
        os.rmdir(folder)


def _as_binary(lists_as: str, source_format: str) -> bool:
    if lists_as not in LISTS_AS:
        raise UsageError(f"lists_as must be {' or '.join(LISTS_AS)}, not {lists_as!r}")
    if lists_as == "binary" and source_format not in SPARSE_FORMATS:
        raise UsageError(
            f"lists_as=binary is for {' and '.join(SPARSE_FORMATS)}: lists of {source_format} may "
            "contain nulls, which bytes cannot say"
        )
    return lists_as == "binary"


def _compressed(form: OutputFormat, compression: str) -> OutputFormat:
    find("compression", compression, COMPRESSIONS)
    if form.suffix != "parquet":
        raise UsageError("compression is for Parquet: Arrow files are read fastest without")
    return with_compression(form, compression)


def _schema(schema: pa.Schema, as_binary: bool) -> pa.Schema:
    return stored_as_binary(schema) if as_binary else schema


def _refuse_standard_input(located: Sequence[Readable]) -> None:
    if any(one.name == STANDARD_INPUT for one in located):
        raise UsageError(
            "standard input is read once: leave out shards, split_time and the form arrow, or "
            "save it to a file"
        )


class _Stream:
    """The rows of all sources, countable, with progress reports."""

    def __init__(
        self,
        sources: Sequence[Readable],
        make: Callable[[], Any],
        progress: Progress | None,
        encoding: str,
    ) -> None:
        self._sources, self._encoding = sources, encoding
        self._make, self._progress = make, progress
        self._reported = time.monotonic()
        self._bytes = sum(source.size for source in sources)
        self._passes = 1
        self._done = 0
        self.reader = self._make()
        self.rows = 0
        self.source_rows: list[int] = []
        self.known, self.may_be_empty = pa.schema([]), False

    def count(self, watch: Callable[[pa.RecordBatch], object] = lambda batch: None) -> int:
        """Rows, by reading all once; they will be read again. watch: gets them."""
        self._passes = 2
        for batch in self.batches(0):
            watch(batch)
        return self.rows

    def batches(self, done: int) -> Iterator[pa.RecordBatch]:
        """All rows in order, after ``done`` bytes; DataError if a text has none. Shards without
        rows have columns all the same."""
        self.reader, self.rows, self.source_rows = self._make(), 0, []
        self.reader.known = self.known
        for source in self._sources:
            before = self.rows
            with source.opened(self._encoding) as text:
                for batch in self.reader.batches(text):
                    self.rows += batch.num_rows
                    self._done = done + text.done
                    self.report()
                    yield batch
            done += source.size
            self.source_rows.append(self.rows - before)
        self._done = done
        if not (self.rows or self.may_be_empty or getattr(self.reader, "may_be_empty", False)):
            raise DataError(no_rows([source.name for source in self._sources]))

    def again(self) -> Iterator[pa.RecordBatch]:
        """All rows once more, after `count`."""
        return self.batches(self._bytes)

    def report(self, *, always: bool = False) -> None:
        """Call the progress, unless that was less than half a second ago."""
        now = time.monotonic()
        if self._progress is not None and (always or now - self._reported >= REPORT_SECONDS):
            self._reported = now
            self._progress(self.rows, self._done, self._passes * self._bytes)


def no_rows(names: Sequence[str]) -> str:
    """What is wrong with these files together."""
    return f"no rows in {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}"


def _ordered(
    stream: _Stream, twice: bool, shuffle: int | None, split: Split | None, scratch: str | None
) -> tuple[Iterator[pa.RecordBatch], int]:
    """The rows as they are to be written, and how many; 0: not known yet."""
    counted, limits = 0, None
    if split and split.time:
        with closing(TimeKeys(split, scratch)) as times:
            counted = stream.count(times.add)
            limits = times.limits()
    elif twice and shuffle is None:
        counted = stream.count()
    batches = stream.again() if counted else stream.batches(0)
    batches = split.assigned(batches, limits) if split else batches
    if shuffle is None:
        return batches, counted
    batches = shuffled(batches, shuffle, scratch)
    # The first shuffled row comes after the last one was read.
    first = list(itertools.islice(batches, 1))
    return itertools.chain(first, batches), counted or stream.rows


def _cuts(counted: int, shards: int | None, rows_per_shard: int | None) -> Callable[[int], int]:
    """Rows of a shard by its place."""
    if shards is None:
        return lambda place: rows_per_shard or ROWS_PER_SHARD
    if shards > counted:
        raise UsageError(f"{shards} shards are more than the {counted} rows")
    return lambda place: (place + 1) * counted // shards - place * counted // shards


def _begun(begin: Callable[[Target], ShardWriter], targets: Sequence[Target]) -> list[ShardWriter]:
    writers = [begin(target) for target in targets]
    for writer in writers:
        writer.target.refuse_other_columns(writer.schema)
    return writers


def _write(
    batches: Iterator[pa.RecordBatch],
    stream: _Stream,
    begin: Callable[[Target], ShardWriter],
    targets: Sequence[Target],
    split: Split | None,
) -> tuple[list[int], list[int]]:
    """Write all shards to the temporary folders; the rows and number of them in each. begin: called
    when the schema is known."""
    writers: list[ShardWriter] = []
    rows = [0] * len(targets)
    try:
        for batch in batches:
            writers = writers or _begun(begin, targets)
            for place, writer in enumerate(writers):
                own = part_of(batch, place) if split else batch
                writer.add(encoded(own, writer.schema) if declared(writer.schema) else own)
                rows[place] += own.num_rows
            stream.report()
        if split:
            split.refuse_empty(rows)
        writers = writers or _begun(begin, targets)  # shards without rows
        return rows, [writer.finish(stream.reader.size) for writer in writers]
    except BaseException:
        for writer in writers:
            writer.abandon()
        raise
