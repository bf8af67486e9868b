"""Fields of structs as columns of their own, by path: ``address.city``.

A schema with its fields has, after each column that is a struct, a column for each of its fields,
recursively. The struct is still there: its name in ``ignore`` means all of its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa


def with_fields(schema: pa.Schema) -> pa.Schema:
    """The schema with the fields of its structs; the same object if it has no structs.

    >>> address = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])
    >>> with_fields(pa.schema([("n", pa.int64()), ("address", address)])).names
    ['n', 'address', 'address.city', 'address.geo', 'address.geo.lat']
    """
    if not any(pa.types.is_struct(kind) for kind in schema.types):
        return schema
    return pa.schema((one for field in schema for one in _fields(field, "")), schema.metadata)


def _fields(field: pa.Field, parent: str) -> Iterator[pa.Field]:
    """A field by its path, then those inside it; each may be null where its struct is."""
    name = parent + field.name
    yield field.with_name(name) if not parent else pa.field(name, field.type)
    if pa.types.is_struct(field.type):
        for inside in field.type:
            yield from _fields(inside, f"{name}.")


def is_container(kind: pa.DataType) -> bool:
    """Whether a column is a struct, of which the fields are the columns."""
    return bool(pa.types.is_struct(kind) and kind.num_fields)


def inside(name: str, containers: Iterable[str]) -> bool:
    """Whether a column is a field of one of these structs, or of a struct inside it.

    >>> inside("address.geo.lat", ["address"]), inside("address", ["address"])
    (True, False)
    """
    return any(name.startswith(f"{container}.") for container in containers)


def roots(schema: pa.Schema, columns: Iterable[str]) -> tuple[str, ...]:
    """The stored columns that hold these ones, each once."""
    return tuple(dict.fromkeys(_root(schema, name) for name in columns))


def _root(fields: Iterable[pa.Field], path: str) -> str:
    """The field of that name, or the struct that the path begins with; the path without either."""
    known = list(fields)
    if any(field.name == path for field in known):
        return path
    structs = {field.name for field in known if is_container(field.type)}
    return next((name for name in _parents(path) if name in structs), path)


def _parents(path: str) -> Iterator[str]:
    """What a path begins with at a dot, the longest first.

    >>> [*_parents("a.b.c")]
    ['a.b', 'a']
    """
    yield from reversed([*accumulate(path.split(".")[:-1], "{}.{}".format)])


def selected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns of stored rows, some of them fields of structs. A field is null where a struct
    that it is in is null."""
    names = batch.schema.names
    if all(name in names for name in columns):
        return batch.select(columns)
    arrays = [_column(batch, name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*columns])


def _column(batch: pa.RecordBatch, path: str) -> pa.Array:
    root = _root(batch.schema, path)
    found = batch.column(root)
    return found if root == path else _field(found, path[len(root) + 1 :])


def _field(array: pa.StructArray, path: str) -> pa.Array:
    name = _root(array.type, path)
    found = array.flatten()[array.type.get_field_index(name)]
    return found if name == path else _field(found, path[len(name) + 1 :])


def table_with_fields(table: pa.Table) -> pa.Table:
    """The table with the fields of its structs as columns, in the order of ``with_fields``."""
    if with_fields(table.schema) is table.schema:
        return table
    columns = [
        one
        for field, column in zip(table.schema, table.columns, strict=True)
        for one in _columns(field.type, column)
    ]
    return pa.Table.from_arrays(columns, schema=with_fields(table.schema))


def _columns(kind: pa.DataType, column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    yield column
    if pa.types.is_struct(kind):
        for field, found in zip(kind, column.flatten(), strict=True):
            yield from _columns(field.type, found)
