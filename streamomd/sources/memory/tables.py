"""Frames of any library as Arrow tables, and the columns that arrays would have in a shard."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError
from streamomd.core.urls import scrub
from streamomd.features.nested import table_with_fields
from streamomd.shards.prediction_files import as_arrow
from streamomd.sources.memory.frames import FEATURES, table_of

INDICES, VALUES = "indices", "values"


def names_of(frame: Any) -> list[str] | None:
    """The columns of what comes through Arrow's C stream; None of anything else.

    Also of a frame with a name that is no text: Arrow has no such names.

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
        kind = pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
        schema = pa.schema([(FEATURES, kind)])
    for name, values in extra.items():
        try:
            schema = schema.append(pa.field(name, as_arrow(values).type))
        except pa.ArrowException as error:
            raise DataError(f"{name} has no single type: {scrub(str(error))}") from error
    return schema
