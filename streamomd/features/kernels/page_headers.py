"""The page headers of a column chunk.

Plain Python that numba compiles in ``page_values``, and that small files are checked with before
numba is imported. Any byte may be forged: every place is compared with the end before it is read,
and what is not a header of Parquet is ``MALFORMED``.

Layout: Parquet's ``parquet.thrift``, in thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any

(
    KIND, UNFOLDED, STORED, CRC, VALUES, ENCODING, LEVELS, REPETITION_LEVELS, NULLS, ROWS,
    COMPRESSED, BEGIN, FIELDS,
) = range(13)  # fmt: skip
"""Numbers of a page in the table: its kind, how many bytes it unfolds to and has, its checksum, its
values with nulls, their encoding; of both kinds of levels the encoding, or in the second version
the bytes; nulls and rows (second version); whether it is compressed; where its bytes begin."""
MISSING = -(1 << 40)
"""A number that a header does not have."""
DATA, DICTIONARY, DATA_2 = 0, 2, 3
MALFORMED, NO_ROOM = -1, -2
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY = range(1, 9)
_STRUCT = 12
"""Types of thrift's compact protocol."""
DEPTH = 8
"""The most structs in one another; a header has three."""
_LARGEST = (1 << 31) - 1


def varint(data: Any, at: int, end: int) -> Any:
    """The ULEB128 number at a place before ``end`` and where it ends; −1 if it has no end, or more
    than 63 bits."""
    number, shift = 0, 0
    while 0 <= at < end and shift < 63:
        byte = int(data[at])
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, -1


def place_of(outer: int, field: int, kind: int) -> int:
    """Where a whole number goes in the table: a field of the header itself, or of the struct of the
    page's kind; −1 for any other."""
    if outer == 0:
        return KIND + field - 1 if 1 <= field <= 4 else -1
    if outer == 5 and kind == DATA:
        return VALUES + field - 1 if 1 <= field <= 4 else -1
    if outer == 7 and kind == DICTIONARY:
        return VALUES + field - 1 if 1 <= field <= 2 else -1
    if outer == 8 and kind == DATA_2 and 1 <= field <= 7:
        return (VALUES, NULLS, ROWS, ENCODING, LEVELS, REPETITION_LEVELS, COMPRESSED)[field - 1]
    return -1


def signed(data: Any, at: int, end: int) -> Any:
    """The number in zigzag form at a place, and where it ends, see ``varint``."""
    number, at = varint(data, at, end)
    return (number >> 1) ^ -(number & 1), at


def read_value(data: Any, at: int, end: int, kind: int) -> Any:
    """A field's value, if it is a whole number or a boolean, and where it ends; −1 if it cannot be,
    or is a list or a map. Nothing of a struct is read."""
    if kind in (_TRUE, _FALSE):
        return int(kind == _TRUE), at
    if _I16 <= kind <= _I64:
        return signed(data, at, end)
    if kind == _BINARY:
        size, at = varint(data, at, end)
        return 0, (at + size if 0 <= at <= end - size else -1)
    if kind == _STRUCT:
        return 0, at
    size = 1 if kind == _BYTE else 8 if kind == _DOUBLE else end
    return 0, (at + size if size < end - at else -1)


def read_header(data: Any, at: int, table: Any, row: int, fields: Any) -> int:
    """Read a header into the table from ``row`` on; where it ends, or MALFORMED.

    fields: (DEPTH,), the last field of each struct that is open.
    """
    end, depth = len(data), 0
    fields[0] = 0
    while 0 <= at < end:
        head = int(data[at])
        at += 1
        if head == 0:
            if depth == 0:
                return at
            depth -= 1
            continue
        if head >> 4:
            fields[depth] += head >> 4
        else:
            fields[depth], at = signed(data, at, end)
        kind, number = head & 15, 0
        if at >= 0:
            number, at = read_value(data, at, end, kind)
        outer = fields[0] if depth else 0
        to = place_of(outer, fields[depth], table[row]) if depth < 2 else -1
        if to >= 0 and kind == (_I32 if to != COMPRESSED else _TRUE if number else _FALSE):
            if number > _LARGEST or (number < 0 and to != CRC):
                return MALFORMED
            table[row + to] = number
        if kind == _STRUCT:
            depth += 1
            if depth == DEPTH:
                return MALFORMED
            fields[depth] = 0
    return MALFORMED


def is_whole(table: Any, row: int) -> bool:
    """Whether a header has all that its kind needs."""
    kind = table[row]
    last = ENCODING if kind == DICTIONARY else REPETITION_LEVELS if kind == DATA else ROWS
    missing = 0 if kind in (DATA, DICTIONARY, DATA_2) else 1
    for k in range(last + 1):
        missing += table[row + k] < 0 and k != CRC
    return bool(missing == 0)


PARTS = (varint, place_of, signed, read_value, read_header, is_whole)
"""What ``find_pages`` calls."""


def find_pages(data: Any, values: int, fields: Any, table: Any) -> int:
    """Read the headers of pages until ``values`` values have come: how many pages there are.

    data: a column chunk. fields: (DEPTH,). table: FIELDS numbers for each page. MALFORMED if a
    header cannot be, or claims more bytes or values than there are; NO_ROOM if the table is too
    short.
    """
    at, pages, counted = 0, 0, 0
    while counted < values:
        row = pages * FIELDS
        if row + FIELDS > len(table):
            return NO_ROOM
        for k in range(FIELDS):
            table[row + k] = MISSING
        table[row + COMPRESSED] = 1
        at = read_header(data, at, table, row, fields)
        if at < 0 or not is_whole(table, row) or table[row + STORED] > len(data) - at:
            return MALFORMED
        table[row + BEGIN] = at
        at += table[row + STORED]
        if table[row + KIND] != DICTIONARY:
            counted += table[row + VALUES]
            if counted > values:
                return MALFORMED
        pages += 1
    return pages
