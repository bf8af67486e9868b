"""Shards of which a filter reads some rows: checked, without the groups that cannot have any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import pyarrow as pa

from streamomd.config.filter_text import Comparison, Condition, Junction, parse_filter, problem_at
from streamomd.core.errors import SchemaError
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.features.plan_columns import Partition
from streamomd.shards.formats.parquet_footer import Bounds
from streamomd.shards.renames import near
from streamomd.shards.row_filter import bind, in_domain, outcomes
from streamomd.shards.shard import Constant, Shard, ShardSet


@dataclass(frozen=True)
class Unread:
    """What a pass over filtered shards does not read: shards and row groups without a row that the
    filter could take, and their rows and bytes. Row groups include those of the shards."""

    shards: int = 0
    row_groups: int = 0
    rows: int = 0
    bytes: int = 0


def filter_columns(where: str, partitions: Iterable[Partition] = ()) -> tuple[str, ...]:
    """The columns that a filter names, of which statistics are read. partitions: columns of
    directories, as far as they are known, which need none."""
    found = _comparisons(parse_filter(where)) if where else []
    constant = {column for column, _ in partitions}
    return tuple(dict.fromkeys(one.column for one in found if one.column not in constant))


def _comparisons(condition: Condition) -> list[Comparison]:
    if isinstance(condition, Comparison):
        return [condition]
    parts = condition.parts if isinstance(condition, Junction) else (condition.part,)
    return [one for part in parts for one in _comparisons(part)]


def with_filter(shards: ShardSet, where: str) -> ShardSet:
    """The shards, of which only rows are read that satisfy the filter; all where it is empty.

    Their columns of directories are known. Raises UsageError for a text that is not a filter,
    SchemaError for a column that a shard does not have, or of a type that cannot be compared so.
    """
    if not where:
        return shards
    condition = parse_filter(where)
    return replace(shards, shards=tuple(_filtered(shard, where, condition) for shard in shards))


def _filtered(shard: Shard, where: str, condition: Condition) -> Shard:
    for one in _comparisons(condition):
        if shard.schema.names.count(one.column) != 1:
            several = one.column in shard.schema.names
            problem = f"several columns are named {one.column!r}"
            missing = f"no column {one.column!r}; "
            missing += near(one.column, shard.schema.names)
            _refuse(shard, where, one.at, problem if several else missing)
    row_filter = bind(condition, shard.schema, partial(_refuse, shard, where))
    constants = {one.column: _bounds_of(one) for one in shard.constants}
    unread = []
    for number, rows in enumerate(shard.groups):
        known: dict[str, Bounds] = {}
        if shard.statistics:
            known |= shard.statistics[number].columns
        for column, bounds in constants.items():
            known[column] = bounds if bounds.low is not None else Bounds(nulls=rows, nan=False)
        if True not in outcomes(row_filter, known, rows):
            unread.append(number)
    return replace(shard, row_filter=row_filter, unread=frozenset(unread))


def _refuse(shard: Shard, where: str, at: int, problem: str) -> NoReturn:
    raise SchemaError(problem_at(where, at, f"shard {shown(shard.url)}: {problem}"))


def _bounds_of(constant: Constant) -> Bounds:
    """Returns the bounds of a column of directories: its one value."""
    if constant.value is None:
        return Bounds()
    value = in_domain(constant.value, PARTITION_DOMAIN[constant.kind])
    return Bounds(value, value, 0, nan=False)


PARTITION_DOMAIN: dict[str, pa.DataType] = {
    "integer": pa.int64(), "date": pa.date32(), "category": pa.string(),
}  # fmt: skip


def unread_of(shards: Iterable[Shard]) -> Unread:
    """What a pass over these shards does not read."""
    cut = [(shard, shard.unread) for shard in shards if shard.unread]
    return Unread(
        sum(not shard.read_rows and shard.rows > 0 for shard, _ in cut),
        sum(shard.groups[number] > 0 for shard, numbers in cut for number in numbers),
        sum(shard.rows - shard.read_rows for shard, _ in cut),
        sum(_bytes(shard) for shard, _ in cut),
    )


def filter_notes(shards: ShardSet) -> list[str]:
    """A line on what a filter does not read, if there is one."""
    if all(shard.row_filter is None for shard in shards):
        return []
    unread, groups = unread_of(shards), sum(1 for shard in shards for rows in shard.groups if rows)
    of_shards, of_groups = counted(len(shards), "shard"), counted(groups, "row group")
    return [
        f"filter: {unread.shards:,} of {of_shards} and {unread.row_groups:,} of {of_groups} are "
        f"not read ({counted(unread.rows, 'row')}, {unread.bytes:,} bytes)"
    ]


def filtered(unread: Unread, rows: int) -> dict[str, int]:
    """Figures of a filter. rows: that it dropped, of all epochs, read ones included; the others
    are of a pass."""
    return {**vars(unread), "rows": rows}


def worded_filter(found: Mapping[str, int]) -> str:
    """The figures of a filter as a person reads them."""
    return (
        f"{counted(found['rows'], 'row')} filtered ({counted(found['shards'], 'shard')} and "
        f"{counted(found['row_groups'], 'row group')} not read, {found['bytes']:,} bytes)"
    )


def _bytes(shard: Shard) -> int:
    """Bytes of the groups that are not read; of a shard without statistics, by its rows."""
    if not shard.read_rows:
        return shard.size
    if shard.statistics:
        return sum(shard.statistics[number].nbytes for number in shard.unread)
    return shard.size * (shard.rows - shard.read_rows) // shard.rows
