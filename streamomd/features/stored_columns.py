"""The values of a record batch's columns, for statistics: see ``Plan.column_values``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamomd.core.batch import SHIFT, ColumnValues
from streamomd.features.canonical import Csr
from streamomd.features.crosses import cross_name
from streamomd.features.csr import Columns, indptr_of
from streamomd.features.numeric import Numbers, missing
from streamomd.features.plan import Plan


def category_columns(plan: Plan) -> tuple[str, ...]:
    """Names of what has categories, in the order of their keys: hashed columns, parts of dates and
    crosses, with one category a row; then hashed lists and texts."""
    listed = {*plan.hashed_lists}
    single = (name for name in plan.hashed if name not in listed)
    parts = (name for date in plan.dates for name in date.names)
    crosses = (cross_name(cross) for cross in plan.crosses)
    return (*single, *parts, *crosses, *plan.hashed_lists, *(text.column for text in plan.text))


def column_values(
    plan: Plan, columns: Mapping[str, pa.Array], table: Numbers, coordinates: Columns,
    lists: Sequence[Csr],
) -> ColumnValues:  # fmt: skip
    """Returns the values of rows that have been encoded. columns: numeric ones, as they are stored;
    table: their encoded numbers. coordinates: (features, rows), of those with one category a row,
    bias included; lists: of the others, bias not included."""
    rows = len(table)
    numbers = table[:, : len(plan.numeric)].astype(np.float64)
    for at, name in enumerate(plan.numeric):
        numbers[missing(columns[name]), at] = np.nan
    first, single = plan.hashed_offset, len(coordinates)
    places = np.arange(single, dtype=np.int64) << SHIFT
    keys = (coordinates.T + (places - first)).reshape(-1)
    if not lists:
        return ColumnValues(numbers, np.arange(rows + 1) * single, keys)
    row, found = [np.repeat(np.arange(rows), single)], [keys]
    for place, (indptr, indices, _) in enumerate(lists, single):
        row.append(np.repeat(np.arange(rows), np.diff(indptr)))
        found.append(indices + np.int64((place << SHIFT) + int(plan.bias) - first))
    every = np.concatenate(row)
    order = np.argsort(every, kind="stable")
    indptr = indptr_of(np.bincount(every, minlength=rows))
    return ColumnValues(numbers, indptr, np.concatenate(found)[order])
