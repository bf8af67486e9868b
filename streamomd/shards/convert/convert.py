"""Convert text to shards, in one stream and in bounded memory."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError, UsageError
from streamomd.core.nearest import suggestion
from streamomd.core.registry import find
from streamomd.shards.convert.csv_source import CsvReader
from streamomd.shards.convert.jsonl_source import JsonlReader
from streamomd.shards.convert.output_formats import FORMS
from streamomd.shards.convert.shard_writer import ShardWriter, Target, opened_target
from streamomd.shards.convert.shuffle import shuffled
from streamomd.shards.convert.svmlight_source import SvmlightReader
from streamomd.shards.convert.text_source import Source, Text, TextReader, locate
from streamomd.shards.convert.vw_source import VwReader

READERS: dict[str, Callable[..., TextReader]] = {
    "csv": CsvReader,
    "jsonl": JsonlReader,
    "svmlight": SvmlightReader,
    "vw": VwReader,
}
ROWS_PER_SHARD = 1_000_000
REPORT_SECONDS = 0.5
Progress = Callable[[int, int, int], None]


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


def convert(
    sources: Sequence[str],
    *,
    source_format: str,
    to: str,
    form: str = "parquet",
    rows_per_shard: int | None = None,
    shards: int | None = None,
    shuffle: int | None = None,
    overwrite: bool = False,
    encoding: str = "",
    storage_options: Mapping[str, Any] | None = None,
    to_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Converted:
    """Write the rows of text files, one after the other, as shards into ``to``.

    sources: files or URLs, each plain, gzip, bzip2 or xz, whatever its name. source_format: "csv",
    "jsonl", "svmlight" or "vw"; ``options`` are those of `CsvReader`, `JsonlReader`,
    `SvmlightReader` or `VwReader`.
    form: "parquet" or "arrow" (`forms`). rows_per_shard: 1,000,000 unless given; or shards: how
    many, which differ by a row at most (the sources are then read twice; so they are for "arrow"
    where the size is not known). shuffle: a seed; all rows are permuted by it, on disk, and the
    order depends on the seed and the number of rows alone. encoding: of the text, a name of
    Python's; UTF-8 by default, and UTF-16 with a byte order mark. storage_options: of the sources,
    and of ``to`` unless it has its own. progress: called with rows, bytes done and bytes in all.

    Shards appear when all are complete; after an error none do. The sparse pair's size is in the
    schema's metadata of every shard, as "streamomd.size".

    Raises `DataError` for text that cannot be read (file, line and value are named), `UsageError`,
    `InputNotFoundError`, `OutputExistsError` if there are shards already, `StorageError`.
    """
    began = time.perf_counter()
    _check_counts(rows_per_shard, shards, shuffle)
    own_options = to_storage_options if to_storage_options is not None else storage_options
    make, written = _maker(source_format, options), find("form", form, FORMS)
    stream = _Stream(locate(sources, storage_options), make, progress, encoding)
    with opened_target(to, own_options, overwrite=overwrite) as target:
        twice = shards is not None or (written.add_size is None and not stream.reader.size_is_final)
        batches, counted = _ordered(stream, twice, shuffle, target)
        size = stream.reader.size if counted or stream.reader.size_is_final else 0
        cuts = _cuts(counted, shards, rows_per_shard)
        count = _write(
            batches, stream, lambda: ShardWriter(target, written, stream.reader.schema, cuts, size)
        )
        if counted not in (0, stream.rows):
            raise DataError(
                f"the sources changed while they were read: {counted} rows in the first pass"
            )
        stream.report(always=True)
        urls = target.publish(count, form)
    names = tuple(stream.reader.schema.names)
    almost = stream.reader.almost_numbers if isinstance(stream.reader, CsvReader) else {}
    seconds = time.perf_counter() - began
    notes = tuple(getattr(stream.reader, "notes", ()))
    return Converted(urls, stream.rows, names, seconds, stream.reader.size, almost, notes)


def _check_counts(rows_per_shard: int | None, shards: int | None, shuffle: int | None) -> None:
    if rows_per_shard is not None and shards is not None:
        raise UsageError("pass rows_per_shard or shards, not both")
    for name, value in (("rows_per_shard", rows_per_shard), ("shards", shards)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if shuffle is not None and not 0 <= shuffle < 1 << 64:
        raise UsageError(f"shuffle must be a seed between 0 and 2^64 - 1, not {shuffle}")


class _Stream:
    """The rows of all sources, countable, with progress reports."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        make: Callable[[], TextReader],
        progress: Progress | None,
        encoding: str,
    ) -> None:
        self._sources = sources
        self._encoding = encoding
        self._make = make
        self._progress = progress
        self._reported = time.monotonic()
        self._bytes = sum(source.size for source in sources)
        self._passes = 1
        self._done = 0
        self.reader = self._make()
        self.rows = 0

    def count(self) -> int:
        """Rows, by reading all once; they will be read again."""
        self._passes = 2
        for _ in self.batches(0):
            pass
        return self.rows

    def batches(self, done: int) -> Iterator[pa.RecordBatch]:
        """All rows in order, after ``done`` bytes; DataError if there is none."""
        self.reader, self.rows = self._make(), 0
        for source in self._sources:
            with Text(source, self._encoding) as text:
                for batch in self.reader.batches(text):
                    self.rows += batch.num_rows
                    self._done = done + text.done
                    self.report()
                    yield batch
            done += source.size
        self._done = done
        if not self.rows:
            raise DataError(f"no rows in {self._sources[0].name}{_others(len(self._sources) - 1)}")

    def again(self) -> Iterator[pa.RecordBatch]:
        """All rows once more, after `count`."""
        return self.batches(self._bytes)

    def report(self, *, always: bool = False) -> None:
        """Call the progress, unless that was less than half a second ago."""
        now = time.monotonic()
        if self._progress is not None and (always or now - self._reported >= REPORT_SECONDS):
            self._reported = now
            self._progress(self.rows, self._done, self._passes * self._bytes)


