"""Numbers by coordinate: all of them, or those that are not 0 with their coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weights:
    """Rows of numbers by coordinate, 0 where there is none.

    numbers: (n, columns). coordinates: int64 (n,), ascending; None: numbers has a row for each.
    """

    size: int
    numbers: Floats
    coordinates: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, numbers: Floats) -> Self:
        """All numbers, (size, columns): only those not 0 if they are fewer than half."""
        used = np.flatnonzero((numbers != 0.0).any(axis=1))
        if 2 * len(used) >= len(numbers):
            return cls(len(numbers), np.ascontiguousarray(numbers))
        return cls(len(numbers), np.ascontiguousarray(numbers[used]), used.astype(np.int64))

    @property
    def columns(self) -> int:
        """How many numbers a coordinate has."""
        return int(self.numbers.shape[1])

    def at(self, coordinate: int) -> tuple[float, ...]:
        """The numbers of a coordinate."""
        if self.coordinates is None:
            return tuple(self.numbers[coordinate].tolist())
        at = int(self.coordinates.searchsorted(coordinate))
        if at < len(self.coordinates) and self.coordinates[at] == coordinate:
            return tuple(self.numbers[at].tolist())
        return (0.0,) * self.columns

    def among(self, coordinates: Any) -> Floats:
        """The numbers of several, (…, columns)."""
        if self.coordinates is None:
            found: Floats = self.numbers[coordinates]
            return found
        wanted = np.asarray(coordinates)
        if not len(self.coordinates):
            return np.zeros((*wanted.shape, self.columns))
        at = np.minimum(self.coordinates.searchsorted(wanted), len(self.coordinates) - 1)
        found = self.numbers[at].copy()
        found[self.coordinates[at] != wanted] = 0.0
        return found
