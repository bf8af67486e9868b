"""Distinct values of columns: the labels of a data set, and the groups of slicing columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import DataError, SchemaError
from streamomd.core.startup import arrow_function
from streamomd.core.urls import printable, shown
from streamomd.shards.directory_columns import values_of
from streamomd.shards.reader import ShardBatch, read_batches
from streamomd.shards.renames import require_columns
from streamomd.shards.shard import Shard, ShardSet

A_LABEL = "a label is a number, a boolean or a string"
FEW = 10_000
"""Labels that Python counts before pyarrow's functions are loaded, which takes as long."""
Enough = Callable[[Collection[Any]], object]
"""Whether distinct values so far are enough."""


def distinct_labels(
    shard_set: ShardSet,
    column: str,
    limit: int = 1000,
    *,
    enough: Enough = lambda values: False,
    counts: Counter[Any] | None = None,
) -> list[Any]:
    """Distinct values of a column in the first shard, as Python values, sorted.

    enough: whether the values so far are all that is asked for; then reading ends. counts: gets the
    rows of each value that were read; none of a column of directories.
    Nulls and NaN are not labels. Further shards are read until there are two values; of a column
    of directories, all values are known.
    Raises `SchemaError` without such a column, `DataError` for more than ``limit`` values.
    """
    if (known := values_of(shard_set, column)) is not None:
        return distinct_among(((next(iter(shard_set)), [known]),), column, limit, enough)
    with ExitStack() as readers:  # which end with this call, also where it raises

        def values(at: int) -> Iterable[dict[Any, int]]:
            return readers.enter_context(closing(_values(shard_set, at, column)))

        shards = ((shard, values(at)) for at, shard in enumerate(shard_set))
        return distinct_among(shards, column, limit, enough, counts)


def label_bounds(shard_set: ShardSet, column: str) -> set[int | float]:
    """The least and the greatest number of a column in each row group, where footers have them.

    They are values of the column: bounds of numbers are exact, unlike those of texts.
    """
    found: set[int | float] = set()
    for shard in shard_set:
        for group in shard.statistics or ():
            bounds = group.columns.get(column)
            for value in (bounds.low, bounds.high) if bounds else ():
                if isinstance(value, Fraction) and value.denominator == 1:
                    found.add(int(value))
                elif isinstance(value, float) and math.isfinite(value):
                    found.add(value)
    return found


def distinct_among(
    shards: Iterable[tuple[Any, Iterable[Iterable[Any]]]],
    column: str,
    limit: int = 1000,
    enough: Enough = lambda values: False,
    counts: Counter[Any] | None = None,
) -> list[Any]:
    """Returns the distinct values that ``distinct_labels`` does, of shards (or what has a ``url``
    and a ``schema``) with their values, or the rows of each.

    The next shard is read only when it is needed.
    """
    counted: Counter[Any] = Counter() if counts is None else counts
    for shard, pieces in shards:
        _require_flat(shard, [column], A_LABEL)
        for values in pieces:
            counted.update(values)
            if enough(counted):
                return sorted(counted)
            if len(counted) > limit:
                raise DataError(
                    f"column {printable(column)!r} of {shown(shard.url)} has more than {limit} "
                    "distinct values: for regression pass --task regress; for classification set "
                    "model.classes"
                )
        if len(counted) > 1:
            break
    return sorted(counted)


def count_labels(shard_set: ShardSet, column: str) -> tuple[dict[Any, int], int]:
    """The rows of each value of a column in all shards, and those without a value.

    Raises SchemaError for a shard without such a column.
    """
    found: Counter[Any] = Counter()
    for place, shard in enumerate(shard_set):
        _require_flat(shard, [column], A_LABEL)
        batches = read_batches(shard_set, places=[place], columns=[column], threads=1)
        for counts in batches.map(lambda rows: _counts(rows.batch.column(0))):
            found.update(counts)
    missing = sum(found.pop(one) for one in [*found] if not _is_label(one))
    return dict(found), missing


def _counts(values: pa.Array) -> dict[Any, int]:
    if len(values) <= FEW:
        return Counter(values.to_pylist())
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    pairs = arrow_function()("value_counts", [values]).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}


def _is_label(value: Any) -> bool:
    return value is not None and value == value  # noqa: PLR0124 (NaN is not itself)


