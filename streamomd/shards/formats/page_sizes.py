"""How many bytes a compressed page unfolds to, by its own account.

pyarrow's codecs fill a buffer of a given size and do not say how much of it they filled. So a page
is decompressed only where its bytes say themselves that they fill it.
"""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.jit import compiled, read
from streamomd.shards.formats.thrift import read_unsigned

_ZSTD = 0xFD2FB528
_ESCAPE = 15
_UNKNOWN = -1


@functools.cache
def lz4_sizer() -> Any:
    """``lz4_size``, compiled."""
    return compiled(lz4_size, read("uint8"))


def zstd_size(data: Any) -> int:
    """The size in the header of a Zstandard frame, which its decoder compares; −1 if it has none.

    >>> zstd_size(bytes.fromhex("28b52ffd2005"))
    5
    """
    if len(data) < 5 or int.from_bytes(data[:4], "little") != _ZSTD:
        return _UNKNOWN
    how = data[4]
    single = (how >> 5) & 1
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[how & 3]
    length = (single, 2, 4, 8)[how >> 6]
    if not length or at + length > len(data):
        return _UNKNOWN
    return int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0)


def snappy_size(data: Any) -> int:
    """The size that begins a snappy block, which its decoder compares; −1 if it has none."""
    try:
        return read_unsigned(data, 0, 35)[0]
    except (IndexError, ValueError):
        return _UNKNOWN


def lz4_size(data: Any) -> int:
    """The size of an LZ4 block: the sum of its sequences' sizes; −1 if it is none."""
    at, end, size = 0, len(data), 0
    while at < end:
        token = int(data[at])
        at += 1
        literals = token >> 4
        if literals == _ESCAPE:
            more = 255
            while more == 255:
                if at >= end:
                    return _UNKNOWN
                more = int(data[at])
                literals += more
                at += 1
        at += literals
        size += literals
        if at >= end:
            return size if at == end else _UNKNOWN
        at += 2
        match = 4 + (token & 15)
        if match == 4 + _ESCAPE:
            more = 255
            while more == 255:
                if at >= end:
                    return _UNKNOWN
                more = int(data[at])
                match += more
                at += 1
        size += match
    return _UNKNOWN
