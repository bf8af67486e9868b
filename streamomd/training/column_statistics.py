"""Statistics of columns over windows of rows, and over all rows before the window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch
from streamomd.features import Plan

Floats = NDArray[np.float64]
COUNT = 0


class Change(NamedTuple):
    """What changed from the rows before to a window. kind: "mean", "null_rate" or
    "new_categories"; column: its place among the numeric ones, -1 for none."""

    kind: str
    column: int
    value: float


@dataclass(eq=False)
class ColumnStatistics:
    """c: (columns,), the first value of each numeric column, which keeps the digits of what lies
    far from 0. before, window: (3, columns), values that are not missing: their number, and the
    sums of x - c and its square. seen: uint8 (coordinates,), 1 where a row had a hashed coordinate.
    rows: (4,), rows before the window and in it, and those of either that were the first to have
    some coordinate.

    Sums are added row after row, so how rows are cut into batches changes no bit.
    """

    c: Floats
    before: Floats
    window: Floats
    seen: NDArray[np.uint8]
    rows: Floats = field(default_factory=lambda: np.zeros(4))

    @classmethod
    def none(cls, columns: int, coordinates: int) -> Self:
        """Of no rows yet."""
        empty = np.zeros((3, columns))
        return cls(np.zeros(columns), empty, empty.copy(), np.zeros(coordinates, np.uint8))

    def add(self, values: Floats, coordinates: NDArray[np.int64], row: NDArray[np.int64]) -> None:
        """Add rows to the window. values: (rows, columns), NaN where one is missing. coordinates:
        hashed ones of all rows; row: the row of each, ascending."""
        there = ~np.isnan(values)
        unknown = (self.before[COUNT] + self.window[COUNT] == 0.0) & there.any(axis=0)
        for column in np.flatnonzero(unknown).tolist():
            self.c[column] = values[there[:, column].argmax(), column]
        with np.errstate(over="ignore"):
            x = np.where(there, values - self.c, 0.0)
            terms = np.stack([there.astype(np.float64), x, x * x], axis=1)
        sums = np.concatenate([self.window[np.newaxis], terms])
        self.window = np.add.accumulate(sums, axis=0)[-1]
        fresh = self.seen[coordinates] == 0
        _, first = np.unique(coordinates[fresh], return_index=True)
        self.rows[3] += len(np.unique(row[fresh][first]))
        self.seen[coordinates] = 1
        self.rows[1] += len(values)

    def changes(self) -> list[Change]:
        """From the rows before to the window; none of the first window."""
        rows_before, rows, _, new = self.rows.tolist()
        if not rows_before or not rows:
            return []
        found = [Change("new_categories", -1, new / rows)] if len(self.seen) else []
        nulls = self.before[COUNT] / rows_before - self.window[COUNT] / rows
        found += [Change("null_rate", at, one) for at, one in enumerate(nulls.tolist())]
        both = np.flatnonzero((self.window[COUNT] > 0.0) & (self.before[COUNT] > 0.0))
        with np.errstate(all="ignore"):
            (old, spread), (mean, scatter) = (
                _moments(sums[:, both]) for sums in (self.before, self.window)
            )
            # The larger: of a column that is rarely not 0, the rows before may all be 0.
            far = np.abs(mean - old)
            far = np.where(far > 0.0, far / np.maximum(spread, scatter), 0.0)
        moved = zip(both.tolist(), far.tolist(), strict=True)
        return [*found, *(Change("mean", at, one) for at, one in moved)]

    def next_window(self) -> None:
        """The window joins the rows before it."""
        self.before, self.window = self.before + self.window, np.zeros_like(self.window)
        self.rows[[0, 2]] += self.rows[[1, 3]]
        self.rows[[1, 3]] = 0.0


def _moments(sums: Floats) -> tuple[Floats, Floats]:
    """Mean, less c, and standard deviation of each column."""
    mean, squares = sums[1:] / sums[COUNT]
    return mean, np.sqrt(np.maximum(squares - mean * mean, 0.0))


def columns_of(plan: Plan, batch: Batch) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Of a batch before missing values are replaced: what ``ColumnStatistics.add`` takes."""
    bias, count = int(plan.bias), len(plan.numeric)
    values = np.array(batch.first_columns(count, len(batch)), np.float64)
    for place, name in enumerate(plan.indicators):
        if name in plan.numeric:
            missing = _has(batch, plan.indicator_offset + place - bias)
            values[missing, plan.numeric.index(name)] = np.nan
    if isinstance(batch, DenseBatch) or not plan.hashes:
        none = np.empty(0, np.int64)
        return values, none, none
    low = plan.hashed_offset - bias
    at = np.flatnonzero((batch.indices >= low) & (batch.indices < low + (1 << plan.bits)))
    row = np.searchsorted(batch.indptr, at, side="right") - 1
    return values, batch.indices[at].astype(np.int64) - low, row


def _has(batch: Batch, index: int) -> NDArray[np.bool_]:
    """Which rows have an entry at this index."""
    if isinstance(batch, DenseBatch):
        found: NDArray[np.bool_] = batch.values[:, index] != 0.0
        return found
    there = np.zeros(len(batch), np.bool_)
    at = np.flatnonzero(batch.indices == index)
    there[np.searchsorted(batch.indptr, at, side="right") - 1] = True
    return there
