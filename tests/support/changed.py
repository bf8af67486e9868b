"""Shards of which one thing is changed: a row, a column, or bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from running import rows, with_column, write

Make = Callable[[Path], Any]
Table = pa.Table
COUNT = 30


def first(change: Callable[[Table], Table], **how: Any) -> Make:
    """The only shard, changed."""
    return lambda data: write(data / "a.parquet", change(rows(COUNT)), **how)


def later(change: Callable[[Table], Table]) -> Make:
    """A good shard, then a changed one."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        write(data / "b.parquet", change(rows(COUNT, first=1)))

    return make


def beside(name: str, content: bytes) -> Make:
    """A good shard, and a file of these bytes."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        (data / name).write_bytes(content)

    return make


def column(name: str, value: Any, kind: Any = None) -> Callable[[Table], Table]:
    """Every row has this value in a column."""
    return lambda table: with_column(table, name, pa.array([value] * len(table), kind))


def cell(name: str, value: Any, kind: Any = None, row: int = 7) -> Callable[[Table], Table]:
    """One row has this value in a column."""

    def change(table: Table) -> Table:
        values = table.column(name).to_pylist()
        values[row] = value
        return with_column(table, name, pa.array(values, kind or table.schema.field(name).type))

    return change


def pair(indices: Any, values: Any, kind: Any = None) -> Callable[[Table], Table]:
    """One row has these indices and values."""
    return lambda table: cell("v", values)(cell("i", indices, kind)(table))


def cast(name: str, kind: Any) -> Callable[[Table], Table]:
    return lambda table: with_column(table, name, table.column(name).combine_chunks().cast(kind))


def damaged(change: Callable[[bytes], bytes]) -> Make:
    """A good shard, then one with other bytes."""

    def make(data: Path) -> None:
        write(data / "a.parquet", rows(COUNT))
        path = write(data / "b.parquet", rows(COUNT, first=1), write_page_checksum=True)
        path.write_bytes(change(path.read_bytes()))

    return make
