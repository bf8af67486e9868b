"""Fields of structs as columns of their own, by path: ``address.city``.

A schema with its fields has, after each column that is a struct, a column for each of its fields,
recursively. The struct is still there: its name in ``ignore`` means all of its fields. A stored
column of a field's path is that column, and the field is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa


def with_fields(schema: pa.Schema) -> pa.Schema:
    """The schema with the fields of its structs; the same object if it has no structs.

    >>> address = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])
    >>> with_fields(pa.schema([("n", pa.int64()), ("address", address)])).names
    ['n', 'address', 'address.city', 'address.geo', 'address.geo.lat']
    """
    if not any(pa.types.is_struct(kind) for kind in schema.types):
        return schema
    names = {*schema.names}
    found = (one for field in schema for one in (field, *_fields(field, names)))
    return pa.schema(found, schema.metadata)


def _fields(field: pa.Field, names: Collection[str]) -> Iterator[pa.Field]:
    """The fields inside a struct, by their paths, without ``names``."""
    if pa.types.is_struct(field.type):
        for one in field.type:
            # Not null itself, it is where its struct is.
            found = pa.field(f"{field.name}.{one.name}", one.type)
            if found.name not in names:
                yield found
            yield from _fields(found, names)


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
    """The stored columns that hold these ones, each once; a column that is not there is itself.

    >>> roots(pa.schema([("a", pa.struct([("b", pa.int64())])), ("c", pa.int64())]), ["a.b", "c"])
    ('a', 'c')
    """
    names = {*schema.names}
    known = {inner.name: one.name for one in schema for inner in _fields(one, names)}
    return tuple(dict.fromkeys(known.get(name, name) for name in columns))


def root_among(names: Collection[str], path: str) -> str:
    """The column that a path is, or begins with, of those whose types are not known; else the path.

    >>> root_among(["a", "b"], "a.b.c"), root_among(["a"], "x.y")
    ('a', 'x.y')
    """
    if path in names:
        return path
    return next((name for name in _parents(path) if name in names), path)


def _parents(path: str) -> Iterator[str]:
    """What a path begins with at a dot, the longest first.

    >>> [*_parents("a.b.c")]
    ['a.b', 'a']
    """
    yield from reversed([*accumulate(path.split(".")[:-1], "{}.{}".format)])


def selected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns of stored rows, some of them fields of structs. A field is null where a struct
    that it is in is null."""
    stored = batch.schema.names
    names = {*stored}
    if names.issuperset(columns):
        return batch.select(columns)
    found = dict(zip(stored, batch.columns, strict=True))
    for name, column in zip(stored, batch.columns, strict=True):
        found |= _columns(name, column, names)
    return pa.RecordBatch.from_arrays([found[name] for name in columns], names=[*columns])


def table_with_fields(table: pa.Table) -> pa.Table:
    """The table with the fields of its structs as columns, in the order of ``with_fields``."""
    if with_fields(table.schema) is table.schema:
        return table
    found: list[tuple[str, pa.ChunkedArray]] = []
    names = {*table.column_names}
    for name, column in zip(table.column_names, table.columns, strict=True):
        found += [(name, column), *_columns(name, column, names)]
    return pa.Table.from_arrays([column for _, column in found], schema=with_fields(table.schema))


def _columns(parent: str, column: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The fields of a struct by their paths, in the order and with the names of ``_fields``."""
    if pa.types.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            name = f"{parent}.{field.name}"
            if name not in names:
                yield name, inner
            yield from _columns(name, inner, names)
