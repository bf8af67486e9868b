"""Summarize or decode one partition, on a worker or in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamomd.core.batch import Batch
from streamomd.core.errors import DataError
from streamomd.distributed.decode import Arrays, batch_to_arrays
from streamomd.features import Names, Plan, check_schema, encode
from streamomd.sources.memory.frames import batches, distinct_in, table_of, without_null_types

UNIT_BYTES = 4 << 20
LABELS = 1000  # with more it is not a classification


@dataclass(frozen=True)
class PartitionSummary:
    """A partition's columns, number of rows, and distinct labels."""

    url: str
    schema: Any
    rows: int
    labels: list[Any]


@dataclass(frozen=True)
class DecodedRows:
    """Rows of a partition from a given row on: all remaining ones, or up to a limit.

    pieces: (first row, arrays). end: the row after the last. rows, nbytes: of the whole partition.
    """

    pieces: list[tuple[int, Arrays]]
    names: dict[int, tuple[str, ...]]
    end: int
    rows: int
    nbytes: int


def summarize(url: str, label: str, *parts: Any) -> PartitionSummary:
    """The summary that a feature plan is made from."""
    table = table_of(parts, url)
    return PartitionSummary(url, table.schema, table.num_rows, distinct_in(table, label, LABELS))


def encode_partition(
    plan: Plan,
    url: str,
    begin: int,
    parts: tuple[Any, ...],
    names: Names,
    unit_bytes: int = UNIT_BYTES,
) -> tuple[int, int, Iterator[tuple[int, Batch]]]:
    """A partition's rows and bytes, and (first row, batch) from row ``begin`` on.

    Raises SchemaError, BadRowError and DataError as a shard of these rows would.
    """
    families = {column.name: column.family for column in plan.types}
    table = without_null_types(table_of(parts, url), families)
    check_schema(plan, table.schema, url)
    if begin > table.num_rows:
        raise DataError(
            f"{url} had at least {begin} rows, and has {table.num_rows} now that it is computed "
            "again: its computation must be deterministic (set a seed?)"
        )
    table = table.select([*plan.columns])
    rows = batches(table, begin, unit_bytes)
    pieces = ((row, encode(plan, some, shard=url, row=row, names=names)) for row, some in rows)
    return table.num_rows, table.nbytes, pieces


def decode(url: str, plan: Plan, begin: int, limit: int, *parts: Any) -> DecodedRows:
    """Runs on a worker: a partition's rows from ``begin`` on, up to ``limit`` bytes."""
    names = Names()
    rows, nbytes, batches = encode_partition(plan, url, begin, parts, names, min(UNIT_BYTES, limit))
    pieces, taken, end = [], 0, rows
    for row, batch in batches:
        pieces.append((row, batch_to_arrays(batch)))
        taken, end = taken + batch.nbytes, row + batch.passed
        if taken >= limit:
            break
    return DecodedRows(pieces, names.seen(), end, rows, max(nbytes, taken))
