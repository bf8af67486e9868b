"""CSR rows: made canonical (coordinates ascend and are distinct; equal ones are summed), laid side
by side, taken row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.features.buffers import empty

Numbers = NDArray[Any]
Csr = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]
Places = NDArray[np.int64]
Columns = NDArray[np.int32]


def indptr_of(counts: NDArray[Any]) -> Places:
    """Where rows with these numbers of entries start, from 0, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def counted_rows(
    numbers: Numbers, columns: Columns, bias: int, hats: int = 0, most: int = 0
) -> Csr:
    """Canonical rows: numbers (n, w) at 0 … w − 1, then 1 at the coordinate that each of
    ``columns`` (k, n) has for a row; 2, 3, … where several have the same.

    bias: what to subtract from coordinates of columns. hats: of as many last numbers
    zeros are no entries, and at most ``most`` of a row are not 0.
    """
    from streamomd.features.kernels.csr_passes import LANES, counter, exchanges  # late: numba

    (rows, w), k = numbers.shape, len(columns)
    begins, size = np.zeros(rows + 1, np.int64), rows * (w - hats + most + k)
    room = size + 1  # a zero is written first, then written over
    indices, values = empty(room, np.int32), empty(room, numbers.dtype)
    tile = np.zeros((k + 1) * LANES, np.int32)
    count = counter(values.dtype.name)
    count(
        numbers.reshape(-1), w - hats, columns.reshape(-1), exchanges(k), -bias, tile, begins,
        indices, values,
    )  # fmt: skip
    return begins, indices[: begins[-1]], values[: begins[-1]]


def joined(blocks: Sequence[Csr]) -> Csr:
    """Blocks side by side, row by row: a row's entries of the first block, of the second, …"""
    made = blocks[0]
    for more in blocks[1:]:
        made = _side_by_side(made, more)
    return made


def _side_by_side(left: Csr, right: Csr) -> Csr:
    from streamomd.features.kernels.csr_passes import joiner  # late: it imports numba

    indptr = left[0] + right[0]
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], left[2].dtype)
    joiner(values.dtype.name)(*left, *right, indices, values)
    return indptr, indices, values


def taken(block: Csr, rows: Places) -> Csr:
    """The rows at ``rows`` of a block, in that order; a row may occur more than once."""
    begins, counts = block[0][rows], np.diff(block[0])[rows]
    indptr = indptr_of(counts)
    at = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], counts)
    return indptr, block[1][at], block[2][at]


def canonical(indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[Any]) -> Csr:
    """The same rows with ascending, distinct coordinates.

    indptr: (n + 1,), from 0. Equal coordinates of a row are summed in float64 in order of
    appearance and stored in the values' dtype (a sum may overflow to inf: the caller checks). The
    given arrays are never changed; they are returned when each row is canonical already.
    """
    rows = out_of_order(indptr, indices)
    if not len(rows):
        return indptr, indices, values
    from streamomd.features.kernels.csr_passes import sorter  # late: it imports numba

    longest = int((indptr[rows + 1] - indptr[rows]).max())
    room = np.empty(longest, np.int32), np.empty(longest, values.dtype)
    indices, values = indices.copy(), values.copy()
    sorter(values.dtype.name)(indptr, rows, indices, values, *room)
    return _merged(indptr, indices, values)


def out_of_order(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> NDArray[np.int64]:
    """The rows, ascending, in which some coordinate is not above the one before it."""
    from streamomd.features.kernels.csr_passes import faller  # late: it imports numba

    starts = _starts(indptr, len(indices))
    if faller()(indices) == np.count_nonzero(indices[starts] <= indices[starts - 1]):
        return np.empty(0, np.int64)
    falls = indices[1:] <= indices[:-1]
    falls[starts - 1] = False
    rows = row_of(indptr, np.flatnonzero(falls))  # they ascend
    return np.asarray(rows[np.diff(rows, prepend=-1) > 0])


def row_of(indptr: NDArray[np.int64], place: Any) -> Any:
    """The row, or rows, that the entries at ``place`` belong to."""
    return np.searchsorted(indptr, place, side="right") - 1


def _starts(indptr: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The places, each once, where a row begins that has entries before it."""
    inner = indptr[1:-1]
    begins = (inner > 0) & (inner < size)
    begins[1:] &= inner[1:] != inner[:-1]
    return inner[begins]


def _merged(indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[Any]) -> Csr:
    """Rows whose coordinates ascend, with equal neighbours summed."""
    from streamomd.features.kernels.csr_passes import summer  # late: it imports numba

    begins, places, sums = np.empty_like(indptr), np.empty_like(indices), np.empty_like(values)
    size = summer(values.dtype.name)(indptr, indices, values, begins, places, sums)
    if size == len(indices):
        return indptr, indices, values
    return begins, places[:size], sums[:size]
