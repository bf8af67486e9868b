"""Rows made canonical: coordinates ascend and are distinct; equal ones are summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 16
Csr = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]


def canonical(indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[Any]) -> Csr:
    """The same rows with ascending, distinct coordinates.

    indptr: (n + 1,), from 0. Equal coordinates of a row are summed in float64 in order of
    appearance and stored in the values' dtype (a sum may overflow to inf: the caller looks). The
    arrays given are never changed; they are handed back as they are when each row is canonical.
    """
    rows = out_of_order(indptr, indices)
    if not len(rows):
        return indptr, indices, values
    from streamomd.engine.csr import sorter  # numba is for those who need it

    longest = int((indptr[rows + 1] - indptr[rows]).max())
    room = np.empty(longest, np.int32), np.empty(longest, values.dtype)
    indices, values = indices.copy(), values.copy()
    sorter(values.dtype.name)(indptr, rows, indices, values, *room)
    return _merged(indptr, indices, values)


def out_of_order(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> NDArray[np.int64]:
    """The rows, ascending, in which some coordinate is not above the one before it."""
    starts = _starts(indptr, len(indices))
    if _count_falls(indices) == np.count_nonzero(indices[starts] <= indices[starts - 1]):
        return np.empty(0, np.int64)
    falls = indices[1:] <= indices[:-1]
    falls[starts - 1] = False
    rows = row_of(indptr, np.flatnonzero(falls))  # they ascend
    return np.asarray(rows[np.diff(rows, prepend=-1) > 0])


def _count_falls(indices: NDArray[np.int32]) -> int:
    """How many are not above the one before; counted in blocks, whose memory stays in the cache (a
    third of the time of comparing all at once).
    """
    falls, found = np.empty(_BLOCK, np.bool_), 0
    for low in range(0, len(indices) - 1, _BLOCK):
        after = indices[low + 1 : low + 1 + _BLOCK]
        block = falls[: len(after)]
        np.less_equal(after, indices[low : low + len(after)], out=block)
        found += int(np.count_nonzero(block))
    return found


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
    from streamomd.engine.csr import summer  # numba is for those who need it

    begins, places, sums = np.empty_like(indptr), np.empty_like(indices), np.empty_like(values)
    size = summer(values.dtype.name)(indptr, indices, values, begins, places, sums)
    if size == len(indices):
        return indptr, indices, values
    return begins, places[:size], sums[:size]
