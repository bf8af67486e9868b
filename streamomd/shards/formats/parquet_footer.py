"""Parquet's footer as it is written: Thrift's compact protocol, and bounds and nulls of columns.

A struct becomes a dict of field number to value. What is not thrift is ValueError or IndexError,
and no claim of a length takes memory before its bytes were seen.

The footer is parsed here, because pyarrow ends the process where a forged one lies. Of bounds only
``min_value`` and ``max_value`` are read, whose order the file declares; the older fields ``min``
and ``max`` were written with several orders. Bounds of texts may be cut and are bounds still.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from streamomd.features.arrow_types import family, plain

MOST_DEPTH = 40
_TRUE, _FALSE = 1, 2


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The struct that begins at a place, and where it ends.

    >>> read_struct(bytes([0x15, 4, 0x15, 8, 0]))
    ({1: 2, 2: 4}, 5)
    """
    if depth > MOST_DEPTH:
        raise ValueError("structs nested too deep")
    found: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _signed(data, at)
        found[field], at = _read(data, at, head & 15, depth)
    return found, at + 1


def end_of_field(data: bytes, wanted: int) -> int:
    """Where a field of the first struct ends; 0 if the struct has none, or begins with a later one.

    >>> end_of_field(bytes([0x15, 4, 0x15, 8, 0]), 1)
    2
    """
    at = field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _signed(data, at)
        if field > wanted:
            return 0
        _, at = _read(data, at, head & 15, 0)
        if field == wanted:
            return at
    return 0


