"""Families of Arrow types: what a column may be used as, and may turn into between shards."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
