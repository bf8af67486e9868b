"""What the first rows say of each column: enough to propose a job, and no row is learned.

A large data set is sampled: some row groups, evenly spaced, and of each its first rows, or where
there are few groups several stretches of it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamomd.core.errors import SchemaError
from streamomd.core.urls import printable
from streamomd.features.arrow_types import (
    DATES,
    MEASURED,
    NUMBERS,
    TEXTS,
    family,
    is_container,
    is_list_of,
)
from streamomd.features.arrow_types import is_vector as is_vector_type
from streamomd.features.infer_plan import twice
from streamomd.shards.open_readers import open_group
from streamomd.shards.order import Job, jobs_of
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find

MOST_ROWS = 10_000
MOST_VALUES = 2_000_000
"""Rows times columns that are looked at, but at least ``LEAST_ROWS`` rows."""
LEAST_ROWS = 1_000
LEAST_GROUPS, MOST_GROUPS = 3, 32
SLICES = 8
"""Stretches of rows of a data set of few row groups that is sampled."""
MOST_DISTINCT = 51
CODES = (-99999, -9999, -999, -99, -9, -1, 99, 999, 9999, 99999)
"""Numbers that often stand for a missing value."""
APART = 0.2
"""Of the range of all other values, that a code is away from it."""
UNIT_BYTES = 1 << 20


@dataclass(frozen=True)
class ColumnFacts:
    """A column, and what its sampled values are.

    missing: null or NaN, in all rows where footers count them. values: the distinct ones, the
    first ``MOST_DISTINCT``. consecutive: whole numbers that count the rows: they always increase,
    or no two are equal and they leave few numbers between them. words: mean number in a text.
    codes: numbers that look like codes for a missing value, in two rows or more. low, high: the
    range of all other numbers.
    """

    name: str
    type: str
    family: str
    is_dictionary: bool = False
    is_vector: bool = False
    is_pair: str = ""
    of_directory: bool = False
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    distinct: int = 0
    values: tuple[Any, ...] = ()
    consecutive: bool = False
    words: float = 0.0
    codes: tuple[float, ...] = ()
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class DataFacts:
    """Columns of a data set in their order; rows: all, and how many of them were looked at."""

    columns: tuple[ColumnFacts, ...]
    rows: int
    seen: int


def look(shards: ShardSet, options: Mapping[str, Any]) -> DataFacts:
    """The facts of all columns. Raises what ``require_rows`` and reading raise, SchemaError for
    two columns of one name."""
    shards.require_rows()
    first = next(iter(shards))
    schema = first.schema
    if again := twice(schema.names):
        raise SchemaError(
            f"first shard: more than one column is named {printable(again[0])!r}; "
            "rename or drop all but one"
        )
    names = [field.name for field in schema if family(field.type) in (*MEASURED, *TEXTS, *DATES)]
    most = max(LEAST_ROWS, min(MOST_ROWS, MOST_VALUES // max(1, len(names))))
    tables = [*_sample(shards, names, most, options)] if names else []
    seen = sum(table.num_rows for table in tables)
    # A sample may miss rare nulls.
    nulls = _counted_nulls(shards, names, options) if seen < shards.rows else {}
    directories = {one.column for one in first.constants}
    # Written by `convert`: only then two lists are known to be a pair of indices and values.
    sized = b"streamomd.size" in (schema.metadata or {})
    columns = []
    for field in schema:
        if is_container(field.type):
            continue
        facts = _of_type(field, field.name in directories, sized)
        if is_list_of(field.type, NUMBERS) and not facts.is_pair:
            lists = [rows.column(0) for rows in _sample(shards, [field.name], LEAST_ROWS, options)]
            lengths = {one for rows in lists for one in rows.value_lengths().to_pylist()}
            # Lists of one length are vectors: each place is a number of its own.
            if len(lengths) == 1 and (length := lengths.pop()):
                facts = replace(facts, is_vector=True, type=f"{length} numbers in each row")
        if field.name in names:
            values = [value for table in tables for value in table.column(field.name).to_pylist()]
            facts = _with_values(facts, values, nulls.get(field.name, 0))
        columns.append(facts)
    return DataFacts(tuple(columns), shards.rows, seen)


def _sample(
    shards: ShardSet, names: Sequence[str], most: int, options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """At most about ``most`` rows, in order."""
    groups = [*jobs_of(shards, range(len(shards)))]
    chosen = _spread(groups, most * len(groups) // max(1, shards.rows))
    # Small data are read whole.
    each = most if shards.rows <= most else max(1, most // len(chosen))
    for group in (job.group for job in chosen):
        for begin, end in _stretches(group.rows, each, max(1, SLICES // len(chosen))):
            with open_group(
                group, group.row + begin, group.row + end, options=options, columns=names,
                unit_bytes=UNIT_BYTES,
            ) as (reader, whole):  # fmt: skip
                yield from (rows.batch for rows in reader.read(whole))


def _stretches(rows: int, most: int, count: int) -> list[tuple[int, int]]:
    """At most ``most`` of so many rows, in stretches that are evenly spaced, with both ends.

    >>> _stretches(100, 100, 4), _stretches(100, 10, 1), _stretches(100, 10, 2)
    ([(0, 100)], [(0, 10)], [(0, 5), (95, 100)])
    """
    if rows <= most:
        return [(0, rows)]
    # At least one row in each stretch.
    count = max(1, min(count, most))
    each = most // count
    begins = [at * (rows - each) // max(1, count - 1) for at in range(count)]
    return [(begin, begin + each) for begin in begins]


def _spread(groups: list[Job], count: int) -> list[Job]:
    """All groups if ``count`` is as large, else some of them, evenly spaced, with both ends."""
    count = min(len(groups), max(LEAST_GROUPS, min(MOST_GROUPS, count)) if count else LEAST_GROUPS)
    if count < 2 or count == len(groups):
        return groups[:count]
    return [groups[at * (len(groups) - 1) // (count - 1)] for at in range(count)]


def _counted_nulls(
    shards: ShardSet, names: Sequence[str], options: Mapping[str, Any]
) -> dict[str, int]:
    """Nulls by column in all row groups, of columns whose footers count them."""
    urls = [shard.url for shard in shards]
    counts = dict.fromkeys(names, 0)
    for shard in find(urls, order="given", storage_options=options, statistics=names):
        for group in shard.statistics:
            for name, bounds in group.columns.items():
                counts[name] += bounds.nulls or 0
    return counts


def _of_type(field: pa.Field, of_directory: bool, sized: bool) -> ColumnFacts:
    kind, pair = field.type, ""
    if sized and is_list_of(kind, ("integer",)):
        pair = "indices"
    elif sized and is_list_of(kind, NUMBERS):
        pair = "values"
    return ColumnFacts(
        field.name,
        str(kind),
        family(kind),
        bool(pa.types.is_dictionary(kind)),
        is_vector_type(kind),
        pair,
        of_directory,
    )


def _with_values(facts: ColumnFacts, values: list[Any], nulls: int) -> ColumnFacts:
    present = [one for one in values if one is not None and one == one]  # noqa: PLR0124 (NaN)
    distinct = dict.fromkeys(present)
    infinite = sum(isinstance(one, float) and math.isinf(one) for one in distinct)
    texts = facts.family == "string"
    words = sum(len(one.split()) for one in present) / len(present) if texts and present else 0.0
    numbers = present if facts.family in ("integer", "float") else []
    codes, low, high = _codes(Counter(numbers))
    return replace(
        facts,
        rows=len(values),
        missing=max(nulls, len(values) - len(present)),
        infinite=infinite,
        distinct=len(distinct),
        values=tuple(distinct)[:MOST_DISTINCT],
        consecutive=facts.family == "integer" and _consecutive(present),
        words=words,
        codes=codes,
        low=low,
        high=high,
    )


def _codes(counts: Mapping[float, int]) -> tuple[tuple[float, ...], float, float]:
    """Numbers that look like codes for a missing value, and the range of the others. −1 is none: it
    often says "no" or "other".

    >>> _codes({-999: 7, 18: 1, 65: 1}), _codes({99: 5, 60: 1, 98: 1})
    (((-999,), 18, 65), ((), 60, 98))
    """
    others = [one for one in counts if one not in CODES and math.isfinite(one)]
    if not others or min(others) == max(others):
        return (), math.nan, math.nan
    low, high = min(others), max(others)
    # A code inside the range, such as 99 among ages, may be a value.
    away = APART * (high - low)
    found = [one for one in counts if one in CODES and one != -1 and counts[one] > 1]
    return tuple(sorted(one for one in found if one < low - away or one > high + away)), low, high


def _consecutive(numbers: list[int]) -> bool:
    """Whether whole numbers count the rows.

    >>> _consecutive([7, 8, 9]), _consecutive([3, 1, 2]), _consecutive([10, 900, 400])
    (True, True, False)
    """
    if len(set(numbers)) < len(numbers):
        return False
    # Shuffled row numbers leave few gaps; keys of customers leave many.
    increasing = all(a < b for a, b in itertools.pairwise(numbers))
    return increasing or max(numbers) - min(numbers) < 2 * len(numbers)
