"""Rows of index and value pairs on their way from text into a shard: made canonical, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import DataError
from streamomd.features.canonical import canonical

LARGEST_SIZE = 2**31 - 1
"""Most coordinates: the largest index is one below."""


class SparseRows(NamedTuple):
    """CSR rows: indptr (n + 1,) from 0."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]


def sparse_batch(
    schema: pa.Schema, columns: Sequence[NDArray[Any]], rows: SparseRows, where: str
) -> pa.RecordBatch:
    """A batch of plain ``columns``, then the canonical rows as a list of indices and of values."""
    indptr, indices, values = canonical(*rows)
    if not np.isfinite(values).all():
        raise DataError(
            f"{where}: the values of an index that a row has more than once overflow {values.dtype}"
        )
    offsets = pa.array(indptr.astype(np.int32))
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(flat), type=kind)
        for kind, flat in zip(schema.types[-2:], (indices, values), strict=True)
    ]
    plain = [pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays([*plain, *lists], schema=schema)
