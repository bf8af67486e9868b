"""One text split into words: its letters, lower-cased, and where each word begins and ends.

Plain Python that numba compiles, as all of ``features/kernels``. A text in ASCII is split eight
bytes at a time, any other one character by character; both write the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

BETWEEN = 1
"""What ``lower`` has for a character that stands between words; 0 where it was not computed yet."""
FRONT, BACK = 8, 24
"""Zero bytes before the letters of a text and after them, so that loads of 8 bytes may overlap."""
PLACE = (1 << 47) - 1
"""Indices under this mask are known to be non-negative, so that numba tests nothing."""

_EDGES = [[at for at in range(8) if byte >> at & 1] for byte in range(256)]
_JUMPS = np.array([edges + [0] * (8 - len(edges)) for edges in _EDGES], np.uint8).reshape(-1)
_COUNTS = np.array([len(edges) for edges in _EDGES], np.uint8)
_ONES = 0x0101010101010101


@register_jitable(no_cfunc_wrapper=True)
def split_ascii(text: Any, letters: Any, eights: Any, edges: Any) -> int:
    """Write a text's letters with zeros between words, and where words begin and end, in turn.

    Returns how many edges there are, −1 if the text is not ASCII. letters: from FRONT on a byte for
    each one of the text, then BACK zeros. eights: the same memory, eight bytes a number. edges:
    room for 8 more than there are.
    """
    u8, body = np.uint8, letters[FRONT:]
    every = u8(0)
    # All in bytes, so that it becomes vector instructions: a fifth of the time of a table.
    for k in range(len(text)):
        byte = text[k]
        low = u8(byte | u8(0x20))
        is_letter = (low >= u8(0x61)) & (low <= u8(0x7A))
        is_other = ((byte >= u8(0x30)) & (byte <= u8(0x39))) | (byte == u8(0x5F))
        body[k] = low if is_letter else (byte if is_other else u8(0))
        every = u8(every | byte)
    if every >= u8(0x80):
        return -1
    last = FRONT + len(text)
    for k in range(BACK):
        letters[last + k] = 0
    ends, was = 0, 0
    for eight in range(FRONT >> 3, (last >> 3) + 1):
        # All letters, digits and "_" have 0x10 or 0x20; their bits are moved next to each other.
        # Without a product: numba lets LLVM assume that none overflows.
        word = int(eights[eight])
        bits = ((word >> 4) | (word >> 5)) & _ONES
        bits |= bits >> 7
        bits |= bits >> 14
        inside = (bits | (bits >> 28)) & 0xFF
        changed = inside ^ (((inside << 1) | was) & 0xFF)
        was = inside >> 7
        # Always eight, without a branch: how many there are cannot be predicted.
        for k in range(8):
            edges[(ends & PLACE) + k] = 8 * eight + int(_JUMPS[8 * changed + k])
        ends += int(_COUNTS[changed])
    return ends


@register_jitable(no_cfunc_wrapper=True)
def character(data: Any, at: int) -> tuple[int, int]:
    """The character that begins at a byte of 0xC2 or more, and how many bytes it has."""
    first, second = int(data[at]), int(data[at + 1]) & 0x3F
    if first < 0xE0:
        return ((first & 0x1F) << 6) | second, 2
    third = int(data[at + 2]) & 0x3F
    if first < 0xF0:
        return ((first & 0xF) << 12) | (second << 6) | third, 3
    fourth = int(data[at + 3]) & 0x3F
    return ((first & 0x7) << 18) | (second << 12) | (third << 6) | fourth, 4


@register_jitable(no_cfunc_wrapper=True)
def write(number: int, letters: Any, at: int) -> int:
    """Write a character as UTF-8; where it ends."""
    if number < 0x80:
        letters[at] = number
        return at + 1
    if number < 0x800:
        letters[at] = 0xC0 | (number >> 6)
    else:
        if number < 0x10000:
            letters[at] = 0xE0 | (number >> 12)
        else:
            letters[at] = 0xF0 | (number >> 18)
            at += 1
            letters[at] = 0x80 | ((number >> 12) & 0x3F)
        at += 1
        letters[at] = 0x80 | ((number >> 6) & 0x3F)
    letters[at + 1] = 0x80 | (number & 0x3F)
    return at + 2


@register_jitable(no_cfunc_wrapper=True)
def split_any(text: Any, lower: Any, letters: Any, edges: Any, unknown: Any) -> int:
    """Splits any text in valid UTF-8 as ``split_ascii`` does; between words there is one byte.

    lower: by character, its lower case, BETWEEN or 0; never 0 in ASCII. letters: room for half as
    much again as the text has bytes ("Ⱥ" has 2, "ⱥ" 3). unknown: characters of which lower says 0,
    as far as there is room, then 0: if there is any, the words are not to be used.
    """
    at, ends, was, some, here = FRONT, 0, 0, 0, 0
    while here < len(text):
        number, size = int(text[here]), 1
        if number >= 0x80:
            number, size = character(text, here)
        low = int(lower[number])
        inside = 1 if low > BETWEEN else 0
        edges[ends] = at
        ends += inside ^ was
        if number < 0x80:
            # Without a branch: ends of words cannot be predicted.
            letters[at] = low
            at += inside | was
        elif inside:
            at = write(low, letters, at)
        else:
            at += was
            if low == 0 and some < len(unknown):
                unknown[some] = number
                some += 1
        was = inside
        here += size
    edges[ends] = at
    for k in range(BACK):
        letters[at + k] = 0
    if some < len(unknown):
        unknown[some] = 0
    return ends + was
