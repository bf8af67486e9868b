"""Rows like Criteo's: 13 counts with heavy tails and 26 categories, a quarter of them clicks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS, FEW, TINY, GROUP = 2_000_000, 100_000, 20_000, 50_000
VALUES = (
    1_460, 583, 10_000_000, 2_200_000, 305, 24, 12_500, 633, 3, 93_000, 5_700, 8_300_000, 3_200, 27,
    15_000, 5_400_000, 10, 5_600, 2_200, 4, 7_000_000, 18, 15, 286_000, 105, 142_000,
)  # fmt: skip
"""How many a category has; drawn as 1/rank."""
MISSING = {3: 0.03, 4: 0.03, 6: 0.12, 19: 0.44, 20: 0.44, 22: 0.76, 25: 0.44, 26: 0.44}
COUNTS = (  # mean and deviation of the logarithm, share of nulls
    (0.5, 1.2, 0.45), (1.5, 2.0, 0.0), (1.8, 1.5, 0.21), (1.8, 0.9, 0.22), (7.5, 2.5, 0.03),
    (3.5, 1.6, 0.22), (1.7, 1.4, 0.04), (2.2, 1.0, 0.0), (4.0, 1.3, 0.04), (0.3, 0.4, 0.45),
    (0.8, 0.9, 0.04), (0.1, 0.6, 0.77), (1.8, 0.9, 0.22),
)  # fmt: skip
NUMBERS = [f"I{at}" for at in range(1, 14)]
CATEGORIES = [f"C{at}" for at in range(1, 27)]
BIAS = -1.75
"""With it a quarter of the labels are 1."""
HEX = np.array([f"{byte:02x}" for byte in range(256)], "S2")


def tables(count: int) -> Iterator[pa.Table]:
    """Columns I1 … I13 (int32), C1 … C26 (string of 8 hex digits), y (0 or 1)."""
    for at, low in enumerate(range(0, count, GROUP)):
        yield table(np.random.default_rng((2, at)), min(GROUP, count - low))


def table(rng: np.random.Generator, count: int) -> pa.Table:
    """Labels from a weight for each value of a category and for the logarithm of each count."""
    columns: dict[str, Any] = {}
    margins = np.full(count, BIAS)
    for at, (name, (mean, deviation, nulls)) in enumerate(zip(NUMBERS, COUNTS, strict=True)):
        drawn = np.exp(mean + deviation * rng.standard_normal(count)).clip(0, 2e9).astype(np.int32)
        null = rng.random(count) < nulls
        margins += np.where(null, 0.0, (-1) ** at * 0.15 * (np.log1p(drawn) - mean))
        columns[name] = pa.array(drawn, mask=null)
    for at, (name, size) in enumerate(zip(CATEGORIES, VALUES, strict=True), 1):
        drawn = np.exp(rng.random(count) * np.log(size + 1)).astype(np.int64)
        code = scrambled(drawn + (at << 40))
        null = rng.random(count) < MISSING.get(at, 0.0)
        weight = (code >> np.uint64(32)) / 2.0**31 - 1
        margins += np.where(null, 0.0, 0.5 * weight)
        columns[name] = texts(code.astype(np.uint32), null)
    y = rng.random(count) < 1 / (1 + np.exp(-margins))
    return pa.table({**columns, "y": pa.array(y.astype(np.int8))})


def scrambled(keys: Any) -> Any:
    """64 bits of a key that look like chance (splitmix64's finalizer)."""
    found = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def texts(codes: Any, null: Any) -> pa.Array:
    """Eight hex digits each."""
    letters = HEX[codes.astype(">u4").view(np.uint8)].tobytes()
    offsets = np.arange(len(codes) + 1, dtype=np.int32) * 8
    found = pa.StringArray.from_buffers(
        len(codes), pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters)
    )
    return pc.if_else(pa.array(null), None, found)


def features(found: pa.Table) -> pa.Array:
    """What stands after the label in Vowpal Wabbit's text: nulls are left out, and no category's
    name stands before its value, for no value stands in two categories.
    """
    numbers = [
        pc.binary_join_element_wise(f"{name}:", pc.cast(found[name], "string"), "")
        for name in NUMBERS
    ]
    categories = [found[name] for name in CATEGORIES]
    return pc.binary_join_element_wise(
        "|i", *numbers, "|c", *categories, " ", null_handling="skip"
    ).combine_chunks()
