"""Check that an Avro file is whole, and what it unpacks to, before pyiceberg reads it: it takes one
that was cut off for a shorter one, and limits nothing.

    Obj1, a map (pairs in blocks, the last block empty), 16 bytes of a sync marker, then blocks:
    number of rows, number of bytes, these bytes, the sync marker

Numbers are zigzag-coded, 7 bits a byte, the lowest first.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

MAGIC, SYNC = b"Obj\x01", 16
CODEC, WITHOUT_ONE = b"avro.codec", b"null"
MOST_UNPACKED = 1 << 28
"""Bytes of all blocks of a file. In memory their rows are several times as large."""
STEP = 1 << 20


def check_container(data: bytes) -> None:
    """Raise ValueError unless an Avro file ends with a whole block, and unpacks to few bytes."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("it is not an Avro file")
    at, pairs = len(MAGIC), list[bytes]()
    while True:
        count, at = _number(data, at)
        if count < 0:  # then the block's bytes follow
            count, at = -count, _number(data, at)[1]
        if not count:
            break
        for _ in range(2 * count):
            length, at = _number(data, at)
            begin, at = at, _skip(data, at, length)
            pairs.append(data[begin:at])
    codec = dict(zip(pairs[::2], pairs[1::2], strict=True)).get(CODEC, b"deflate")
    sync, at = data[at : at + SYNC], _skip(data, at, SYNC)
    unpacked = 0
    while at < len(data):
        rows, at = _number(data, at)
        length, at = _number(data, at)
        begin, at = at, _skip(data, at, length)
        if data[at : at + SYNC] != sync:
            raise ValueError("it was cut off, or a block has no end")
        at = _skip(data, at, SYNC)
        if rows < 0 or (not rows and at < len(data)):  # a reader would stop there
            raise ValueError(f"a block has {rows} rows")
        for size in _unpacked(codec, data[begin : begin + length]):
            unpacked += size
            if unpacked > MOST_UNPACKED:
                raise ValueError(f"unpacked it has more than {MOST_UNPACKED:,} bytes")


def _unpacked(codec: bytes, block: bytes) -> Iterator[int]:
    """The sizes of the parts of a block as it is unpacked. No part is large."""
    if codec == WITHOUT_ONE:
        yield len(block)
    elif codec == b"deflate":
        unpacker = zlib.decompressobj(-15)
        while block and not unpacker.eof:
            yield len(unpacker.decompress(block, STEP))
            block = unpacker.unconsumed_tail
    elif codec in (b"zstandard", b"bzip2"):
        name = {b"zstandard": "zstd", b"bzip2": "bz2"}[codec]
        with pa.input_stream(pa.BufferReader(block), compression=name) as stream:
            while part := stream.read(STEP):
                yield len(part)
    elif codec == b"snappy":  # which begins with its length
        size = 0
        for at, byte in enumerate(block[:5]):
            size |= (byte & 127) << (7 * at)
            if byte < 128:
                break
        yield size
    else:
        raise ValueError("its codec is unknown")


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
