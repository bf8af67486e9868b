"""Columns of rows that a file does not store so: constant in it, absent, or of another name."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.features.arrow_types import PARTITION_TYPES
from streamomd.features.bad_rows import Conflict, shown
from streamomd.shards.row_filter import columns_of
from streamomd.shards.shard import Constant, Shard

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEAST, _LARGEST = -(2**63), 2**63 - 1


def read_columns(shard: Shard, columns: Sequence[str]) -> list[str]:
    """These columns, and those of the shard's filter."""
    more = columns_of(shard.row_filter) if shard.row_filter is not None else []
    return [*columns, *(name for name in more if name not in columns)]


def stored_columns(shard: Shard, columns: Sequence[str]) -> tuple[str, ...]:
    """What is read of a file for columns of its rows: at least one, because it has the rows."""
    names = shard.stored_schema.names
    constant = {one.column for one in shard.constants}
    wanted = [name for name in columns if not _is_absent(shard, name)]
    stored = [(name, shard.stored_name(name)) for name in wanted]
    found = tuple(file for name, file in stored if name not in constant or file in names)
    flat = [field.name for field in shard.stored_schema if not pa.types.is_nested(field.type)]
    return found or tuple((flat or names)[:1])


def _is_absent(shard: Shard, column: str) -> bool:
    """Whether a column of the rows is one of its table that the file does not have."""
    return shard.projection is not None and shard.projection.null(column) is not None


def with_constant_columns(
    shard: Shard, batch: pa.RecordBatch, columns: Sequence[str]
) -> tuple[pa.RecordBatch, tuple[Conflict, ...]]:
    """Stored rows with the constant columns among ``columns``, in that order; and which rows of
    the file have another value."""
    arrays, conflicts = [], []
    for name in columns:
        constant = shard.constant(name)
        absent = shard.projection and shard.projection.null(name)
        if absent is not None:
            arrays.append(pa.nulls(batch.num_rows, absent))
            continue
        place = batch.schema.get_field_index(shard.stored_name(name))
        if constant is None:
            arrays.append(batch.column(place))
            continue
        arrays.append(_repeated(constant, batch.num_rows))
        if place >= 0:
            conflicts += _conflicts(constant, batch.column(place))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns)), tuple(conflicts)


def _repeated(constant: Constant, rows: int) -> pa.Array:
    kind, value = PARTITION_TYPES[constant.kind], constant.value
    if value is None:
        return pa.nulls(rows, kind)
    if pa.types.is_dictionary(kind):
        indices = pa.array(np.zeros(rows, np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind.value_type))
    return pa.repeat(pa.scalar(value, kind), rows)


def _conflicts(constant: Constant, stored: pa.Array) -> list[Conflict]:
    """The rows whose stored value is not that of their directory."""
    if pa.types.is_timestamp(stored.type):
        stored = stored.cast(pa.timestamp("us"), safe=False)
    coded = stored if pa.types.is_dictionary(stored.type) else stored.dictionary_encode()
    agree = [_is_value(constant, value) for value in [*coded.dictionary.to_pylist(), None]]
    codes = coded.indices.cast(pa.int64()).fill_null(len(agree) - 1)
    rows = np.flatnonzero(~np.array(agree)[codes.to_numpy(zero_copy_only=False)])
    if not len(rows):
        return []
    text = "null" if constant.text is None else repr(constant.text)
    expected = f"{text}, as its directory {constant.column}=… says"
    return [Conflict(constant.column, rows, lambda row: shown(stored[row].as_py()), expected)]


def _is_value(constant: Constant, stored: Any) -> bool:
    """Whether a stored value is what the directory's text means in the type of the file."""
    text = constant.text
    if text is None or stored is None:
        return text is stored
    try:
        if isinstance(stored, str):
            return stored == text or parse_value(constant.kind, stored) == constant.value
        if isinstance(stored, bool):
            return str(stored).lower() == text.lower()
        if isinstance(stored, datetime.datetime):
            return stored == datetime.datetime.fromisoformat(text)
        kind = datetime.date.fromisoformat if isinstance(stored, datetime.date) else type(stored)
        return bool(stored == kind(text))
    except ValueError:
        return False


def parse_value(kind: str, text: str) -> Any:
    """The value of a directory's text, None if it is of another kind.

    >>> parse_value("integer", "01"), parse_value("date", "2026-01-31"), parse_value("date", "x")
    (1, datetime.date(2026, 1, 31), None)
    """
    if kind == "integer":
        number = int(text) if _INTEGER.fullmatch(text) else _LARGEST + 1
        return number if _LEAST <= number <= _LARGEST else None
    if kind == "date":
        try:
            return datetime.date.fromisoformat(text) if _DATE.fullmatch(text) else None
        except ValueError:
            return None
    return text
