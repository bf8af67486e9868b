"""murmur3 x86_32 over Arrow's buffers: a coordinate a value, and no Python object for any of them.

Plain Python that numba compiles: a mask limits integers to 32 bits, so that both are
bit-identical.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import register_jitable

from streamomd.core.jit import compiled, int64, read, written

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
        found = of_null
        if at + 1 < len(offsets) and not (len(gone) and gone[at]):
            found = murmur(h, rest, bits, length, data, offsets[at], offsets[at + 1])
        hashes[k] = found
        if len(codes):
            table[at] = first + (found & mask)
        else:
            out[k] = first + (found & mask)
    for row in range(len(codes)):
        out[row] = table[codes[row] & _PLACE]
    return count