def _require_flat(shard: Shard, columns: Sequence[str], what: str) -> None:
    """Raises SchemaError for a column that is missing or holds lists. what: is expected."""
    require_columns(shard, columns)
    for name in columns:
        kind = shard.schema.field(name).type
        if pa.types.is_nested(kind):
            raise SchemaError(f"column {printable(name)!r} of {shown(shard.url)} is {kind}: {what}")


def _values(shard_set: ShardSet, place: int, column: str) -> Generator[dict[Any, int]]:
    # The first rows may be enough: little is read ahead.
    places, columns = [place], [column]
    batches = read_batches(shard_set, places=places, columns=columns, threads=1, budget_bytes=1)
    return batches.map(lambda rows: label_counts(rows.batch.column(0)))


def label_counts(values: pa.Array) -> dict[Any, int]:
    """The rows of each label, without nulls and NaN."""
    return {value: rows for value, rows in _counts(values).items() if _is_label(value)}


def distinct(values: pa.Array) -> list[Any]:
    """Distinct values, in order of appearance, without nulls and NaN."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    unique = arrow_function()("unique", [values]).to_pylist()
    return [value for value in unique if _is_label(value)]


Value = bool | int | float | str | None
MOST = 1_000_000


def check_sliced(shard: Shard, columns: Sequence[str]) -> None:
    """Raises SchemaError for a column that is missing or holds lists."""
    _require_flat(shard, columns, "rows are sliced by numbers, booleans, texts, dates or times")


def weights_of_values(
    shards: ShardSet, columns: Sequence[str], weight: str
) -> list[dict[Value, float]]:
    """The weight of each value of each column; without a weight column, its rows.

    Raises DataError for a column of more than a million values.
    """
    totals: list[dict[Value, float]] = [{} for _ in columns]
    wanted = [*dict.fromkeys([*columns, *([weight] if weight else [])])]

    def count(rows: ShardBatch) -> list[dict[Value, float]]:
        weights = _weights(rows.batch.column(weight)) if weight else None
        return [_counted(rows.batch.column(name), weights) for name in columns]

    batches = read_batches(shards, places=range(len(shards)), columns=wanted)
    for counts in batches.map(count):
        for name, total, found in zip(columns, totals, counts, strict=True):
            for value, amount in found.items():
                total[value] = total.get(value, 0.0) + amount
            if len(total) > MOST:
                raise DataError(
                    f"column {printable(name)!r} has more than {MOST:,} values: choose a "
                    "column with fewer values to slice by"
                )
    return totals


def places_of(column: pa.Array, places: Mapping[Value, int], other: int) -> NDArray[np.int64]:
    """Each row's place by its value, or ``other``."""
    values, codes = _coded(column)
    return np.array([places.get(value, other) for value in values], np.int64)[codes]


def _counted(column: pa.Array, weights: NDArray[np.float64] | None) -> dict[Value, float]:
    values, codes = _coded(column)
    total: dict[Value, float] = {}
    for value, amount in zip(values, np.bincount(codes, weights, len(values)), strict=True):
        total[value] = total.get(value, 0.0) + float(amount)
    if not len(column) or not (codes == len(values) - 1).any():
        del total[None]
    return total


def _coded(column: pa.Array) -> tuple[list[Value], NDArray[np.int64]]:
    """Values, the last of them None for null, and each row's place among them."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = coded.dictionary
    if not (_is_number(values.type) or pa.types.is_boolean(values.type)):
        values = _as_text(values)
    words = [_word(value) for value in values.to_pylist()]
    codes = coded.indices.cast(pa.int64()).fill_null(len(words)).to_numpy(zero_copy_only=False)
    return [*words, None], codes


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_large_binary(values.type) or pa.types.is_binary(values.type):
        texts = [
            None if b is None else b.decode(errors="backslashreplace") for b in values.to_pylist()
        ]
        return pa.array(texts, pa.large_string())
    return values.cast(pa.large_string())


def _word(value: Any) -> Value:
    """Returns a value that JSON can represent: a float that is not finite becomes a text."""
    odd = isinstance(value, float) and not math.isfinite(value)
    found: Value = str(value) if odd else value
    return found


def _weights(column: pa.Array) -> NDArray[np.float64]:
    """Bad rows may have any weight."""
    found = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    finite: NDArray[np.float64] = np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
    return finite
