"""What the first rows say: the longest list, nearly unique strings, times in order."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.config.values import join_list
from streamomd.core.errors import StreamomdError
from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.core.urls import printable
from streamomd.features.arrow_types import DATES, family, plain
from streamomd.features.lists import elements_of
from streamomd.features.plan import Plan
from streamomd.shards.filesystem import is_local
from streamomd.shards.reader import ShardBatch, read_batches
from streamomd.shards.shard import ShardSet

LEAST_ROWS = 100
MOST_ROWS = 10_000
"""Rows that are enough to know, and rows that are looked at."""
MOST_COLUMNS = 100
"""Columns that are looked at, the first ones."""
SHARE = 0.5
"""A column with more distinct values than this share of the rows is nearly unique."""
WORDS = 3.0
"""Words of a value, in the mean, from which on it is text."""


def longest_list(shard_set: ShardSet, column: str) -> int:
    """Returns the length of the longest list in the first row group with an element; 0 without any.
    Raises what reading raises."""
    for place, shard in enumerate(shard_set):
        batches = read_batches(shard_set, places=[place], columns=[column], threads=1)
        longest = end = group = 0
        with closing(batches.map(_row_and_length)) as found:
            for row, length in found:
                while row >= end:
                    if longest:
                        return longest
                    end, group = end + shard.groups[group], group + 1
                longest = max(longest, length)
        if longest:
            return longest
    return 0


def _row_and_length(rows: ShardBatch) -> tuple[int, int]:
    begins, _ = elements_of(rows.batch.column(0))
    return rows.row, int((begins[1:] - begins[:-1]).max(initial=0))


class UniqueStrings(NamedTuple):
    """Columns that are identifiers by their values, and those that are texts."""

    identifiers: tuple[str, ...]
    texts: tuple[str, ...]


def unique_string_notes(plan: Plan, shards: ShardSet) -> list[str]:
    """A line that names the hashed columns that are nearly unique in the first row group, and what
    to do about them. None for shards in a store, of which nothing is read for it."""
    columns = [name for name in plan.hashed if plan.family(name) == "string"]
    if not columns or not is_local(shards.fs):
        return []
    try:
        rows = _first_rows(shards, columns[:MOST_COLUMNS])
    except StreamomdError:
        return []  # the run reads these rows next, and raises it
    return _notes(unique_strings(rows))


def unique_strings(rows: Sequence[pa.RecordBatch]) -> UniqueStrings:
    """The nearly unique columns of these rows, all of strings."""
    if not rows or (table := pa.Table.from_batches(rows)).num_rows < LEAST_ROWS:
        return UniqueStrings((), ())
    identifiers: list[str] = []
    texts: list[str] = []
    call = arrow_function()
    for name, column in zip(table.column_names, table.columns, strict=True):
        strings = arrow_cast(column, plain(column.type))
        values = call("unique", [call("drop_null", [strings])])
        if len(values) > SHARE * table.num_rows:
            as_bytes = arrow_cast(values, pa.large_binary())
            words = sum(len(one.split()) for one in as_bytes.to_pylist())
            (texts if words >= WORDS * len(values) else identifiers).append(name)
    return UniqueStrings(tuple(identifiers), tuple(texts))


def _first_rows(shards: ShardSet, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Returns at most about ``MOST_ROWS`` rows, of the first row group that has some."""
    found: list[pa.RecordBatch] = []
    place = next(at for at, shard in enumerate(shards) if shard.rows)
    shard = shards.shards[place]
    end = min(MOST_ROWS, next(rows for rows in shard.groups if rows))
    batches = read_batches(
        shards, places=[place], columns=columns, threads=1, budget_bytes=1, unit_bytes=1 << 20
    )
    with closing(iter(batches)) as pieces:
        for piece in pieces:
            if piece.row >= end:
                break
            found.append(piece.batch)
    return found


def _notes(found: UniqueStrings) -> list[str]:
    remedies = []
    if found.texts:
        remedies.append(f"--text {shlex.quote(join_list(found.texts))} to split texts into words")
    if found.identifiers:
        remedies.append(f"--ignore {shlex.quote(join_list(found.identifiers))} for identifiers")
    if not remedies:
        return []
    names = printable(", ".join(map(repr, (*found.identifiers, *found.texts))))
    return [
        f"hint: nearly every row has its own value in {names}, hashed as categories: pass "
        f"{', '.join(remedies)}"
    ]


MOST_GROUPS, MOST_FAR = 16, 3
"""Row groups that are looked at, evenly spread, the first and the last among them: on a disk, and
in a store, where each takes a request."""
MOST_ORDER_ROWS = 10_000
"""Rows that are looked at in each, the first ones."""
MOST_TIME_COLUMNS = 8
Times = NDArray[np.int64]


def column_in_order(shards: ShardSet) -> str:
    """The first column of dates or timestamps that never falls from row to row and is not constant,
    in the row groups that are looked at; "" if there is none, or of few rows."""
    if shards.rows < LEAST_ROWS:
        return ""
    schema = next(iter(shards)).stored_schema
    columns = [one.name for one in schema if family(one.type) in DATES][:MOST_TIME_COLUMNS]
    ends = dict.fromkeys(columns, (0, 0, 0))  # rows, first and last time
    try:
        for batch in _sample(shards, columns) if columns else ():
            for name in [*ends]:
                times = _microseconds(batch.column(batch.schema.get_field_index(name)))
                rows, first, last = ends[name]
                if not len(times):
                    continue
                if (rows and times[0] < last) or (times[1:] < times[:-1]).any():
                    del ends[name]
                    continue
                ends[name] = rows + len(times), first if rows else int(times[0]), int(times[-1])
    except StreamomdError:
        return ""  # the run reads these rows next, and raises it
    return next((name for name, (_, first, last) in ends.items() if first < last), "")


def _sample(shards: ShardSet, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The first rows of some row groups, in their order."""
    groups = []
    for place, shard in enumerate(shards):
        ends = np.cumsum(shard.groups).tolist()
        both = zip(ends, shard.groups, strict=True)
        groups += [(place, end - rows, rows) for end, rows in both if rows]
    most = MOST_GROUPS if is_local(shards.fs) else MOST_FAR
    chosen = np.unique(np.linspace(0, len(groups) - 1, most).round().astype(int)).tolist()
    for place, begin, rows in (groups[at] for at in chosen):
        end = begin + min(rows, MOST_ORDER_ROWS)
        batches = read_batches(
            shards, places=[place], columns=columns, start=(0, begin), threads=1, budget_bytes=1,
            unit_bytes=1 << 20,
        )  # fmt: skip
        with closing(iter(batches)) as pieces:
            for piece in pieces:
                if piece.row >= end:
                    break
                yield piece.batch.slice(0, end - piece.row)


def _microseconds(values: pa.Array) -> Times:
    """Since 1970, of the values that are not null."""
    ticks = values.drop_null().cast(pa.timestamp("us"), safe=False).view(pa.int64())
    found: Times = ticks.to_numpy(zero_copy_only=False)
    return found
