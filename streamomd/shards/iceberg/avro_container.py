"""Check that an Avro file is whole: pyiceberg takes one that was cut off for a shorter one.

    Obj1, a map (pairs in blocks, the last block empty), 16 bytes of a sync marker, then blocks:
    number of rows, number of bytes, these bytes, the sync marker

Numbers are zigzag-coded, 7 bits a byte, the lowest first.
"""

from __future__ import annotations

MAGIC, SYNC = b"Obj\x01", 16


def check_container(data: bytes) -> None:
    """Raise ValueError unless an Avro file ends with a whole block."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("it is not an Avro file")
    at = len(MAGIC)
    while True:
        count, at = _number(data, at)
        if count < 0:  # then the block's bytes follow
            count, at = -count, _number(data, at)[1]
        if not count:
            break
        for _ in range(2 * count):
            length, at = _number(data, at)
            at = _skip(data, at, length)
    sync, at = data[at : at + SYNC], _skip(data, at, SYNC)
    while at < len(data):
        rows, at = _number(data, at)
        length, at = _number(data, at)
        at = _skip(data, at, length)
        if data[at : at + SYNC] != sync:
            raise ValueError("it was cut off, or a block has no end")
        at = _skip(data, at, SYNC)
        if rows < 0 or (not rows and at < len(data)):  # a reader would stop there
            raise ValueError(f"a block has {rows} rows")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next byte is."""
    found = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("it was cut off")


def _skip(data: bytes, at: int, length: int) -> int:
    if length < 0 or at + length > len(data):
        raise ValueError("it was cut off")
    return at + length
