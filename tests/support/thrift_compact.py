"""Thrift's compact protocol as trees that can be edited: what Parquet's headers are written in.

A struct is a dict of field number to (type, value); a list is (type of its elements, values).
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Struct = dict[int, tuple[int, Any]]


def varint(number: int) -> bytes:
    """An unsigned number of at most 64 bits."""
    out, number = bytearray(), number & (1 << 64) - 1
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """A signed number."""
    return varint(number << 1 ^ number >> 63)


def struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct at a place, and where it ends."""
    found: Struct = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _signed(data, at)
        value, at = _value(data, at, head & 15)
        found[field] = head & 15, value
    return found, at + 1


def written(value: Struct) -> bytes:
    """The bytes of a struct."""
    out, last = bytearray(), 0
    for field, (kind, inner) in sorted(value.items()):
        step = field - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(field)
        out += _written(kind, inner)
        last = field
    return bytes(out) + b"\0"


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == TRUE, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _signed(data, at)
        case 7:
            return data[at : at + 8], at + 8
        case 8:
            length, at = _unsigned(data, at)
            return data[at : at + length], at + length
        case 9 | 10:
            count, inner = data[at] >> 4, data[at] & 15
            at += 1
            if count == 15:
                count, at = _unsigned(data, at)
            values = []
            for _ in range(count):
                if inner in (TRUE, FALSE):
                    value, at = data[at], at + 1
                else:
                    value, at = _value(data, at, inner)
                values.append(value)
            return (inner, values), at
        case 12:
            return struct(data, at)
    raise ValueError(f"type {kind}")


def _written(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2:
            return b""
        case 3:
            return bytes([value])
        case 4 | 5 | 6:
            return zigzag(value)
        case 7:
            return bytes(value)
        case 8:
            return varint(len(value)) + value
        case 9 | 10:
            inner, values = value
            count = len(values)
            head = (
                bytes([count << 4 | inner]) if count < 15 else bytes([240 | inner]) + varint(count)
            )
            each = (bytes([one]) if inner < 3 else _written(inner, one) for one in values)
            return head + b"".join(each)
        case 12:
            return written(value)
    raise ValueError(f"type {kind}")


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    return number >> 1 ^ -(number & 1), at