def _others(count: int) -> str:
    return f" and {count} other files" if count else ""


def _maker(source_format: str, options: Mapping[str, Any]) -> Callable[[], TextReader]:
    reader = find("source_format", source_format, READERS)
    known = inspect.signature(reader).parameters
    for name in options:
        if name not in known:
            own = [one for one in inspect.signature(convert).parameters if one != "options"]
            text = f"convert of {source_format} has no option {name!r}"
            raise UsageError(f"{text}; {suggestion(name, [*known, *own])}")
    return lambda: reader(**options)


def _ordered(
    stream: _Stream, twice: bool, shuffle: int | None, target: Target
) -> tuple[Iterator[pa.RecordBatch], int]:
    """The rows as they are to be written, and how many; 0: not known yet."""
    if shuffle is not None:
        batches = shuffled(stream.batches(0), shuffle, target.scratch)
        # The first shuffled row comes after the last one was read.
        first = list(itertools.islice(batches, 1))
        return itertools.chain(first, batches), stream.rows
    if twice:
        counted = stream.count()
        return stream.again(), counted
    return stream.batches(0), 0


def _cuts(counted: int, shards: int | None, rows_per_shard: int | None) -> Callable[[int], int]:
    """Rows of a shard by its place."""
    if shards is None:
        return lambda place: rows_per_shard or ROWS_PER_SHARD
    if shards > counted:
        raise UsageError(f"{shards} shards are more than the {counted} rows")
    return lambda place: (place + 1) * counted // shards - place * counted // shards


def _write(
    batches: Iterator[pa.RecordBatch], stream: _Stream, begin: Callable[[], ShardWriter]
) -> int:
    """Write all shards to the temporary folder; return their number. begin: called with the
    schema."""
    writer: ShardWriter | None = None
    try:
        for batch in batches:
            if writer is None:
                writer = begin()
            writer.add(batch)
            stream.report()
        assert writer is not None
        return writer.finish(stream.reader.size)
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
