"""Convert text to shards, or shards to others, in one stream and in bounded memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import pyarrow as pa

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import shown
from streamomd.shards.directory_columns import infer_partitions, with_partitions
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find
from streamomd.sources.text.arrow_source import plain, plain_schema
from streamomd.sources.text.conversion import (
    Converted,
    Layout,
    Progress,
    Readable,
    text_reader,
    write_shards,
)
from streamomd.sources.text.output_formats import SIZE_KEY
from streamomd.sources.text.text_source import locate

SHARDS = "shards"
LAYOUT = tuple(one.name for one in fields(Layout))


@dataclass(eq=False)
class ShardSource:
    """One shard of a set, read as a text is. done: bytes of it that were read."""

    shards: ShardSet
    place: int
    done: int = 0

    @property
    def name(self) -> str:
        """Its name in messages."""
        return shown(self.shards.shards[self.place].url)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.shards.shards[self.place].size

    def opened(self, encoding: str) -> Self:
        """See ``Readable``."""
        return self

    def __enter__(self) -> Self:
        self.done = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.done = self.size


def convert(
    sources: Sequence[str],
    *,
    source_format: str,
    encoding: str = "",
    storage_options: Mapping[str, Any] | None = None,
    to_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Converted:
    """Write the rows of text files, one after the other, as shards into a directory, ``to``.

    sources: files or URLs, each plain, gzip, bzip2 or xz, whatever its name; "-": standard input.
    source_format: "csv", "jsonl", "svmlight", "vw", "arrows" (Arrow IPC streams) or "shards" (what
    ``train`` reads: Parquet and Arrow files, directories, globs, tables). encoding: of the text, a
    name of Python's; UTF-8 by default, and UTF-16 with a byte order mark. storage_options: of the
    sources, and of ``to`` unless it has its own. progress: called with rows, bytes done and bytes
    in all. options: fields of `Layout`, of which ``to`` is required, and those of `CsvReader`,
    `JsonlReader`, `SvmlightReader` or `VwReader`.

    Shards appear when all are complete; after an error none do. The sparse pair's size is in the
    schema's metadata of every shard, as "streamomd.size".

    Raises `DataError` for text that cannot be read (file, line and value are named), `UsageError`,
    `InputNotFoundError`, `OutputExistsError` if there are shards already, `StorageError`.
    """
    layout = Layout(**{name: options.pop(name) for name in LAYOUT if name in options})
    layout.output_format(source_format)
    make: Callable[[], Any]
    located: Sequence[Readable]
    if source_format == SHARDS:
        if given := sorted(name for name, one in {**options, "encoding": encoding}.items() if one):
            raise UsageError(
                f"options of text have no effect on shards; leave out {', '.join(given)}"
            )
        located = shards = _locate_shards(sources, storage_options)
        make = partial(ShardReader, shards)
    else:
        own = [name for name in inspect.signature(convert).parameters if name != "options"]
        make = text_reader(source_format, options, [*own, *LAYOUT])
        located = locate(sources, storage_options)
    return write_shards(
        located,
        make,
        source_format,
        layout,
        encoding=encoding,
        storage_options=storage_options if to_storage_options is None else to_storage_options,
        progress=progress,
    )


def _locate_shards(
    names: str | Sequence[str], options: Mapping[str, Any] | None
) -> tuple[ShardSource, ...]:
    """The shards that ``train`` would read, with the columns of directories. Raises as ``find``."""
    found = find(names, order="given", storage_options=options)
    # Their values are in no file: shards that are written elsewhere need them as columns.
    found = with_partitions(found, infer_partitions(found, "hive"))
    return tuple(ShardSource(found, place) for place in range(len(found)))


class ShardReader:
    """The columns of shards, which all have the same ones. size: of their sparse pair."""

    size_is_final = True
    may_be_empty = True

    def __init__(self, sources: Sequence[ShardSource]) -> None:
        metadata = [one.shards.shards[one.place].stored_schema.metadata or {} for one in sources]
        sizes = [int(one.get(SIZE_KEY.encode(), b"0")) for one in metadata]
        # Shards of several conversions may have different sizes: the largest holds for all.
        self.size: int | None = max(sizes, default=0) or None
        self.schema: pa.Schema = pa.schema([])
        self.notes: list[str] = []

    def batches(self, source: ShardSource) -> Iterator[pa.RecordBatch]:
        """The rows of one shard. Raises DataError for other columns than those of the first."""
        found = plain_schema(source.shards.shards[source.place].schema, source.name)
        if self.schema.names and not found.equals(self.schema):
            raise DataError(
                f"{source.name} has other columns or types than the first shard: convert shards "
                f"of the same columns; it has {found.names}, the first {self.schema.names}"
            )
        self.schema = found
        for one in read_batches(source.shards, places=[source.place], columns=found.names):
            yield plain(one.batch, found)
