"""The values of a flat column's pages, decoded by compiled code, some rows at a time.

Plain Python that numba compiles. Any byte may be forged: a place is compared with the end of its
section before it is read, and a code with the size of the dictionary before it is used. A function
returns ``MALFORMED`` for what it does not accept.

A column's page has two sections, of definition levels (where a value may be null) and of values.
``state`` says where reading of each continues: SECTION numbers each.

Layout: Parquet's page on encodings: RLE, RLE_DICTIONARY, PLAIN.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.core.jit import ItemCount, callable_part, compiled, int64, is_at_hand, read, written
from streamomd.features.kernels.lz4_blocks import copy_word
from streamomd.features.kernels.page_headers import MALFORMED, PARTS, find_pages, varint

AT, END, WIDTH, LEFT, PACKED, VALUE, SECTION = range(7)
"""Fields of a section: the next run, the end, bits of a value; of the current run: values left,
whether they are packed, and the next one's place in bits, or the value that repeats."""
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""
_LONG = 64
MOST_WIDTH = 24
"""Bits of a code: with the 7 bits before it, it is in four bytes."""


for part in PARTS:
    callable_part(part)


@functools.cache
def page_finder() -> Any:
    """``find_pages``, compiled."""
    return compiled(find_pages, read("uint8"), int64, written("int64"), written("int64"))


@functools.cache
def code_reader() -> Any:
    """``read_codes``, compiled."""
    return compiled(read_codes, *_code_types())


@functools.cache
def is_code_reader_at_hand() -> bool:
    """Whether ``code_reader`` needs no compilation, when it is asked first."""
    return is_at_hand(read_codes, *_code_types())


@functools.cache
def values_by_pyarrow() -> ItemCount:
    """Values that pyarrow decodes before this process compiles what decodes them here. To compile
    takes as long as is saved on some 10^8 values."""
    return ItemCount(1 << 26)


def _code_types() -> list[Any]:
    room = [written("uint32"), written("uint8"), written("int32")]
    return [read("uint8"), written("int64"), int64, int64, *room]


@functools.cache
def level_reader() -> Any:
    """``read_levels``, compiled."""
    room = [written("uint32"), written("uint8")]
    return compiled(read_levels, read("uint8"), written("int64"), int64, *room)


@functools.cache
def cell_copier() -> Any:
    """``copy_cells``, compiled."""
    return compiled(copy_cells, *_cell_types())


@functools.cache
def is_cell_copier_at_hand() -> bool:
    """Whether ``cell_copier`` needs no compilation, when it is asked first."""
    return is_at_hand(copy_cells, *_cell_types())


def _cell_types() -> list[Any]:
    return [read("uint8"), int64, read("uint8"), written("int32"), written("uint8")]


@functools.cache
def value_taker(kind: str) -> Any:
    """``take_values``, compiled for values of a dtype."""
    return compiled(take_values, read("int32"), read(kind), written(kind))


@functools.cache
def value_spreader(kind: str) -> Any:
    """``spread_values``, compiled for values of a dtype."""
    return compiled(spread_values, read("uint8"), read(kind), written(kind))


