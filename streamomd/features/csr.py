"""Blocks of entries as CSR rows, laid side by side or taken row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.features.canonical import Csr

Places = NDArray[np.int64]


def indptr_of(counts: NDArray[Any]) -> Places:
    """Where rows of so many entries begin, from 0, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def uniform(values: NDArray[Any], indices: NDArray[np.int32]) -> Csr:
    """Rows of one length as CSR; indices (n, w), or (w,) for all rows."""
    rows, width = values.shape
    places = np.broadcast_to(indices, (rows, width)).reshape(-1)
    return np.arange(rows + 1, dtype=np.int64) * width, places, values.reshape(-1)


def joined(blocks: Sequence[Csr]) -> Csr:
    """Blocks side by side, row by row: a row's entries of the first block, of the second, …"""
    if len(blocks) == 1:
        return blocks[0]
    indptr = sum((block[0] for block in blocks[1:]), blocks[0][0])
    indices = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], blocks[0][2].dtype)
    for place, block in zip(_places(indptr, [b[0] for b in blocks]), blocks, strict=True):
        indices[place], values[place] = block[1], block[2]
    return indptr, indices, values


def taken(block: Csr, rows: Places) -> Csr:
    """The rows at ``rows`` of a block, in that order, each as often as it is asked for."""
    begins, counts = block[0][rows], np.diff(block[0])[rows]
    indptr = indptr_of(counts)
    at = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], counts)
    return indptr, block[1][at], block[2][at]


def _places(indptr: Places, parts: list[Places]) -> Iterable[Places]:
    """Where the entries of each block go."""
    start = indptr[:-1]
    for part in parts:
        counts = np.diff(part)
        yield np.arange(part[-1]) + np.repeat(start - part[:-1], counts)
        start = start + counts
