"""Rows of many kinds, made up: what ``convert`` is given, and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common
import numpy as np
import pyarrow as pa

SIZE = 1 << 18
PAIR = {"sparse": {"indices": "i", "values": "v", "size": SIZE}}
CARDINALITIES = [
    3, 4, 5, 10, 15, 18, 24, 27, 100, 300, 600, 1_000, 2_000, 3_000, 5_000, 5_500, 10_000,
    12_000, 14_000, 90_000, 150_000, 300_000, 500_000, 700_000, 900_000, 1_000_000,
]  # fmt: skip


def sparse(rows: int) -> pa.Table:
    """75 pairs a row: coordinates log-uniform, values normal in float32."""
    return common.lists(0, rows, SIZE)


def double(rows: int) -> pa.Table:
    """The same, values in float64 and with the digits that text has."""
    return _with_values(sparse(rows), lambda v: np.round(v.astype(np.float64), 6))


def counts(rows: int) -> pa.Table:
    """The same, values 1, 2, 3 …, most of them 1."""
    return _with_values(sparse(rows), lambda v: np.floor(1 + 0.4 * v * v))


def _with_values(table: pa.Table, made: Callable[[Any], Any]) -> pa.Table:
    column = table["v"].chunk(0)
    values = pa.array(made(column.values.to_numpy()))
    return table.set_column(1, "v", pa.ListArray.from_arrays(column.offsets, values))


def dense(rows: int) -> pa.Table:
    """10 whole numbers of 100 … 10,000 values, 44 that are 0 or 1, as csv gives them: int64."""
    rng = np.random.default_rng(1)
    wide = {f"n{k}": rng.integers(0, 100 * 2 ** (k % 7), rows) for k in range(10)}
    flags = {f"b{k}": (rng.random(rows) < 0.4 / (k + 1)).astype(np.int64) for k in range(44)}
    return pa.table({**wide, **flags, "y": common.labels(rng, rows)})


def floats(rows: int) -> pa.Table:
    """54 numbers with six digits, float64."""
    rng = np.random.default_rng(2)
    columns = {f"x{k}": np.round(rng.standard_normal(rows), 6) for k in range(54)}
    return pa.table({**columns, "y": common.labels(rng, rows)})


def strings(rows: int) -> pa.Table:
    """13 counts with nulls, 26 columns of eight letters, the frequent values far more so."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {"y": common.labels(rng, rows)}
    for k in range(13):
        values = np.floor(np.exp(rng.standard_normal(rows) * 2)).astype(np.int64)
        columns[f"n{k}"] = pa.array(values, mask=rng.random(rows) < 0.1)
    for k, size in enumerate(CARDINALITIES):
        drawn = np.exp(rng.random(rows) * np.log(size)).astype(np.int64) * 2654435761 % 2**32
        columns[f"c{k}"] = pa.array(
            [f"{value:08x}" for value in drawn], mask=rng.random(rows) < 0.05
        )
    return pa.table(columns)


def texts(rows: int) -> pa.Table:
    """20 … 200 words a row out of 50,000, the frequent ones far more so."""
    rng = np.random.default_rng(4)
    words = [
        "".join(chr(97 + c) for c in rng.integers(0, 26, n)) for n in rng.integers(2, 11, 50_000)
    ]
    drawn = [
        np.exp(rng.random(n) * np.log(50_000)).astype(int) for n in rng.integers(20, 200, rows)
    ]
    found = [" ".join(words[k - 1] for k in row.tolist()) for row in drawn]
    return pa.table({"t": found, "y": common.labels(rng, rows)})


KINDS: dict[str, tuple[Callable[[int], pa.Table], dict[str, Any], int]] = {
    "sparse": (sparse, PAIR, 1),
    "double": (double, PAIR, 1),
    "counts": (counts, PAIR, 1),
    "dense": (dense, {}, 1),
    "floats": (floats, {}, 1),
    "strings": (strings, {"nulls": "zero"}, 1),
    "texts": (texts, {"text": ["t"]}, 10),
}
"""How each is made, what a job says of it, and by how much fewer rows do."""
