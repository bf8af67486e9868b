"""Thrift's compact protocol, as far as Parquet's footer and page headers are written in it.

A struct becomes a dict of field number to value. What is not thrift is ValueError or IndexError,
and no claim of a length takes memory before its bytes were seen.
"""

from __future__ import annotations

from typing import Any

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
            found: Any = kind == _TRUE
        case 3:
            found, at = data[at], at + 1
        case 4 | 5 | 6:
            found, at = _signed(data, at)
        case 7:  # a double, which nothing here needs
            found, at = None, at + 8
        case 8:
            length, at = read_unsigned(data, at)
            found, at = data[at : at + length], at + length
        case 9 | 10:
            found, at = _list(data, at, depth)
        case 12:
            found, at = read_struct(data, at, depth + 1)
        case _:  # a map: Parquet has none
            raise ValueError(f"type {kind} of thrift's")
    return found, at


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
