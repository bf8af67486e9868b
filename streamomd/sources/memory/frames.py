"""Rows in memory, frames of any library or arrays, as Arrow tables and the batches of a shard."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import scrub
from streamomd.features.arrow_types import root_among, table_with_fields
from streamomd.shards.distinct_values import distinct
from streamomd.shards.formats.contract import cut
from streamomd.shards.output_files import as_arrow

INDICES, VALUES = "indices", "values"


def names_of(frame: Any) -> list[str] | None:
    """The columns of what comes through Arrow's C stream; None of anything else.

    Also of a frame with a column name that is not text: Arrow has no such names.

    >>> names_of(pa.table({"age": [41], "job": ["nurse"]})), names_of([[41.0]])
    (['age', 'job'], None)
    """
    if not hasattr(frame, "__arrow_c_stream__") or len(getattr(frame, "shape", ())) != 2:
        return None
    # Of Arrow's tables ``columns`` are the arrays; of other frames ``column_names`` may be one.
    arrow = hasattr(type(frame), "column_names")
    names = list(frame.column_names if arrow else frame.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def arrow_of(frame: Any, where: str) -> pa.Table:
    """A frame (pandas, polars, Arrow, …) as the table that it would write to Parquet.

    pandas: NaN and None are nulls, and the index is dropped. Fields of structs are columns too.
    Raises DataError for a column that has no single type, ``where`` it is.
    """
    pandas = sys.modules.get("pandas")  # a pandas frame implies that pandas is imported
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        # pandas' own conversion: its NaN are nulls, which Arrow's stream would have as numbers.
        return table_of([frame], where)
    try:
        return table_with_fields(pa.table(frame))
    except pa.ArrowException as error:
        raise DataError(f"{where} cannot be converted to Arrow: {scrub(str(error))}") from error


def schema_of(rows: Any, extra: Mapping[str, Any]) -> pa.Schema:
    """The columns that rows would have in a shard: a table's own; an array's, one column of
    vectors; a CSR matrix's, a pair of lists. Then those ``extra``, of the type of their values.

    Raises DataError for values of no single type.
    """
    if isinstance(rows, pa.Table):
        schema = rows.schema
    elif hasattr(rows, "indptr"):
        lists = pa.list_(pa.int32()), pa.list_(pa.from_numpy_dtype(rows.dtype))
        schema = pa.schema(zip((INDICES, VALUES), lists, strict=True))
    else:
        # Of a fixed size: a shard's lists of one length are read as a vector.
        kind = pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
        schema = pa.schema([(FEATURES, kind)])
    for name, values in extra.items():
        try:
            schema = schema.append(pa.field(name, as_arrow(values).type))
        except pa.ArrowException as error:
            raise DataError(f"{name} has no single type: {scrub(str(error))}") from error
    return schema


FEATURES, LABEL, WEIGHT = "X", "y", "w"
"""Column names of arrays."""
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp with a zone": pa.timestamp("us", "UTC"),
}


def table_of(parts: Sequence[Any], where: str) -> pa.Table:
    """A pandas frame as a table; or arrays: X (n, m), and perhaps y (n,) and weights (n,).

    The types are those of the Parquet file that pandas would write: NaN and None are nulls, except
    in columns of Arrow's own types; a frame's index is dropped. Fields of structs are columns too.
    X becomes a column of fixed-size lists. Raises DataError for what has no such form, ``where`` it
    came from.
    """
    try:
        arrays = len(parts) > 1 or isinstance(parts[0], np.ndarray)
        return _columned(parts, where) if arrays else _framed(parts[0], where)
    except pa.ArrowException as error:
        text = scrub(" ".join(str(part) for part in error.args))
        raise DataError(
            f"{where} cannot be converted to Arrow ({text}): every column needs a single type"
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:  # Python's own, of single values
        raise DataError(
            f"{where} cannot be converted to Arrow ({error}): expected whole numbers of at most 64 "
            "bits, and text that UTF-8 can encode"
        ) from None


def _framed(frame: Any, where: str) -> pa.Table:
    if not isinstance(frame, _pandas().DataFrame):
        raise DataError(f"{where} is a {type(frame).__name__}, expected a pandas DataFrame")
    return table_with_fields(pa.Table.from_pandas(frame, preserve_index=False))


def _columned(parts: Sequence[Any], where: str) -> pa.Table:
    arrays = [np.asarray(part) for part in parts]
    shapes = [array.shape for array in arrays]
    if [len(shape) for shape in shapes] != [2, 1, 1][: len(parts)]:
        kinds = ", ".join(f"{type(part).__name__} {np.shape(part)}" for part in parts)
        raise DataError(f"{where} holds {kinds}; expected dense arrays X (n, m), y (n,), w (n,)")
    if len({shape[0] for shape in shapes}) > 1:
        raise DataError(f"{where}: its arrays have {', '.join(str(s[0]) for s in shapes)} rows")
    named = zip((FEATURES, LABEL, WEIGHT), arrays, strict=False)
    return pa.table({name: as_arrow(array) for name, array in named})


def without_null_types(table: pa.Table, families: Mapping[str, str]) -> pa.Table:
    """A column of Python objects that are all None, or empty lists, has no type: it is given its
    family's. So have fields of structs that are all None."""
    names = [*table.column_names]
    empty = [field.name for field in table.schema if pa.types.is_null(field.type)]
    for name, family in families.items():
        kind = _type_of(family)
        # A field of a struct that is None in all rows has no column at all.
        if name not in names and kind is not None and root_among(empty, name) != name:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    for at, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        wanted = _type_of(families.get(field.name, ""))
        if wanted is None:
            continue
        if pa.types.is_null(kind):
            table = table.set_column(at, field.name, pa.nulls(table.num_rows, wanted))
        elif kind == pa.list_(pa.null()) and pa.types.is_list(wanted):
            table = table.set_column(at, field.name, table.column(at).cast(wanted))
    return table


def _type_of(family: str) -> pa.DataType | None:
    """A type of a family, if one is known."""
    element = _TYPES.get(family.removeprefix("list<").removesuffix(">"))
    return pa.list_(element) if element and family.startswith("list<") else element


def batches(table: pa.Table, begin: int, unit_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(first row, rows) from row ``begin``, in batches of at most ``unit_bytes`` or one row."""
    row = begin
    for whole in table.slice(begin).combine_chunks().to_batches():
        for batch in cut(whole, unit_bytes):
            yield row, batch
            row += batch.num_rows


def distinct_in(table: pa.Table, column: str, limit: int) -> list[Any]:
    """Distinct values of a column that is there and flat, in no order; at most ``limit`` + 1."""
    if column not in table.schema.names or pa.types.is_nested(table.schema.field(column).type):
        return []
    found: set[Any] = set()
    for batch in table.select([column]).to_batches():
        found.update(distinct(batch.column(0)))
    return list(found)[: limit + 1]


def frame_of(columns: Mapping[str, Any], index: Any) -> Any:
    """A pandas frame of Arrow's types; columns are numpy (2-d ones become lists) or Arrow arrays.

    index: the frame's, or None for 0, 1, 2 ….
    """
    # By way of Arrow, whose whole numbers have nulls.
    table = pa.table({name: as_arrow(column) for name, column in columns.items()})
    frame = table.to_pandas(types_mapper=_pandas().ArrowDtype)
    return frame if index is None else frame.set_axis(index, axis=0)


def _pandas() -> Any:
    """Imported when it is needed: it is slow, and an extra."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise UsageError(
            f"Dask DataFrames need pandas, here and on the workers ({error}): "
            "pip install 'streamomd[collections]'"
        ) from None
