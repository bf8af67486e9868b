"""Values of columns, next to the encoded rows: what statistics of columns are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
SHIFT = 32
"""A key of a category is its column's place times 2^32, plus its hashed coordinate, from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnValues:
    """Values of n rows. numbers: float64 (n, numeric columns), NaN where a value is missing.
    categories: the keys of each row's categories, row after row; indptr: int64 (n + 1,), from 0,
    where the keys of a row begin."""

    numbers: NDArray[np.float64]
    indptr: NDArray[np.int64]
    categories: Keys

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numbers.nbytes + self.indptr.nbytes + self.categories.nbytes

    def rows(self, low: int, high: int) -> ColumnValues:
        """Rows low … high − 1, without a copy of the values."""
        first, last = self.indptr[low], self.indptr[high]
        begins = self.indptr[low : high + 1] - first
        return ColumnValues(self.numbers[low:high], begins, self.categories[first:last])

    def taken(self, order: NDArray[np.int64]) -> ColumnValues:
        """A selection of rows, in the given order."""
        lengths = np.diff(self.indptr)[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(indptr[-1]) + np.repeat(self.indptr[order] - indptr[:-1], lengths)
        return ColumnValues(self.numbers[order], indptr, self.categories[at])


def joined_values(parts: Sequence[ColumnValues | None]) -> ColumnValues | None:
    """Rows one after the other; None unless all have values."""
    given = [part for part in parts if part is not None]
    if not given or len(given) < len(parts):
        return None
    lengths = np.concatenate([np.diff(part.indptr) for part in given])
    return ColumnValues(
        np.concatenate([part.numbers for part in given]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([part.categories for part in given]),
    )
