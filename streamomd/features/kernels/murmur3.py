"""Coordinates of hashed names: murmur3 over Arrow's buffers, and a table of the names.

Plain Python that numba compiles: a mask limits integers to 32 bits, so that both are
bit-identical.

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

from streamomd.core.jit import LazyCompiled, compiled, int64, read, written

_LOW = 0xFFFFFFFF
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative: four bytes become one load."""
UNSEEN, WANTED = -1, -2
"""States of a dictionary's value: no row had it until now; a row has it."""


@functools.cache
def hasher() -> Any:
    """``places``, compiled, or loaded from the disk cache."""
    values = [read("int32"), read("bool"), read("uint8"), read("int64")]
    made = [written("int32"), written("int32"), written("uint32"), written("int32")]
    return compiled(places, *values, *[int64] * 7, *made)


@functools.lru_cache(4096)
def prefix_state(prefix: bytes, seed: int) -> tuple[int, int, int, int]:
    """The hash after the whole words of a prefix; the bits of its rest, how many; its length.

    >>> prefix_state(b"jo", 0), prefix_state(b"", 7)
    ((0, 28522, 16, 2), (7, 0, 0, 0))
    """
    h, whole = seed, len(prefix) // 4 * 4
    for at in range(0, whole, 4):
        h = mixed(h, int.from_bytes(prefix[at : at + 4], "little"))
    rest = prefix[whole:]
    return h, int.from_bytes(rest, "little"), 8 * len(rest), len(prefix)


@register_jitable(no_cfunc_wrapper=True)
def scrambled(k: int) -> int:
    """A word before it is mixed in."""
    k = (k * 0xCC9E2D51) & _LOW
    k = ((k << 15) | (k >> 17)) & _LOW
    return (k * 0x1B873593) & _LOW


@register_jitable(no_cfunc_wrapper=True)
def mixed(h: int, k: int) -> int:
    """The hash after one more word."""
    h ^= scrambled(k)
    h = ((h << 13) | (h >> 19)) & _LOW
    return (h * 5 + 0xE6546B64) & _LOW


@register_jitable(no_cfunc_wrapper=True)
def ended(h: int, length: int) -> int:
    """The hash of a text of ``length`` bytes."""
    h ^= length
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _LOW
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _LOW
    return h ^ (h >> 16)


@register_jitable(no_cfunc_wrapper=True, forceinline=True)
def murmur(h: int, rest: int, bits: int, length: int, data: Any, low: int, high: int) -> int:
    """The hash of a prefix, as ``prefix_state`` gives it, and the bytes low … high − 1 of data."""
    size = high - low
    for word in range(size >> 2):
        at = (low + 4 * word) & _PLACE
        four = (
            int(data[at]) | (int(data[at + 1]) << 8) | (int(data[at + 2]) << 16)
            | (int(data[at + 3]) << 24)
        )  # fmt: skip
        rest |= four << bits
        h = mixed(h, rest & _LOW)
        rest >>= 32
    for at in range(low + (size & ~3), high):
        rest |= int(data[at & _PLACE]) << bits
        bits += 8
        if bits == 32:
            h, rest, bits = mixed(h, rest), 0, 0
    if bits:
        h ^= scrambled(rest)
    return ended(h, length + size)


def places(
    codes: Any, gone: Any, data: Any, offsets: Any, h: int, rest: int, bits: int, length: int,
    of_null: int, mask: int, first: int, table: Any, wanted: Any, hashes: Any, out: Any,
) -> int:  # fmt: skip
    """Write each row's coordinate: first + the hash's bits under mask; how many were hashed.

    codes: each row's value, one past the last for a null; empty: value k is row k's. gone: which
    values are null; empty: none is. data, offsets: the values, as Arrow stores them. h … length:
    their prefix, as ``prefix_state`` gives it. With codes each value that rows have is hashed once:
    table has the coordinate of each value and of null, or UNSEEN; wanted: room for the codes of
    what is hashed, and one more. Without: both empty. hashes: room for what is hashed.
    """
    count, least = 0 if len(codes) else len(out), 0
    for row in range(len(codes)):
        out[row] = table[codes[row] & _PLACE]
        least = min(least, int(out[row]))
    if len(codes) and least == 0:
        return 0
    for row in range(len(codes)):
        table[codes[row] & _PLACE] = WANTED if out[row] == UNSEEN else out[row]
    # Values are hashed as they lie in memory: a third of the time of the order of rows.
    for at in range(len(table)):
        wanted[count & _PLACE] = at
        count += table[at] == WANTED
    for k in range(count):
        at = int(wanted[k]) & _PLACE if len(codes) else k
        hashed = of_null
        if at + 1 < len(offsets) and not (len(gone) and gone[at]):
            hashed = murmur(h, rest, bits, length, data, offsets[at], offsets[at + 1])
        hashes[k] = hashed
        if len(codes):
            table[at] = first + (hashed & mask)
        else:
            out[k] = first + (hashed & mask)
    for row in range(len(codes)):
        out[row] = table[codes[row] & _PLACE]
    return count


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
