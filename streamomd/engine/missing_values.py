"""Missing values replaced by the running mean of their column.

A batch has NaN where a value is missing. It becomes the mean of the values in the rows before,
weighted by importance, and 0 where there are none. The sums are added row after row, so the means
do not depend on how rows are divided into batches. Rules that centre columns have means of their
own: of all rows, the replaced values included, and with one count for all columns
(``loops.reference``). These have a count for each column, and every rule learns with them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch

Floats = NDArray[np.float64]
SUM, COUNT = 0, 1
"""Rows of ``State.means``: by column, of the values that were not missing."""


def fill_values(means: Floats, least: float = 0.0) -> Floats:
    """The mean of each column, 0 without a value. means: (2, …).

    least: the least magnitude from which a rule learns; a smaller mean is 0.

    >>> fill_values(np.array([[6.0, 0.0], [4.0, 0.0]]))
    array([1.5, 0. ])
    """
    values = np.zeros(means.shape[1:])
    with np.errstate(over="ignore"):
        np.divide(means[SUM], means[COUNT], out=values, where=means[COUNT] > 0.0)
    values[np.abs(values) < least] = 0.0
    return values


def filled(
    means: Floats, columns: NDArray[np.int64], batch: Batch, least: float, *, learns: bool
) -> Batch:
    """The batch without missing values. learns: ``means`` counts its rows, one after the other."""
    if not learns:
        if not np.isnan(batch.values).any():
            return batch
        steady = np.broadcast_to(fill_values(means, least), (len(batch), len(columns)))
        return _with_values(batch, columns, steady)
    x = _columns_of(batch, columns)
    there = ~np.isnan(x)
    h = np.where(there, batch.weight[:, np.newaxis], 0.0)
    given = np.stack([np.where(there, x, 0.0) * h, h])
    # One addition after the other, in the order of the rows: accumulate does not sum pairwise.
    sums = np.add.accumulate(np.concatenate([means[:, np.newaxis], given], axis=1), axis=1)
    means[...] = sums[:, -1]
    return batch if there.all() else _with_values(batch, columns, fill_values(sums[:, :-1], least))


def _columns_of(batch: Batch, columns: NDArray[np.int64]) -> Floats:
    """Those columns of a batch, (rows, columns), with zeros."""
    if isinstance(batch, DenseBatch):
        return np.asarray(batch.values[:, columns], np.float64)
    return batch.first_columns(int(columns[-1]) + 1, len(batch))[:, columns]


def _with_values(batch: Batch, columns: NDArray[np.int64], values: Any) -> Batch:
    """The batch with ``values``, (rows, columns), where it has NaN; an entry that is 0 is none."""
    changed = batch.values.copy()
    if isinstance(batch, DenseBatch):
        row, column = np.nonzero(np.isnan(changed))
        changed[row, column] = values[row, np.searchsorted(columns, column)]
        return replace(batch, values=changed)
    at = np.flatnonzero(np.isnan(changed))
    row = np.searchsorted(batch.indptr, at, side="right") - 1
    found = values[row, np.searchsorted(columns, batch.indices[at])]
    changed[at] = found
    gone = found == 0.0
    if not gone.any():
        return replace(batch, values=changed)
    left = np.ones(len(changed), np.bool_)
    left[at[gone]] = False
    fewer = np.searchsorted(at[gone], batch.indptr, side="left")
    return SparseBatch(
        batch.indptr - fewer, batch.indices[left], changed[left], batch.y, batch.weight,
        batch.skipped,
    )  # fmt: skip
