"""Shards as a source of ``convert``: their rows are written again, in another order or layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from streamomd.core.errors import DataError
from streamomd.core.urls import shown
from streamomd.shards.directory_columns import infer_partitions, with_partitions
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find
from streamomd.sources.text.arrow_source import plain, plain_schema
from streamomd.sources.text.output_formats import SIZE_KEY

SHARDS = "shards"


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

    def __enter__(self) -> Self:
        self.done = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.done = self.size


def locate_shards(
    names: str | Sequence[str], options: Mapping[str, Any] | None
) -> tuple[ShardSource, ...]:
    """The shards that ``train`` would read, with the columns of directories. Raises as ``find``."""
    found = find(names, order="given", storage_options=options)
    found = with_partitions(found, infer_partitions(found, "hive"))
    return tuple(ShardSource(found, place) for place in range(len(found)))


class ShardReader:
    """The columns of shards, which all have the same ones. size: of their sparse pair."""

    size_is_final = True

    def __init__(self, sources: Sequence[ShardSource]) -> None:
        metadata = [one.shards.shards[one.place].stored_schema.metadata or {} for one in sources]
        sizes = [int(one.get(SIZE_KEY.encode(), b"0")) for one in metadata]
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
