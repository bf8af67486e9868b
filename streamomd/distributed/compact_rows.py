"""Slices of dense rows as the owners send them: without zeros, where that takes fewer bytes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import DenseBatch
from streamomd.core.jit import compiled, int64, read, written

MOST = 1 << 31  # values of a matrix whose places are int32


@dataclass(frozen=True, slots=True, eq=False)
class CompactRows:
    """A dense batch: the values of its matrix that are not 0, and their places in it, ascending.

    rows: the batch with no column.
    """

    columns: int
    places: NDArray[np.int32]
    values: NDArray[Any]
    rows: DenseBatch

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.places.nbytes + self.values.nbytes + self.rows.nbytes

    def restored(self) -> DenseBatch:
        """The batch. Of -0.0 it has 0.0: loops pass over both."""
        matrix = np.zeros((len(self.rows), self.columns), dtype=self.values.dtype)
        _kernel(_spread, self.values.dtype.name)(self.places, self.values, matrix.reshape(-1))
        return replace(self.rows, values=matrix)


def compacted(batch: DenseBatch, first: int, last: int) -> CompactRows | None:
    """The columns first … last − 1 of a batch; None if a matrix takes no more bytes."""
    values, width = batch.values, last - first
    size, each = len(batch) * width, values.itemsize
    most = size * each // (each + 4)
    if size >= MOST:
        return None
    room = most + width + 1
    places, found = np.empty(room, np.int32), np.empty(room, values.dtype)
    given = values.reshape(-1), len(batch), values.shape[1], first, last
    count = _kernel(_compact, values.dtype.name)(*given, most, places, found)
    if count > most:
        return None
    none = np.empty((len(batch), 0), values.dtype)
    rows = replace(batch, values=none)
    return CompactRows(width, places[:count].copy(), found[:count].copy(), rows)


def _compact(
    values: Any, rows: int, columns: int, first: int, last: int, most: int, places: Any, found: Any
) -> int:
    """Values that are not 0; it ends after the row in which they are more than ``most``."""
    at = 0
    for i in range(rows):
        for j in range(first, last):  # no branch: it would often be predicted wrong
            x = values[i * columns + j]
            places[at] = i * (last - first) + j - first
            found[at] = x
            at += x != 0.0
        if at > most:
            break
    return at


def _spread(places: Any, values: Any, matrix: Any) -> None:
    for at in range(len(places)):
        matrix[places[at]] = values[at]


@functools.cache
def _kernel(function: Any, dtype: str) -> Any:
    if function is _spread:
        return compiled(_spread, read("int32"), read(dtype), written(dtype))
    given = read(dtype), int64, int64, int64, int64, int64
    return compiled(_compact, *given, written("int32"), written(dtype))
