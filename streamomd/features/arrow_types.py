"""Families of Arrow types: what a column may be used as, and may turn into between shards;
fields of structs as columns of their own, by path: ``address.city``.

A schema with its fields has, after each column that is a struct, a column for each of its fields,
recursively. The struct is still there: its name in ``ignore`` means all of its fields. A stored
column of a field's path is that column, and the field is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from streamomd.core.message import PerReader, Words

NUMBERS = ("integer", "float")
SCALARS = ("integer", "float", "boolean")
MEASURED = (*SCALARS, "decimal", "duration", "time")
"""What a numeric column may be; durations and times of day are seconds."""
TEXTS = ("string", "binary")
DATES = ("date", "timestamp", "timestamp with a zone")
MOMENTS = (*DATES, "integer")
"""What ``data.time`` may be; integers are seconds since 1970."""
CROSSED = ("string", "binary", "integer", "boolean")
CATEGORIES = (*TEXTS, *SCALARS)
"""What a category may be, and each element of a list of categories."""
PARTITION_TYPES = {
    "integer": pa.int64(),
    "date": pa.date32(),
    "category": pa.dictionary(pa.int32(), pa.string()),
}
"""The types of the columns of key=value directories, by kind."""

_NAMES = (
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("boolean", pa.types.is_boolean),
    ("string", lambda t: t in (pa.string(), pa.large_string(), pa.string_view())),
    ("binary", lambda t: t in (pa.binary(), pa.large_binary(), pa.binary_view())),
    ("binary", pa.types.is_fixed_size_binary),
    ("decimal", pa.types.is_decimal),
    ("duration", pa.types.is_duration),
    ("time", pa.types.is_time),
    ("date", pa.types.is_date),
    ("timestamp", lambda t: pa.types.is_timestamp(t) and t.tz is None),
    ("timestamp with a zone", pa.types.is_timestamp),
)


@functools.lru_cache(256)  # called for each column of each batch
def family(kind: pa.DataType) -> str:
    """The family of a type: shards may differ within it, never out of it.

    >>> family(pa.int8()), family(pa.dictionary(pa.int32(), pa.string()))
    ('integer', 'string')
    >>> family(pa.large_list(pa.float32())), family(pa.list_(pa.float32(), 3))
    ('list<float>', 'vector<float>[3]')
    >>> family(pa.timestamp("us")), family(pa.timestamp("ns", "Asia/Tokyo"))
    ('timestamp', 'timestamp with a zone')
    """
    if pa.types.is_dictionary(kind):
        inner = family(kind.value_type)
        return inner if inner in (*SCALARS, *TEXTS) else str(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_element(kind)}>"
    if pa.types.is_fixed_size_list(kind):
        return f"vector<{_element(kind)}>[{kind.list_size}]"
    return next((name for name, holds in _NAMES if holds(kind)), str(kind))


def is_vector(kind: pa.DataType) -> bool:
    """Whether a type is a fixed-size list of numbers."""
    return bool(pa.types.is_fixed_size_list(kind)) and _element(kind) in NUMBERS


def is_number_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of numbers, of one length or not."""
    return is_vector(kind) or is_list_of(kind, NUMBERS)


def is_list_of(kind: pa.DataType, families: tuple[str, ...]) -> bool:
    """Whether a type is a list (of varying length) of plain elements of these families."""
    return family(kind) in {f"list<{name}>" for name in families}


def is_category_list(of: str) -> bool:
    """Whether a family is that of lists, of one length or not, of what may be a category.

    >>> is_category_list("list<string>"), is_category_list("vector<integer>[2]")
    (True, True)
    """
    kind, _, element = of.partition("<")
    return kind in ("list", "vector") and element.partition(">")[0] in CATEGORIES


def is_text_list(of: str) -> bool:
    """Whether a family is that of lists of strings, which are categories without being named."""
    kind, _, element = of.partition("<")
    return kind in ("list", "vector") and element.partition(">")[0] == "string"


def plain(kind: Any) -> Any:
    """The type of the values: a dictionary's value type, else the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def named(kind: object) -> Words:
    """A type in a message: Arrow's name of it, for an estimator a more common one."""
    return PerReader(str(kind), _COMMON.get(str(kind), str(kind)))


def hint(kind: pa.DataType) -> Words:
    """What to do with a column whose type does not fit."""
    way = next((way for holds, way in _HINTS if holds(kind)), "")
    return (way, " or ", IGNORE) if way else PerReader(IGNORE.job, "pass its name in ignore=[…]")


def _element(kind: pa.DataType) -> str:
    element = kind.value_type
    return str(element) if pa.types.is_dictionary(element) else family(element)


HASHED = PerReader("hashed", "categorical")
"""The role of a column of categories."""
IGNORE = PerReader("add it to ignore", "pass it in ignore=[…]")
_COMMON = {"string": "text", "large_string": "text", "double": "float64"}
_HINTS: tuple[tuple[Callable[[pa.DataType], bool], Words], ...] = (
    (lambda kind: family(kind) in ("decimal", "duration", "time"), "name it in numeric"),
    (
        lambda kind: str(kind).startswith(("list_view", "large_list_view")),
        "write it as list instead of list_view",
    ),
    (pa.types.is_map, "write the values of its keys as columns of their own"),
    (
        is_number_list,
        PerReader(
            "name it in vectors, or in hashed if its numbers are categories,",
            "name it in categorical if its numbers are categories,",
        ),
    ),
    (lambda kind: is_category_list(family(kind)), ("name it in ", HASHED)),
    (lambda kind: family(kind) in TEXTS, ("name it in ", HASHED, " or text,")),
    (lambda kind: family(kind) in DATES, "name it in dates"),
)
"""What to do with a column by its type, in their order."""


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
