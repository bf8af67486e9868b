"""A small table of results as a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_table(file: Any, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of numbers, booleans or texts; None is null. A column of several kinds of
    values becomes texts."""
    pq.write_table(pa.table({name: _array(values) for name, values in columns.items()}), file)


def _array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
