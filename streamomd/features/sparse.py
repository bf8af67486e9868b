"""A pair of list columns, indices and values, as CSR rows: without a copy where possible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.bad import Bad, first
from streamomd.features.canonical import Csr, canonical, row_of
from streamomd.features.numeric import first_unfit, numbers
from streamomd.features.plan import Pair

Indptr = NDArray[np.int64]


def sparse(
    indices: pa.Array,
    values: pa.Array,
    pair: Pair,
    offset: int,
    dtype: Any,
    largest: float = math.inf,
) -> Csr:
    """Canonical rows: indptr from 0, indices + offset, values as ``dtype``. A null list is empty.

    Raises Bad at lists of different length, a null element, an index outside 0 … size − 1, a value
    not finite or beyond ``largest``, and equal indices whose sum is so.
    """
    indptr, keys = _lists(indices)
    ends, numeric = _lists(values)
    _check_lengths(indptr, ends, pair)
    coordinates = _indices(keys, indptr, pair)
    stored = _values(numeric, indptr, pair, largest).astype(dtype, copy=False)
    rows, places, summed = canonical(indptr, coordinates, stored)
    if summed is not stored:
        _check_sums(rows, summed, pair, largest)
    return rows, places + np.int32(offset) if offset else places, summed


def _lists(array: pa.Array) -> tuple[Indptr, pa.Array]:
    """Where each row's list begins and ends, from 0, and the elements."""
    if array.null_count:
        counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), array.flatten()
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], array.values.slice(offsets[0], offsets[-1] - offsets[0])


def _check_lengths(indptr: Indptr, ends: Indptr, pair: Pair) -> None:
    if np.array_equal(indptr, ends):
        return
    row = first(indptr != ends) - 1
    counts = [int(side[row + 1] - side[row]) for side in (indptr, ends)]
    raise Bad(
        row,
        "ragged",
        pair.indices,
        found=f"{counts[0]} indices and {counts[1]} values in {pair.values!r}",
        expected="as many values as indices",
        remedy="mend or drop the row",
    )


def _indices(keys: pa.Array, indptr: Indptr, pair: Pair) -> NDArray[np.int32]:
    _check_nulls(keys, indptr, pair.indices)
    found = keys.to_numpy(zero_copy_only=False)
    if found.dtype.itemsize < 4:
        found = found.astype(np.int32)
    # Seen as unsigned, a negative index is larger than any size: one maximum tells both.
    unsigned = found.view(f"u{found.dtype.itemsize}")
    if len(found) and int(unsigned.max()) >= pair.size:
        place = first(unsigned >= pair.size)
        value = int(found[place])
        remedy = "mend" if value < 0 else "raise data.sparse.size"
        raise Bad(
            row_of(indptr, place),
            "negative_index" if value < 0 else "index",
            pair.indices,
            found=f"index {value}",
            expected=f"0 … {pair.size - 1} (size {pair.size})",
            remedy=f"{remedy} or drop the row",
        )
    coordinates: NDArray[np.int32] = found.astype(np.int32, copy=False)
    return coordinates


def _values(numeric: pa.Array, indptr: Indptr, pair: Pair, largest: float) -> NDArray[Any]:
    _check_nulls(numeric, indptr, pair.values)
    try:
        return numbers(numeric, pair.values, "error", largest)
    except Bad as bad:
        bad.row = int(row_of(indptr, bad.row))
        raise


def _check_nulls(elements: pa.Array, indptr: Indptr, column: str) -> None:
    if not elements.null_count:
        return
    place = first(elements.is_null().to_numpy(zero_copy_only=False))
    row = int(row_of(indptr, place))
    raise Bad(
        row,
        "null",
        column,
        found=f"null at place {place - int(indptr[row])} of the list",
        expected="a number",
        remedy="mend or drop the row",
    )


def _check_sums(indptr: Indptr, summed: NDArray[Any], pair: Pair, largest: float) -> None:
    unfit = first_unfit(summed, largest)
    if unfit is None:
        return
    raise Bad(
        row_of(indptr, unfit[0]),
        "overflow",
        pair.values,
        found="equal indices whose values sum to infinity or beyond float32",
        expected="a finite sum",
        remedy="mend or drop the row",
    )
