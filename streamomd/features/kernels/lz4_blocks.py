"""LZ4 blocks, decompressed by compiled code.

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

MALFORMED = -1
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
            return length, MALFORMED
        more = int(data[at & _PLACE])
        at += 1
        length += more
    return length, at


def unfold(data: Any, out: Any) -> int:
    """Decompress a block: how many bytes were written; MALFORMED if it is none, or does not fit."""
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
                return MALFORMED
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
            return MALFORMED
        copy_bytes(data, at, out, done, literals)
        at += literals
        done += literals
        if done > size - _LAST_MATCH or at > end - _LAST_BYTES:
            return done if at == end else MALFORMED
        back = int(data[at & _PLACE]) | (int(data[(at + 1) & _PLACE]) << 8)
        at += 2
        if match == _LEAST + _ESCAPE:
            match, at = read_length(data, at, end, match)
        if at < 0 or back == 0 or back > done or match > size - _LAST_LITERALS - done:
            return MALFORMED
        copy_bytes(out, done - back, out, done, match)
        done += match
    return MALFORMED
