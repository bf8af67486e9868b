"""Slicing columns: their distinct values, and the index of each row's value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import DataError, SchemaError
from streamomd.core.urls import printable, shown
from streamomd.shards.columns import require_columns
from streamomd.shards.reader import ShardBatch, read_batches
from streamomd.shards.shard import Shard, ShardSet

Value = bool | int | float | str | None
MOST = 1_000_000


def check_sliced(shard: Shard, columns: Sequence[str]) -> None:
    """Raises SchemaError for a column that is missing or holds lists."""
    require_columns(shard, columns)
    for name in columns:
        kind = shard.schema.field(name).type
        if pa.types.is_nested(kind):
            raise SchemaError(
                f"column {printable(name)!r} of {shown(shard.url)} is {kind}: rows are sliced by "
                "numbers, booleans, texts, dates or times"
            )


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
