"""Texts split into words, and the places of words counted: a pass over bytes each, on arrays alone.

Plain Python that numba compiles, as all of ``features/kernels``.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.core.jit import compiled, int64, read, written

BETWEEN = 1
"""What ``lower`` has for a character that stands between words; 0 where it was not computed yet."""

_BITS, _FEW = 9, 40
COUNTERS = 1 << _BITS
"""``sizes`` of ``count``: few enough that a row of some hundred places costs more."""


@functools.cache
def splitter() -> Any:
    """``split``, compiled, or loaded from the disk cache."""
    given = [read("uint8"), read("int64"), read("uint32")]
    made = [written("uint8"), written("int64"), written("int64"), written("uint32")]
    return compiled(split, *given, *made)


@functools.cache
def counter() -> Any:
    """``count``, compiled, or loaded from the disk cache."""
    room = [written("int32"), written("int32"), written("int64")]
    made = [written("int64"), written("int32"), written("float64")]
    return compiled(count, read("int64"), read("int32"), int64, int64, int64, *room, *made)


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


def split(
    data: Any, offsets: Any, lower: Any, letters: Any, starts: Any, begins: Any, unknown: Any
) -> int:
    """Write all words, lower-cased and without anything between; how many there are.

    data, offsets: texts in Arrow's layout, valid UTF-8. lower: by character, its lower case,
    BETWEEN or 0; never 0 in ASCII. letters: room for half as much again as the texts have bytes
    ("Ⱥ" has 2, "ⱥ" 3). starts: where each word begins in letters, and the last one's end. begins:
    each text's first word, and their number. unknown: characters of which lower says 0, as far as
    there is room, then 0: if there is any, the words are not to be used.
    """
    at, word, some = 0, 0, 0
    for text in range(len(offsets) - 1):
        begins[text] = word
        was, here, end = 0, offsets[text], offsets[text + 1]
        while here < end:
            number = int(data[here])
            if number < 0x80:
                # Without a branch: ends of words cannot be predicted.
                low = int(lower[number])
                inside = 1 if low > BETWEEN else 0
                starts[word] = at
                letters[at] = low
                at += inside
                word += inside & (1 - was)
                here += 1
            else:
                number, size = character(data, here)
                low = int(lower[number])
                inside = 1 if low > BETWEEN else 0
                if inside:
                    starts[word] = at
                    at = write(low, letters, at)
                    word += 1 - was
                elif low == 0 and some < len(unknown):
                    unknown[some] = number
                    some += 1
                here += size
            was = inside
    begins[len(offsets) - 1] = word
    starts[word] = at
    if some < len(unknown):
        unknown[some] = 0
    return word


def count(
    begins: Any, places: Any, first: int, most: int, shift: int, some: Any, others: Any, sizes: Any,
    new_begins: Any, indices: Any, values: Any,
) -> None:  # fmt: skip
    """Write rows of how often each of a row's places occurs, ascending, each moved by ``shift``.

    first … first + most: all places. some, others: room for as many places as a row has.
    sizes: (COUNTERS,). indices, values: room for as many as there are places.
    """
    new_begins[0] = end = 0
    for row in range(len(begins) - 1):
        n = begins[row + 1] - begins[row]
        for k in range(n):
            some[k] = places[begins[row] + k] - first
        if n <= _FEW:
            for k in range(1, n):
                place, at = some[k], k
                while at > 0 and some[at - 1] > place:
                    some[at] = some[at - 1]
                    at -= 1
                some[at] = place
        else:  # in order of their lowest bits, then of the next, …
            low = 0
            while most >> low:
                sizes[:] = 0
                for k in range(n):
                    sizes[(some[k] >> low) & (len(sizes) - 1)] += 1
                total = 0
                for digit in range(len(sizes)):
                    size = sizes[digit]
                    sizes[digit] = total
                    total += size
                for k in range(n):
                    digit = (some[k] >> low) & (len(sizes) - 1)
                    others[sizes[digit]] = some[k]
                    sizes[digit] += 1
                some, others = others, some
                low += _BITS
        at, last, start = end - 1, -1, 0
        for k in range(n):
            other = some[k] != last
            at += 1 if other else 0
            start = k if other else start
            last = some[k]
            indices[at], values[at] = first + last + shift, k - start + 1
        end = at + 1
        new_begins[row + 1] = end
