"""Lists: where each row's elements are, and lists of numbers as lists of one length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.bad_rows import CheckedValues

Indptr = NDArray[np.int64]


def of_any_length(array: pa.Array) -> pa.Array:
    """Fixed-size lists as lists; others as they are."""
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array


def elements_of(array: pa.Array) -> tuple[Indptr, pa.Array]:
    """Where each row's list begins and ends, from 0, and the elements; a null list is empty.

    >>> begins, elements = elements_of(pa.array([[7], None, [8, 9]]))
    >>> begins.tolist(), elements.to_pylist()
    ([0, 1, 1, 3], [7, 8, 9])
    """
    if array.null_count:
        counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), array.flatten()
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], array.values.slice(offsets[0], offsets[-1] - offsets[0])


def of_one_length(array: pa.Array, width: int, cells: CheckedValues) -> pa.FixedSizeListArray:
    """Lists of numbers as lists of ``width``, with 0 beyond the end of a shorter one. Notes those
    that are longer.

    >>> from streamomd.features.bad_rows import BadRows
    >>> cells = CheckedValues(BadRows(3), "v")
    >>> of_one_length(pa.array([[7], None, [8, 9]]), 2, cells).to_pylist()
    [[7, 0], None, [8, 9]]
    """
    if pa.types.is_fixed_size_list(array.type):
        return array
    begins, elements = elements_of(array)
    counts = np.diff(begins)
    cells.note(
        "ragged",
        np.flatnonzero(counts > width),
        lambda row: f"a list of {counts[row]} numbers",
        f"at most {width}, as in the first row group",
        "shorten the list or drop the row",
    )
    if (counts != width).any():
        zero = pa.array([0]).cast(elements.type)
        places = np.arange(width)
        at = np.where(places < counts[:, np.newaxis], begins[:-1, np.newaxis] + places, begins[-1])
        elements = pa.concat_arrays([elements, zero]).take(pa.array(at.reshape(-1)))
    gone = array.is_null() if array.null_count else None
    return pa.FixedSizeListArray.from_arrays(elements, width, mask=gone)
