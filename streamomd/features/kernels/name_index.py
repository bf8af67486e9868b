"""Names of hashed coordinates, as arrays: all of them in the order of arrival, and a table that
finds those of a coordinate.

Plain Python that numba compiles, like ``murmur3``. The table has 2^k slots, searched
from a coordinate's lowest bits on. keys: of each slot its coordinate and 1, or 0. counts: how many
names it has, EACH + 1 where there were more. known, entries: EACH a slot; the hash of a name's
value, 0 if it is unknown, and the name's place in the order. Values of other hashes have other
names.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.core.jit import LazyCompiled, int64, read, written

COORDINATES, EACH, SLOTS = 1 << 16, 4, 1 << 17
MORE = ord("+")
FEW = 1 << 10
"""Values that Python looks at, and names that it notes, before both are compiled: 30 ms."""
LOW = 16
"""Lowest bits of a hash, which ``recent`` of ``unsettled`` is not searched by."""


@functools.cache
def chooser() -> LazyCompiled:
    """``unsettled``, soon compiled."""
    table = [read("int32"), read("uint8"), read("uint32"), read("uint8"), written("uint32")]
    signature = [read("uint32"), int64, int64, *table, written("int64")]
    return LazyCompiled(unsettled, signature, FEW)


@functools.cache
def noter() -> LazyCompiled:
    """``note``, soon compiled."""
    given = [read("int32"), read("uint32"), *[read("uint8")] * 2, *[read("int64")] * 2]
    table = [written("int32"), written("uint8"), written("uint32"), written("int32")]
    order = [written("int32"), written("int64"), written("uint8"), written("int64")]
    return LazyCompiled(note, [*given, *table, *order, written("uint8")], FEW)


@register_jitable(no_cfunc_wrapper=True)
def slot(keys: Any, coordinate: int) -> int:
    """The slot of a coordinate, or the one to store it in."""
    last = len(keys) - 1
    at = coordinate & last
    while keys[at] != 0 and keys[at] != coordinate + 1:
        at = (at + 1) & last
    return at


def unsettled(
    hashes: Any, first: int, mask: int, keys: Any, counts: Any, known: Any, closed: Any,
    recent: Any, fresh: Any,
) -> int:  # fmt: skip
    """Write the places of hashes without a recorded name to ``fresh``; return their number.

    first, mask: a hash's coordinate is first + its bits under mask. closed: a bit a coordinate, or
    for all that have the same lowest bits: no name is taken there. recent: the hash that was found
    settled last, by its bits above the LOW ones. If another thread adds names meanwhile, a hash may
    be reported twice.
    """
    some = 0
    for k in range(len(hashes)):
        h = hashes[k]
        bit = (first + (h & mask)) & (8 * len(closed) - 1)
        fresh[some] = k
        settled = (closed[bit >> 3] >> (bit & 7)) & 1 or recent[h >> LOW] == h
        some += 0 if settled else 1
    unnamed = 0
    for i in range(some):
        h = hashes[fresh[i]]
        at = slot(keys, first + (h & mask))
        settled = counts[at] > EACH
        for k in range(EACH * at, EACH * at + EACH):
            settled |= h != 0 and known[k] == h
        if settled:
            recent[h >> LOW] = h
        fresh[unnamed] = fresh[i]
        unnamed += 0 if settled else 1
    return unnamed


@register_jitable(no_cfunc_wrapper=True)
def alike(letters: Any, begin: int, other: int, size: int) -> bool:
    """Whether ``size`` letters from two places on are the same."""
    same = 0
    while same < size and letters[begin + same] == letters[other + same]:
        same += 1
    return same == size


@register_jitable(no_cfunc_wrapper=True)
def copied(letters: Any, end: int, data: Any, start: int, stop: int) -> int:
    """Write bytes start … stop − 1 of data behind letters; where these end now."""
    for k in range(start, stop):
        letters[end] = data[k]
        end += 1
    return end


def note(
    coordinates: Any, hashes: Any, prefix: Any, data: Any, starts: Any, stops: Any, keys: Any,
    counts: Any, known: Any, entries: Any, where: Any, ends: Any, letters: Any, sizes: Any,
    closed: Any,
) -> None:  # fmt: skip
    """Put names into the table and the order, each at its coordinate, unless it is there.

    data, starts, stops: what follows the prefix in each name, and where it lies. where, ends,
    letters: of each name in order its coordinate, where it ends after a first 0, and the letters of
    all; room for all that may come. sizes: how many names there are, and coordinates. closed: as
    ``unsettled``'s, or empty.
    """
    for i in range(len(coordinates)):
        place, h = coordinates[i], hashes[i]
        at = slot(keys, place)
        if counts[at] > EACH or (keys[at] == 0 and sizes[1] == COORDINATES):
            continue
        new = sizes[0]
        begin = ends[new]
        end = copied(letters, begin, prefix, 0, len(prefix))
        end = copied(letters, end, data, starts[i], stops[i])
        count, first, fresh = int(counts[at]), EACH * at, True
        for k in range(first, first + count):
            name = entries[k]
            if h == 0 or known[k] == 0:
                if ends[name + 1] - ends[name] == end - begin:
                    fresh &= not alike(letters, ends[name], begin, end - begin)
            elif known[k] == h:
                fresh = False
        if not fresh:
            continue
        if count == 0:
            keys[at] = place + 1
            sizes[1] += 1
        if count < EACH:
            known[first + count], entries[first + count] = h, new
        else:
            letters[begin], end = MORE, begin + 1
            if len(closed):
                bit = place & (8 * len(closed) - 1)
                closed[bit >> 3] |= 1 << (bit & 7)
        counts[at] = count + 1
        where[new], ends[new + 1], sizes[0] = place, end, new + 1
