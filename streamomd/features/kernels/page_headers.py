"""The page headers of a column chunk, and LZ4 blocks.

Plain Python that numba compiles in ``page_values``, and that small files are checked with before
numba is imported. Any byte may be forged: every place is compared with the end before it is read,
and what is not a header of Parquet is ``MALFORMED``.

Layout: Parquet's ``parquet.thrift``, in thrift's compact protocol.

pyarrow's codec allocates a buffer for each page and does not say how much of it it filled, so that
its blocks would have to be measured first: both together take twice the time of this.

Plain Python that numba compiles. Any byte may be forged: a place is compared with the end before it
is read or written. What LZ4's own decoder refuses, this one refuses.

Layout: LZ4's block format; a sequence is a token, literals, and a match in what was written before.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.core.jit import compiled, read, written

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
    at, pages, found = 0, 0, 0
    while found < values:
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
            found += table[row + VALUES]
            if found > values:
                return MALFORMED
        pages += 1
    return pages


BAD_LZ4 = -1
_ESCAPE = 15
_LEAST = 4
"""Bytes of a match at least."""
_LAST_LITERALS, _LAST_MATCH, _LAST_BYTES = 5, 12, 8
"""No match ends in the last 5 bytes; the sequence whose literals end in the last 12 bytes written,
or the last 8 bytes read, is the last one."""
_AHEAD, _ROOM = 40, 64
"""Bytes to read and to write from which a short sequence is copied in whole words."""
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""


@functools.cache
def unfolder() -> Any:
    """``unfold``, compiled."""
    return compiled(unfold, read("uint8"), written("uint8"))


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def copy_word(source: Any, at: int, out: Any, to: int) -> None:
    """Copy eight bytes, all read before one is written: one load and one store."""
    a, b = at & _PLACE, to & _PLACE
    b0, b1, b2, b3 = source[a], source[a + 1], source[a + 2], source[a + 3]
    b4, b5, b6, b7 = source[a + 4], source[a + 5], source[a + 6], source[a + 7]
    out[b], out[b + 1], out[b + 2], out[b + 3] = b0, b1, b2, b3
    out[b + 4], out[b + 5], out[b + 6], out[b + 7] = b4, b5, b6, b7


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def copy_bytes(source: Any, at: int, out: Any, to: int, size: int) -> None:
    """Copy bytes one after another: those of a match may be among the ones it writes."""
    a, b = at & _PLACE, to & _PLACE
    for k in range(size):
        out[b + k] = source[a + k]


@register_jitable(no_cfunc_wrapper=True)
def read_length(data: Any, at: int, end: int, length: int) -> Any:
    """A length that began with the escape, and where it ends; −1 if it has no end."""
    more = 255
    while more == 255:
        if at >= end:
            return length, BAD_LZ4
        more = int(data[at & _PLACE])
        at += 1
        length += more
    return length, at


def unfold(data: Any, out: Any) -> int:
    """Decompress a block: how many bytes were written; BAD_LZ4 if it is none, or does not fit."""
    at, end, done, size = 0, len(data), 0, len(out)
    while at < end:
        token = int(data[at & _PLACE])
        at += 1
        literals, match = token >> 4, _LEAST + (token & _ESCAPE)
        short = literals < _ESCAPE and match < _LEAST + _ESCAPE
        if short and end - at >= _AHEAD and size - done >= _ROOM:
            # Sixteen bytes are written even if fewer are meant: those behind are written again.
            copy_word(data, at, out, done)
            copy_word(data, at + 8, out, done + 8)
            at += literals
            done += literals
            back = int(data[at & _PLACE]) | (int(data[(at + 1) & _PLACE]) << 8)
            at += 2
            if back == 0 or back > done:
                return BAD_LZ4
            if back < 8:
                copy_bytes(out, done - back, out, done, match)
            else:
                copy_word(out, done - back, out, done)
                copy_word(out, done - back + 8, out, done + 8)
                if match > 16:
                    copy_word(out, done - back + 16, out, done + 16)
            done += match
            continue
        if literals == _ESCAPE:
            literals, at = read_length(data, at, end, literals)
        if at < 0 or literals > end - at or literals > size - done:
            return BAD_LZ4
        copy_bytes(data, at, out, done, literals)
        at += literals
        done += literals
        if done > size - _LAST_MATCH or at > end - _LAST_BYTES:
            return done if at == end else BAD_LZ4
        back = int(data[at & _PLACE]) | (int(data[(at + 1) & _PLACE]) << 8)
        at += 2
        if match == _LEAST + _ESCAPE:
            match, at = read_length(data, at, end, match)
        if at < 0 or back == 0 or back > done or match > size - _LAST_LITERALS - done:
            return BAD_LZ4
        copy_bytes(out, done - back, out, done, match)
        done += match
    return BAD_LZ4