def _read(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            value: Any = kind == _TRUE
        case 3:
            value, at = data[at], at + 1
        case 4 | 5 | 6:
            value, at = _signed(data, at)
        case 7:  # a double, which nothing here needs
            value, at = None, at + 8
        case 8:
            length, at = read_unsigned(data, at)
            value, at = data[at : at + length], at + length
        case 9 | 10:
            value, at = _list(data, at, depth)
        case 12:
            value, at = read_struct(data, at, depth + 1)
        case _:  # a map: Parquet has none
            raise ValueError(f"type {kind} of thrift's")
    return value, at


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = read_unsigned(data, at)
    if count > len(data) - at:
        raise ValueError(f"a list of {count} in {len(data) - at} bytes")
    found = []
    for _ in range(count):
        if kind in (_TRUE, _FALSE):  # in a list each takes a byte
            value, at = data[at] == _TRUE, at + 1
        else:
            value, at = _read(data, at, kind, depth + 1)
        found.append(value)
    return found, at


def read_unsigned(data: bytes, at: int, bits: int = 64) -> tuple[int, int]:
    """The ULEB128 number at a place, and where it ends; Parquet's levels and deltas use it too.

    Raises ValueError if it continues after ``bits`` bits.

    >>> read_unsigned(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift >= bits:
            raise ValueError(f"a number of more than {bits} bits")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_unsigned(data, at)
    return number >> 1 ^ -(number & 1), at


MOST_BYTES = 32 << 20
"""Larger footers are not parsed: it takes seconds."""
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES = 0, 1, 2, 4, 5, 6
_DAY = 86_400 * 10**9
_CONVERTED = {9: 10**6, 10: 10**3}
_LOGICAL = {1: 10**6, 2: 10**3, 3: 1}
"""Units of times in ns, by the footer's old and new names of types."""


class Bounds(NamedTuple):
    """What is known of the values of a column in some rows.

    low, high: no value is below or above; None: unknown. Times are in ns since 1970, texts are
    their UTF-8 bytes. nulls: how many are null; None: unknown. nan: whether NaN may be among them.
    """

    low: Any = None
    high: Any = None
    nulls: int | None = None
    nan: bool = True


class GroupStatistics(NamedTuple):
    """A row group: its bytes in the file, and bounds of some columns."""

    nbytes: int
    columns: Mapping[str, Bounds]


def group_statistics(
    footer: bytes, schema: pa.Schema, columns: Collection[str]
) -> tuple[GroupStatistics, ...]:
    """Returns the statistics of each row group, in order; none for a footer that is not
    understood."""
    if len(footer) > MOST_BYTES:
        return ()
    try:
        whole = read_struct(footer)[0]
        leaves = list(_leaves(whole[2]))
        ordered = [isinstance(one, dict) and 1 in one for one in whole.get(7, ())]
        wanted = [
            (place, leaf[4].decode(), leaf)
            for place, leaf in enumerate(leaves)
            if leaf is not None and place < len(ordered) and ordered[place]
        ]
        wanted = [one for one in wanted if one[1] in columns and schema.names.count(one[1]) == 1]
        return tuple(_group(group, schema, wanted) for group in whole[4])
    except (ValueError, LookupError, TypeError, AttributeError, struct.error, OverflowError):
        return ()


def _leaves(elements: list[dict[int, Any]]) -> Iterator[dict[int, Any] | None]:
    """The elements of the leaves, in order; None for those that are no column of their own."""
    open_children: list[int] = []
    for at, element in enumerate(elements):
        children = element.get(5, 0)
        if not at:
            open_children.append(children)
            continue
        open_children[-1] -= 1
        if children:
            open_children.append(children)
        else:
            yield element if len(open_children) == 1 and element.get(3) != 2 else None
        while open_children and not open_children[-1]:
            open_children.pop()


def _group(
    group: dict[int, Any], schema: pa.Schema, wanted: list[tuple[int, str, dict[int, Any]]]
) -> GroupStatistics:
    chunks = [chunk[3] for chunk in group[1]]
    found = {
        name: _bounds(chunks[place].get(12, {}), leaf, schema.field(name).type)
        for place, name, leaf in wanted
        if [part.decode() for part in chunks[place][3]] == [name]
    }
    return GroupStatistics(sum(max(0, chunk[7]) for chunk in chunks), found)


def _bounds(saved: dict[int, Any], leaf: dict[int, Any], kind: pa.DataType) -> Bounds:
    nulls = saved.get(3)
    known = nulls if isinstance(nulls, int) and nulls >= 0 else None
    kind = plain(kind)
    nan = family(kind) == "float"
    low, high = (_value(saved.get(field), leaf, kind) for field in (6, 5))
    if low is None or high is None or low > high:
        return Bounds(nulls=known, nan=nan)
    return Bounds(low, high, known, nan)


def _value(data: Any, leaf: dict[int, Any], kind: pa.DataType) -> Any:
    """A bound in the domain of the column's type; None where it is not known."""
    physical, of = leaf.get(1), family(kind)
    if not isinstance(data, bytes):
        return None
    if of == "string":
        return data if physical == _BYTES else None
    if of == "boolean":
        return data == b"\1" if physical == _BOOLEAN and len(data) == 1 else None
    if of == "float":
        return _float(data, physical)
    unit = 1 if of == "integer" else _time_unit(leaf, kind)
    if unit is None or (physical, len(data)) not in ((_INT32, 4), (_INT64, 8)):
        return None
    signed = not pa.types.is_unsigned_integer(kind)
    return Fraction(int.from_bytes(data, "little", signed=signed) * unit)


def _float(data: bytes, physical: Any) -> float | None:
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(physical)
    number: float = struct.unpack(form, data)[0] if form else math.nan
    return None if math.isnan(number) else number


def _time_unit(leaf: dict[int, Any], kind: pa.DataType) -> int | None:
    """The unit of stored dates and times in ns, None where it is not known."""
    logical = leaf.get(10, {})
    if pa.types.is_date(kind):
        return _DAY if leaf.get(6) == 6 or 6 in logical else None
    if not pa.types.is_timestamp(kind):
        return None
    units = [unit for unit in _LOGICAL if unit in logical.get(8, {}).get(2, {})]
    return _LOGICAL[units[0]] if units else _CONVERTED.get(leaf.get(6, -1))
