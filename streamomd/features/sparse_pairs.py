"""A pair of list columns, indices and values, as CSR rows: without a copy where possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.csr import Csr, canonical, row_of
from streamomd.features.lists import ELEMENTS, Indptr, elements_of
from streamomd.features.numeric import ANYTHING, expected, narrow, numbers, unfit
from streamomd.features.plan_columns import LegalValues, SparsePair

HIGHEST = (1 << 31) - 1


def sparse(
    indices: pa.Array,
    values: pa.Array,
    pair: SparsePair,
    flaws: BadRows,
    *,
    offset: int,
    dtype: Any,
    legal: LegalValues = ANYTHING,
) -> Csr | None:
    """Canonical rows: indptr from 0, indices + offset, values as ``dtype``. A null list is empty.

    Notes lists of different length, null elements, indices outside 0 … size − 1, values not finite
    or not ``legal``, and equal indices whose sum is so. None where flaws were noted: equal
    indices are summed of rows that are good otherwise, in the next turn.
    """
    indptr, keys = elements_of(indices)
    ends, numeric = elements_of(values)
    found = _found_canonical(indptr, ends, keys, numeric, pair, dtype, legal)
    if found is not None:
        return _moved(found, offset)
    _note_lengths(indptr, ends, pair, flaws)
    coordinates = _indices(keys, pair, CheckedValues(flaws, pair.indices, indptr=indptr))
    elements = CheckedValues(flaws, pair.values, indptr=ends)
    stored = numbers(_without_nulls(numeric, elements), elements, "error", legal)
    if flaws:
        return None
    stored = stored.astype(dtype, copy=False)
    rows, places, summed = canonical(indptr, coordinates, stored)
    if summed is not stored:
        _note_sums(summed, CheckedValues(flaws, pair.values, indptr=rows), legal)
    return _moved((rows, places, summed), offset)


def _moved(rows: Csr, offset: int) -> Csr:
    return (rows[0], rows[1] + np.int32(offset), rows[2]) if offset else rows


def _found_canonical(
    indptr: Indptr,
    ends: Indptr,
    keys: pa.Array,
    numeric: pa.Array,
    pair: SparsePair,
    dtype: Any,
    legal: LegalValues,
) -> Csr | None:
    """The rows as they are, if nothing is to be noted, summed or put in order, as in most batches;
    None where the checks below have to look, one after another."""
    kind = np.dtype(dtype)
    stored = keys.type == pa.int32() and numeric.type == ELEMENTS.get(kind.name)
    if not stored or keys.null_count or numeric.null_count or narrow(kind, legal.limits):
        return None
    if not np.array_equal(indptr, ends):
        return None
    rows = indptr, keys.to_numpy(), numeric.to_numpy()
    most = min(legal.largest, float(np.finfo(kind).max))
    from streamomd.features.kernels.csr_passes import checker  # late: it imports numba

    check = checker(kind.name)
    return rows if check(len(keys), *rows, min(pair.size - 1, HIGHEST), most) else None


def _note_lengths(indptr: Indptr, ends: Indptr, pair: SparsePair, flaws: BadRows) -> None:
    if np.array_equal(indptr, ends):
        return
    counts = np.diff(indptr), np.diff(ends)
    CheckedValues(flaws, pair.indices).note(
        "ragged",
        np.flatnonzero(counts[0] != counts[1]),
        lambda row: f"{counts[0][row]} indices and {counts[1][row]} values in {pair.values!r}",
        "as many values as indices",
        "fix or drop the row",
    )


def _indices(keys: pa.Array, pair: SparsePair, cells: CheckedValues) -> NDArray[np.int32]:
    found = _without_nulls(keys, cells).to_numpy(zero_copy_only=False)
    if found.dtype.itemsize < 4:
        found = found.astype(np.int32)
    # Seen as unsigned, a negative index is larger than any size: one maximum finds both.
    unsigned = found.view(f"u{found.dtype.itemsize}")
    if len(found) and int(unsigned.max()) >= pair.size:
        outside = unsigned >= pair.size
        _note_outside("negative_index", outside & (found < 0), found, pair, cells)
        _note_outside("index", outside & (found >= 0), found, pair, cells)
    coordinates: NDArray[np.int32] = found.astype(np.int32, copy=False)
    return coordinates


def _note_outside(
    reason: str,
    which: NDArray[np.bool_],
    found: NDArray[Any],
    pair: SparsePair,
    cells: CheckedValues,
) -> None:
    cells.note(
        reason,
        np.flatnonzero(which),
        lambda place: f"index {int(found[place])}",
        f"0 … {pair.size - 1} (size {pair.size})",
        f"{'fix it' if reason == 'negative_index' else 'raise data.sparse.size'} or drop the row",
    )


def _without_nulls(elements: pa.Array, cells: CheckedValues) -> pa.Array:
    """The elements, nulls noted and then 0."""
    if not elements.null_count:
        return elements
    indptr = cells.indptr
    assert indptr is not None
    cells.note(
        "null",
        np.flatnonzero(elements.is_null().to_numpy(zero_copy_only=False)),
        lambda place: f"null at place {place - int(indptr[row_of(indptr, place)])} of the list",
        "a number",
        "fix or drop the row",
    )
    return elements.fill_null(pa.scalar(0).cast(elements.type))


def _note_sums(summed: NDArray[Any], cells: CheckedValues, legal: LegalValues) -> None:
    for reason, places in unfit(summed, legal):
        outside = reason == "out_of_range"
        to = "a number out of range" if outside else "infinity or beyond float32"
        cells.note(
            reason if outside else "overflow",
            places,
            lambda _, to=to: f"equal indices whose values sum to {to}",  # type: ignore[misc]
            expected(legal) if outside else "a finite sum",
            "fix or drop the row",
        )
