"""Blocks of entries as CSR rows, laid side by side or taken row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.features.buffers import empty
from streamomd.features.canonical import Csr
from streamomd.features.numeric import Numbers

Places = NDArray[np.int64]
Columns = NDArray[np.int32]


def indptr_of(counts: NDArray[Any]) -> Places:
    """Where rows with these numbers of entries start, from 0, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def counted_rows(numbers: Numbers, columns: Columns, bias: int) -> Csr:
    """Canonical rows: numbers (n, w) at 0 … w − 1, then 1 at the coordinate that each of
    ``columns`` (k, n) has for a row; 2, 3, … where several have the same.

    bias: what to subtract from coordinates of columns.
    """
    from streamomd.features.kernels.csr_passes import LANES, counter, exchanges  # late: numba

    (rows, w), k = numbers.shape, len(columns)
    begins, size = np.zeros(rows + 1, np.int64), rows * (w + k)
    indices, values = empty(size, np.int32), empty(size, numbers.dtype)
    tile = np.zeros((k + 1) * LANES, np.int32)
    count = counter(values.dtype.name)
    count(
        numbers.reshape(-1), columns.reshape(-1), exchanges(k), -bias, tile, begins, indices, values
    )
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
