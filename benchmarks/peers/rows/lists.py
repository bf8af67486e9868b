"""Rows like rcv1's: about 75 non-zeros in 2^18 coordinates, unit norm, labels from a true model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from common import SMALL, rows

from streamomd.sources.text.output_formats import pair_of, required

ROWS, FEW, TINY, GROUP = 1_600_000, 200_000, 20_000, 50_000
STEEP = 29.0
"""With it the true margins have a standard deviation of 4."""


def tables(count: int) -> Iterator[pa.Table]:
    """Columns i (list<int32>), v (list<float32>), y (0 or 1), GROUP rows at a time."""
    truth = np.random.default_rng(0).standard_normal(SMALL) * (1 + np.arange(SMALL)) ** -0.25
    for at, low in enumerate(range(0, count, GROUP)):
        yield table(np.random.default_rng((1, at)), truth, min(GROUP, count - low))


def table(rng: np.random.Generator, truth: Any, count: int) -> pa.Table:
    """Values as of tf-idf: the rarer a coordinate (the higher), the greater."""
    indptr, indices, normal = rows(rng, count, SMALL)
    values = np.exp(0.5 * normal) * np.log1p(indices)
    lengths = np.diff(indptr)
    norms = np.sqrt(np.add.reduceat(values * values, indptr[:-1]))
    values = (values / np.repeat(norms, lengths)).astype(np.float32)
    margins = STEEP * np.add.reduceat(values * truth[indices], indptr[:-1])
    y = rng.random(count) < 1 / (1 + np.exp(-margins))
    offsets = pa.array(indptr.astype(np.int32))
    types = pair_of(pa.float32())
    columns = [
        pa.ListArray.from_arrays(offsets, pa.array(indices), type=types[0]),
        pa.ListArray.from_arrays(offsets, pa.array(values), type=types[1]),
        pa.array(y.astype(np.int8)),
    ]
    schema = required([("i", types[0]), ("v", types[1]), ("y", pa.int8())])
    return pa.table(columns, schema=schema)


def features(found: pa.Table) -> pa.Array:
    """What stands after the label in Vowpal Wabbit's text."""
    i, v = (found[name].combine_chunks() for name in "iv")
    pairs = pc.binary_join_element_wise(
        pc.cast(i.flatten(), "string"), pc.cast(v.flatten(), "string"), ":"
    )
    offsets = pc.subtract(i.offsets, i.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), " ")
    return pc.binary_join_element_wise("|f", joined, " ")
