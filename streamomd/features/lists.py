"""Lists: where each row's elements are, lists of numbers stored as binary columns, and pairs of
list columns, indices and values, as CSR rows: without a copy where possible.

A Parquet reader decodes a level for each element of a list, to find where the lists end. A binary
cell has one length. The schema's metadata says which columns are such lists, and of which numbers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.arrow_types import NUMBERS, family, is_list_of
from streamomd.features.bad_rows import BadRows, CheckedValues, Conflict
from streamomd.features.csr import Csr, canonical, row_of
from streamomd.features.numeric import ANYTHING, expected, narrow, numbers, unfit
from streamomd.features.plan_columns import LegalValues, SparsePair

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


METADATA_KEY = b"streamomd.binary_lists"
"""A JSON object: the name of each such column, and the type of its elements."""
ELEMENTS = {
    "int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64()
}  # fmt: skip
"""Elements by their names in the metadata, which numpy has, too."""
_MOST_ELEMENTS = (1 << 31) - 1
REMEDY = "write the shard again, or drop the row"
Kinds = Mapping[str, pa.DataType]


def declared(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The binary columns that the metadata declares as lists, and the types of their elements.

    Metadata that is not as `METADATA_KEY` says declares nothing: the columns are binary then.

    >>> kinds = pa.schema([("i", pa.binary())], {METADATA_KEY: '{"i": "int32", "other": "int32"}'})
    >>> declared(kinds)
    {'i': DataType(int32)}
    """
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return {}
    kinds = _named(text)
    found = ((one.name, kinds.get(one.name)) for one in schema if family(one.type) == "binary")
    return {name: kind for name, kind in found if kind is not None}


@functools.lru_cache(maxsize=16)
def _named(text: bytes) -> dict[str, pa.DataType | None]:
    """The types of elements by column; None for another type. Each batch of a shard asks."""
    try:
        named = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(named, dict):
        return {}
    return {name: ELEMENTS.get(str(kind)) for name, kind in named.items()}


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list whose elements are never null, as binary ones cannot be."""
    return pa.list_(pa.field("element", kind, nullable=False))


def with_lists(schema: pa.Schema) -> pa.Schema:
    """The schema with the lists that binary columns are; the same object if there are none."""
    if not (kinds := declared(schema)):
        return schema
    fields = [
        one.with_type(list_of(kinds[one.name])) if one.name in kinds else one for one in schema
    ]
    return pa.schema(fields, schema.metadata)


def decoded(batch: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, tuple[Conflict, ...]]:
    """The batch with these binary columns as lists, and the rows whose bytes are no list.

    Those are empty then. The elements are not copied, unless their bytes are not aligned.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    conflicts: list[Conflict] = []
    for name, kind in ((name, kinds[name]) for name in columns if name in kinds):
        column = columns[name]
        sizes = _sizes(column)
        odd = np.flatnonzero(sizes & (kind.bit_width // 8 - 1))
        conflicts += [_conflict(name, odd, sizes, kind)] if len(odd) else []
        columns[name] = _lists(column, odd, kind)
    return pa.RecordBatch.from_pydict(columns), tuple(conflicts)


def _sizes(column: pa.Array) -> Any:
    """Bytes of each cell; 0 of a null."""
    return np.diff(_offsets(_without_nulls(column)))


def _conflict(name: str, odd: Any, sizes: Any, kind: pa.DataType) -> Conflict:
    width = kind.bit_width // 8
    return Conflict(
        name,
        odd,
        lambda row: f"{int(sizes[row])} bytes",
        f"a multiple of {width}: a list of {kind}, as the schema's metadata says",
        "binary_list",
        REMEDY,
    )


def _lists(column: pa.Array, odd: Any, kind: pa.DataType) -> pa.ListArray:
    nulls = column.is_null() if column.null_count else None
    column = _without_nulls(column)
    if len(odd):
        cells = column.to_pylist()
        for row in odd.tolist():
            cells[row] = b""
        column = pa.array(cells, column.type)
    offsets, width = _offsets(column), kind.bit_width // 8
    first, last = int(offsets[0]), int(offsets[-1])
    data = column.buffers()[2]
    elements = pa.py_buffer(b"") if data is None else data.slice(first, last - first)
    if elements.address % width:
        elements = pa.py_buffer(elements.to_pybytes())
    values = pa.Array.from_buffers(kind, (last - first) // width, [None, elements])
    shift = width.bit_length() - 1  # numpy's division takes twenty times as long
    begins = (offsets - first) >> shift
    if begins[-1] > _MOST_ELEMENTS:
        raise pa.ArrowInvalid(f"lists of {begins[-1]:,} elements together in a record batch")
    begins = pa.array(begins.astype(np.int32))
    return pa.ListArray.from_arrays(begins, values, type=list_of(kind), mask=nulls)


def _without_nulls(column: pa.Array) -> pa.Array:
    """A binary column of any kind as plain or large binary, a null as no bytes."""
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        # Not cast: pyarrow takes other cells of a slice of binary views.
        column = pa.array(column.to_pylist(), pa.large_binary())
    return column.fill_null(b"") if column.null_count else column


def _offsets(column: pa.Array) -> Any:
    """Where each cell begins in the column's bytes, and where the last one ends: int64."""
    large = pa.types.is_large_binary(column.type)
    held = column.buffers()[1]
    if held is None or not len(column):
        return np.zeros(1, np.int64)
    found = np.frombuffer(held, np.int64 if large else np.int32)
    return found[column.offset : column.offset + len(column) + 1].astype(np.int64)


def stored_as_binary(schema: pa.Schema) -> pa.Schema:
    """The schema with binary columns in place of its lists of numbers, declared in its metadata."""
    names = {kind: name for name, kind in ELEMENTS.items()}
    lists = [one for one in schema if is_list_of(one.type, NUMBERS)]
    named = {one.name: names[one.type.value_type] for one in lists if one.type.value_type in names}
    fields = [one.with_type(pa.binary()) if one.name in named else one for one in schema]
    return pa.schema(fields, {**(schema.metadata or {}), METADATA_KEY: json.dumps(named)})


def encoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of ``stored_as_binary``, which ``schema`` is. No list, and none of
    its elements, is null."""
    names = declared(schema)
    columns = [
        _binary(batch.column(one.name)) if one.name in names else batch.column(one.name)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _binary(lists: pa.ListArray) -> pa.BinaryArray:
    begins, elements = elements_of(lists)
    values = np.ascontiguousarray(elements.to_numpy(zero_copy_only=False))
    offsets = (begins * values.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(lists), buffers)


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
    canonical_rows = _found_canonical(indptr, ends, keys, numeric, pair, dtype, legal)
    if canonical_rows is not None:
        return _moved(canonical_rows, offset)
    _note_lengths(indptr, ends, pair, flaws)
    coordinates = _indices(keys, pair, CheckedValues(flaws, pair.indices, indptr=indptr))
    elements = CheckedValues(flaws, pair.values, indptr=ends)
    stored = numbers(_with_zeros(numeric, elements), elements, "error", legal)
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
    found = _with_zeros(keys, cells).to_numpy(zero_copy_only=False)
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


def _with_zeros(elements: pa.Array, cells: CheckedValues) -> pa.Array:
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
