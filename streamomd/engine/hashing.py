"""murmur3 x86_32 over Arrow's buffers: a coordinate a value, and no Python object for any of them.

Plain Python that numba compiles: whole numbers are held below 2^32 by a mask, so that both give the
same bits.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.engine.plain import compiled, int64, read, written

_LOW = 0xFFFFFFFF
_PROBES = 32


@functools.cache
def hasher() -> Any:
    """``places``, compiled; from the disk where it was kept."""
    values = [read("int32"), read("bool"), read("uint8"), read("int64")]
    watch = [written("uint32"), read("uint8")]
    out = [written("int32"), written("int32"), written("uint32"), written("int32")]
    return compiled(places, *values, *[int64] * 7, *watch, *out)


@functools.lru_cache(4096)
def begun(prefix: bytes, seed: int) -> tuple[int, int, int, int]:
    """The hash after the whole words of a prefix; the bits of its rest, how many; its length.

    >>> begun(b"jo", 0), begun(b"", 7)
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
    """The hash of a text of so many bytes."""
    h ^= length
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _LOW
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _LOW
    return h ^ (h >> 16)


@register_jitable(no_cfunc_wrapper=True)
def murmur(h: int, held: int, bits: int, length: int, data: Any, begin: int, end: int) -> int:
    """The hash of a prefix, as ``begun`` gives it, and bytes begin … end − 1 of data."""
    at = begin
    while at + 4 <= end:
        word = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24)
        held |= word << bits
        h = mixed(h, held & _LOW)
        held >>= 32
        at += 4
    while at < end:
        held |= data[at] << bits
        bits += 8
        at += 1
        if bits == 32:
            h, held, bits = mixed(h, held), 0, 0
    if bits:
        h ^= scrambled(held)
    return ended(h, length + end - begin)


@register_jitable(no_cfunc_wrapper=True)
def unsettled(found: Any, values: Any, count: int, hashes: Any) -> int:
    """Keep, of values, those that names were not told of; how many there are.

    found: their hashes. hashes: of values told of, as these are from now on; a table of 2^k with 0
    where nothing is, searched from a hash's higher bits on.
    """
    kept, last = 0, len(hashes) - 1
    for i in range(count):
        h = found[i] if found[i] else 1
        at = (h >> 12) & last
        for _ in range(_PROBES):
            if hashes[at] == h or hashes[at] == 0:
                break
            at = (at + 1) & last
        if hashes[at] != h:
            # Another thread may write there too: then one of the two comes again.
            hashes[at] = h
            values[kept] = values[i]
            kept += 1
    return kept


def places(
    codes: Any, gone: Any, data: Any, offsets: Any, h: int, held: int, bits: int, length: int,
    of_null: int, mask: int, first: int, hashes: Any, closed: Any, table: Any, out: Any,
    looked: Any, fresh: Any,
) -> int:  # fmt: skip
    """Write each row's coordinate: first + the hash's bits under mask; how many are fresh.

    codes: each row's value, one past the last for a null; empty: value k is row k's. gone: which
    values are null; empty: none is. data, offsets: the values, as Arrow keeps them. h … length:
    their prefix, as ``begun`` gives it. table: of each value the coordinate, −1 as long as none is
    known; empty: none is kept. closed: a bit a coordinate, or for all that have the same lowest
    bits: no name is taken there. fresh: room for values that names are to be told of, in order;
    looked: for their hashes; both empty: nobody asks.
    """
    told = 0
    for row in range(len(out)):
        at = codes[row] if len(codes) else row
        if len(table) and table[at] >= 0:
            out[row] = table[at]
            continue
        found = of_null
        if at + 1 < len(offsets) and not (len(gone) and gone[at]):
            found = murmur(h, held, bits, length, data, offsets[at], offsets[at + 1])
        place = first + (found & mask)
        out[row] = place
        if len(table):
            table[at] = place
        if len(fresh):
            looked[told], fresh[told] = found, at
            bit = place & (8 * len(closed) - 1)
            told += 1 - ((closed[bit >> 3] >> (bit & 7)) & 1)
    return unsettled(looked, fresh, told, hashes)
