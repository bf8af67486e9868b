"""How many bytes a compressed page unfolds to, by its own account.

pyarrow's codecs fill a buffer of a given size and do not say how much of it they filled. So a page
is decompressed only where its bytes say themselves that they fill it.
"""

from __future__ import annotations

from typing import Any

from streamomd.shards.formats.thrift import read_unsigned

_ZSTD = 0xFD2FB528
_UNKNOWN = -1


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