@register_jitable(no_cfunc_wrapper=True)
def unpack(data: Any, bit: int, width: int, count: int, out: Any, begin: int) -> None:
    """Write ``count`` numbers of ``width`` bits that lie one after another from a bit on, inside
    of data, to ``out`` from ``begin`` on."""
    mask, first, shift, groups = (1 << width) - 1, bit >> 3, bit & 7, 0
    # Eight numbers take ``width`` bytes. Four bytes are one load, as long as all are inside.
    if width:
        groups = max(0, min(count >> 3, (len(data) - 4 - first) // width))
    for group in range(groups):
        base, to = (first + group * width) & _PLACE, (begin + 8 * group) & _PLACE
        for k in range(8):
            place = shift + k * width
            b = base + ((place >> 3) & _PLACE)
            four = (
                int(data[b]) | (int(data[b + 1]) << 8) | (int(data[b + 2]) << 16)
                | (int(data[b + 3]) << 24)
            )  # fmt: skip
            out[to + k] = (four >> (place & 7)) & mask
    for k in range(8 * groups, count):
        place, number = bit + k * width, 0
        for b in range(place >> 3, (place + width + 7) >> 3):
            number |= int(data[b]) << (8 * (b - (place >> 3)))
        out[begin + k] = (number >> (place & 7)) & mask


@register_jitable(no_cfunc_wrapper=True)
def read_runs(data: Any, state: Any, section: int, count: int, out: Any) -> int:
    """Write the next ``count`` numbers of a section of runs to ``out``; 0, or MALFORMED.

    A run is one number that repeats, or groups of eight numbers that are packed.
    """
    at, end, width = state[section + AT], state[section + END], state[section + WIDTH]
    left, packed = state[section + LEFT], state[section + PACKED]
    value, done = state[section + VALUE], 0
    while done < count:
        if left == 0:
            head, at = varint(data, at, end)
            if at < 0 or head < 2 or head > 1 << 40:
                return MALFORMED
            packed = head & 1
            size = (head >> 1) * width if packed else (width + 7) >> 3
            if size > end - at:
                return MALFORMED
            left = 8 * (head >> 1) if packed else head >> 1
            value = 8 * at
            if not packed:
                value = 0
                for k in range(size):
                    value |= int(data[at + k]) << (8 * k)
                if value >> width:
                    return MALFORMED
            at += size
        some = min(left, count - done)
        if packed:
            unpack(data, value, width, some, out, done)
            value += some * width
        else:
            for k in range(done, done + some):
                out[k] = value
        left -= some
        done += some
    state[section + AT], state[section + LEFT] = at, left
    state[section + PACKED], state[section + VALUE] = packed, value
    return 0


@register_jitable(no_cfunc_wrapper=True)
def read_levels(data: Any, state: Any, count: int, scratch: Any, valid: Any) -> int:
    """Write which of the next ``count`` rows have a value: how many; or MALFORMED.

    state: of one section or two; levels are the first. valid is not written if all have one.
    """
    # Nearly all pages without a null have one run.
    if state[LEFT] >= count and not state[PACKED] and state[VALUE] == 1:
        state[LEFT] -= count
        return count
    if read_runs(data, state, 0, count, scratch) < 0:
        return MALFORMED
    found = 0
    for k in range(count):
        found += int(scratch[k])
    if found < count:
        for k in range(count):
            valid[k] = scratch[k]
    return found


def read_codes(
    data: Any, state: Any, nullable: int, size: int, scratch: Any, valid: Any, out: Any
) -> int:
    """Write the codes of the next rows, 0 for a null: how many are no null; or MALFORMED.

    data: of a page. state: of levels, then codes. nullable: whether there are levels. size: of the
    dictionary: each code is below it. scratch: (n + 1,). valid: (n,), not written if no row is
    null. out: (n,).
    """
    count = len(out)
    present = read_levels(data, state, count, scratch, valid) if nullable else count
    if present < 0 or read_runs(data, state, SECTION, present, scratch) < 0:
        return MALFORMED
    highest = 0
    for k in range(present):
        highest = max(highest, int(scratch[k]))
    if present and highest >= size:
        return MALFORMED
    if present == count:
        for k in range(count):
            out[k] = scratch[k]
        return present
    scratch[present] = 0
    at = 0
    for k in range(count):
        out[k] = int(scratch[at]) * int(valid[k])
        at += int(valid[k])
    return present


def copy_cells(data: Any, at: int, valid: Any, offsets: Any, out: Any) -> int:
    """Copy cells of bytes, one after another, and write where each begins and ends in ``out``;
    where the last one ends in data, or MALFORMED.

    data: each cell after its length in four bytes, from ``at`` on. valid: which rows have one;
    empty: all. offsets: (n + 1,), of which the first is where to begin. Found and copied in one
    pass: a length is in the cache because the cell before it was read.
    """
    done, end, nullable = int(offsets[0]) & _PLACE, len(data), len(valid) > 0
    for k in range(len(offsets) - 1):
        if not nullable or valid[k]:
            if end - at < 4:
                return MALFORMED
            size = (
                int(data[at]) | (int(data[at + 1]) << 8) | (int(data[at + 2]) << 16)
                | (int(data[at + 3]) << 24)
            )  # fmt: skip
            at = (at + 4) & _PLACE
            if size > end - at or size > len(out) - done:
                return MALFORMED
            if size >= _LONG:  # one loop from 0 on: vector instructions, 10 ns for 300 bytes
                for b in range(size):
                    out[done + b] = data[at + b]
            else:
                j = 0
                while j + 8 <= size:
                    copy_word(data, at + j, out, done + j)
                    j += 8
                for b in range(j, size):
                    out[done + b] = data[at + b]
            at += size
            done = (done + size) & _PLACE
        offsets[k + 1] = done
    return at


def take_values(codes: Any, values: Any, out: Any) -> None:
    """Write values[code] of each code; 0 if there is no value."""
    if len(values) == 0:
        for k in range(len(out)):
            out[k] = 0
        return
    for k in range(len(out)):
        out[k] = values[codes[k]]


def spread_values(valid: Any, values: Any, out: Any) -> None:
    """Write the next of ``values`` where a row has one, and 0 elsewhere."""
    at = 0
    for k in range(len(out)):
        if valid[k]:
            out[k] = values[at]
            at += 1
        else:
            out[k] = 0
