"""Batches of canonical rows: what the features make and the engine learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SparseBatch:
    """Rows as CSR; in a row the coordinates ascend and are distinct.

    The bias is not among them: the engine adds it as coordinate 0 with value 1, so a model with a
    bias has every other coordinate at 1 or above.

    indptr: int64 (n + 1,), from 0. indices: int32 (nnz,), coordinates.
    values: float32 or float64 (nnz,). y, weight: float64 (n,).
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]
    y: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.y)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = (self.indptr, self.indices, self.values, self.y, self.weight)
        return sum(array.nbytes for array in arrays)

    def rows(self, low: int, high: int) -> SparseBatch:
        """Rows low … high − 1, without a copy of the non-zeros."""
        first, last = self.indptr[low], self.indptr[high]
        return SparseBatch(
            self.indptr[low : high + 1] - first,
            self.indices[first:last],
            self.values[first:last],
            self.y[low:high],
            self.weight[low:high],
        )


@dataclass(frozen=True, slots=True, eq=False)
class DenseBatch:
    """Rows as a matrix: column c is coordinate c, or c + 1 in a model with a bias.

    values: float32 or float64 (n, m), C order. y, weight: float64 (n,).
    """

    values: NDArray[Any]
    y: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.y)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.values.nbytes + self.y.nbytes + self.weight.nbytes

    def rows(self, low: int, high: int) -> DenseBatch:
        """Rows low … high − 1, without a copy."""
        return DenseBatch(self.values[low:high], self.y[low:high], self.weight[low:high])


Batch = SparseBatch | DenseBatch
