"""What a file format must fulfil for the reader: ``streamomd.testing.check_shards``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.errors import StreamomdError
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.open_shard import OpenShard
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find

Write = Callable[[str, pa.Table, int], None]
ROWS, GROUP = 100, 30
SLICES = (1, 200, 1 << 20)
"""Bytes requested of a slice: a row at a time, a few, all of a group."""
DAMAGES = 80
"""Places at which a byte of a file is changed, one at a time."""


def shard_problems(write: Write, suffix: str, folder: Path) -> Iterator[str]:
    """What is wrong, in words."""
    path = folder / f"rows{suffix}"
    table = example()
    write(str(path), table, GROUP)
    shards = find(str(path))
    yield from _footer(shards, table)
    for columns in (["id"], ["word", "list", "id"], table.column_names):
        for unit_bytes in SLICES:
            yield from _groups(shards, table, columns, unit_bytes)
    yield from _empty(write, suffix, folder, table)
    yield from _damaged(path, table)


def example() -> pa.Table:
    """Numbers, lists of different lengths, strings that repeat, and nulls."""
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "number": pa.array([i / 7 if i % 5 else None for i in ids], pa.float64()),
            "list": pa.array([[i] * (i % 4) for i in ids], pa.list_(pa.int32())),
            "word": pa.array([f"w{i % 3}" for i in ids], pa.string()),
        }
    )


def _footer(shards: ShardSet, table: pa.Table) -> Iterator[str]:
    if len(shards) != 1:
        yield f"find names {len(shards)} shards for one file"
        return
    shard, groups = shards.shards[0], (GROUP, GROUP, GROUP, ROWS - 3 * GROUP)
    if shard.rows != ROWS or shard.groups != groups:
        yield f"the footer says {shard.rows} rows in groups of {shard.groups}, not {groups}"
    if shard.schema.names != table.column_names:
        yield f"the schema has columns {shard.schema.names}, not {table.column_names}"


def _groups(
    shards: ShardSet, table: pa.Table, columns: Sequence[str], unit_bytes: int
) -> Iterator[str]:
    """Each group alone, the last first: its rows, in slices, of the columns in their order."""
    where = f"columns {list(columns)}, slices of {unit_bytes} bytes"
    for group in (3, 0, 2, 1):
        first = group * GROUP
        found = pa.Table.from_batches(read(shards, columns, unit_bytes, [group]))
        expected = table.select(columns).slice(first, GROUP)
        if found.column_names != list(columns):
            yield f"{where}: read as {found.column_names}"
        elif found.num_rows != expected.num_rows:
            yield f"{where}: group {group} has {found.num_rows} rows, not {expected.num_rows}"
        elif found.to_pydict() != expected.to_pydict():
            at = next(i for i, (a, b) in enumerate(_pairs(found, expected)) if a != b)
            yield f"{where}: row {first + at} (group {group}) is not the row that was written"


def _pairs(found: pa.Table, expected: pa.Table) -> Iterator[tuple[Any, Any]]:
    return zip(found.to_pylist(), expected.to_pylist(), strict=True)


def read(
    shards: ShardSet, columns: Sequence[str], unit_bytes: int, groups: Sequence[int]
) -> list[pa.RecordBatch]:
    """The slices of some groups of the first shard."""
    wanted = ReadRequest(tuple(columns), (), unit_bytes, 1 << 20)
    shard = OpenShard(shards.fs, shards.shards[0], wanted)
    try:
        return [batch for group in groups for batch in shard.read(group)]
    finally:
        shard.close()


def _empty(write: Write, suffix: str, folder: Path, table: pa.Table) -> Iterator[str]:
    path = folder / f"empty{suffix}"
    write(str(path), table.slice(0, 0), GROUP)
    if find(str(path)).shards[0].rows:
        yield "a file of no rows is said to have some"


def _damaged(path: Path, table: pa.Table) -> Iterator[str]:
    """A file that is cut, or of which one byte is another: refused, or as many rows as before."""
    whole = path.read_bytes()
    checksums = find(str(path)).shards[0].checksums
    damaged = path.with_name(f"damaged{path.suffix}")
    cuts = [whole[: len(whole) * k // 8] for k in range(1, 8)]
    places = np.random.default_rng(0).integers(0, len(whole), DAMAGES)
    flips = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in map(int, places)]
    for number, content in enumerate([*cuts, *flips]):
        damaged.write_bytes(content)
        what = f"a file cut to {len(content)} of {len(whole)} bytes"
        if number >= len(cuts):
            what = f"a file with byte {places[number - len(cuts)]} changed"
        try:
            shards = find(str(damaged))
            groups = range(len(shards.shards[0].groups))
            found = pa.Table.from_batches(read(shards, table.column_names, 1 << 20, groups))
        except StreamomdError:
            continue
        except Exception as error:  # any other is the problem that is looked for
            yield f"{what} raised {type(error).__name__}, not a StreamomdError: {error}"
            continue
        if number < len(cuts) or found.num_rows != shards.shards[0].rows:
            yield f"{what} is read as {found.num_rows} rows: check lengths against the footer"
        elif checksums and found.to_pydict() != table.to_pydict():
            yield f"{what} is read as other rows, though the format has checksums"
