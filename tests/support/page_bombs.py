"""Small Parquet files whose page headers, levels or encoded values claim more than there is.

As a program: ``python tests/support/page_bombs.py ENCODING,… SEED CASES [FIRST]`` prints, of
each, how many cases ended how, the highest peak of memory of one (bytes), the longest (seconds of
processor time), and the case with the highest peak. Each case is a process forked for it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import thrift_compact as thrift

# Imported before the forks: otherwise each child would import them again.
from streamomd.core.errors import StreamomdError
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find

ROWS = 96
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
ENCODINGS = ("PLAIN", "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
             "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "RLE")  # fmt: skip
NUMBERS = (0, 1, 2, 63, 64, 1000, 1 << 14, 1 << 20, 1 << 24, 1 << 27, 1 << 28, 1 << 30,
           (1 << 31) - 1, -1, -(1 << 31), 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1)  # fmt: skip
SECONDS = 60
Page = tuple[thrift.Struct, bytes]


@dataclass(frozen=True)
class Whole:
    """A file of a column in one chunk: its pages with unpacked bodies, and its footer."""

    codec: str
    pages: tuple[Page, ...]
    footer: thrift.Struct


def column(encoding: str, nested: bool) -> pa.Array:
    """Values that the encoding can hold, in lists or alone, with nulls."""
    if encoding == "RLE":
        flat: list[Any] = [at % 3 == 0 for at in range(ROWS)]
    elif encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        flat = [f"word {at % 17}" for at in range(ROWS)]
    elif encoding == "DELTA_BINARY_PACKED":
        flat = [at * at % 1001 for at in range(ROWS)]
    else:
        flat = [at % 7 + 0.5 for at in range(ROWS)]
    if nested:
        return pa.array([[flat[at]] * (at % 4) for at in range(ROWS)])
    return pa.array([None if at % 11 == 5 else flat[at] for at in range(ROWS)])


def whole(encoding: str, codec: str, version: str, nested: bool) -> Whole:
    """What pyarrow writes, taken apart."""
    sink = pa.BufferOutputStream()
    coded = encoding == "RLE_DICTIONARY"
    path = "x.list.element" if nested else "x"
    pq.write_table(
        pa.table({"x": column(encoding, nested)}), sink, compression=codec, use_dictionary=coded,
        column_encoding=None if coded else {path: encoding}, data_page_version=version,
        write_statistics=False, store_schema=False,
    )  # fmt: skip
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = thrift.struct(data[-8 - length : -8])
    meta = chunk_of(footer)
    at = meta.get(11, meta[9])[1]
    end, pages = at + meta[7][1], []
    while at < end:
        header, at = thrift.struct(data, at)
        body = data[at : at + header[3][1]]
        at += header[3][1]
        pages.append((header, unpacked(header, body, codec)))
    return Whole(codec, tuple(pages), footer)


def chunk_of(footer: thrift.Struct) -> thrift.Struct:
    """The metadata of the only column chunk."""
    found: thrift.Struct = footer[4][1][1][0][1][1][1][0][3][1]
    return found


def levels(header: thrift.Struct) -> int:
    """Bytes of levels before the values of a page of version 2, which are not compressed."""
    if 8 not in header:
        return 0
    inner = header[8][1]
    return max(0, inner[5][1]) + max(0, inner[6][1])


def unpacked(header: thrift.Struct, body: bytes, codec: str) -> bytes:
    if codec == "none" or (8 in header and header[8][1].get(7, (1, True))[0] == thrift.FALSE):
        return body
    first = levels(header)
    size = header[2][1] - first
    name = "lz4_raw" if codec == "lz4" else codec
    return body[:first] + (pa.decompress(body[first:], size, name, asbytes=True) if size else b"")


def packed(header: thrift.Struct, body: bytes, codec: str) -> bytes:
    if codec == "none" or (8 in header and header[8][1].get(7, (1, True))[0] == thrift.FALSE):
        return body
    first = min(levels(header), len(body))
    name = "lz4_raw" if codec == "lz4" else codec
    return body[:first] + pa.compress(body[first:], name, asbytes=True)


def numbers_of(value: thrift.Struct, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where numbers are, in a struct and those inside it."""
    for field, (kind, inner) in value.items():
        if kind in (thrift.I32, thrift.I64, thrift.I16):
            yield (*path, field)
        elif kind == thrift.STRUCT:
            yield from numbers_of(inner, (*path, field))


def changed(value: thrift.Struct, path: tuple[int, ...], number: int) -> thrift.Struct:
    """A copy with another number at a place."""
    field, *rest = path
    kind, inner = value[field]
    return {**value, field: (kind, changed(inner, tuple(rest), number) if rest else number)}


def spoilt_body(rng: random.Random, body: bytes) -> bytes:
    """Lengths and runs that say more: at the beginning of the levels or of the values."""
    out = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = min(rng.choice((0, 0, 4, rng.randrange(12), rng.randrange(len(out) + 1))), len(out))
        new = rng.choice((
            thrift.varint(abs(rng.choice(NUMBERS)) << 1),  # a run of equal values
            thrift.varint(abs(rng.choice(NUMBERS))),
            (rng.choice(NUMBERS) & 0xFFFFFFFF).to_bytes(4, "little"),
            bytes([rng.randrange(256)]),
        ))  # fmt: skip
        if rng.randrange(2):
            out[at:at] = new
        else:
            out[at : at + len(new)] = new
    return bytes(out)


def long_run(rng: random.Random, body: bytes, version: str) -> bytes:
    """Levels of one run: very many elements of one row, in a few bytes."""
    run = thrift.varint(rng.choice((1 << 20, 1 << 26, 1 << 27, 1 << 28)) << 1) + b"\1"
    if version == "2.0":
        return run + body
    if len(body) < 8:
        return body
    length = int.from_bytes(body[:4], "little")
    first = bytes([2, 0]) + run
    deeper = thrift.varint(1 << 28 << 1) + bytes([rng.choice((1, 2, 3))])
    rest = body[4 + length :]
    second = int.from_bytes(rest[:4], "little")
    values = rest[4 + second :]
    return (len(first).to_bytes(4, "little") + first + len(deeper).to_bytes(4, "little") + deeper
            + values)  # fmt: skip


def mutation(rng: random.Random, given: Whole, version: str) -> bytes:
    """The file with numbers and bytes that are not true; most sizes are made right again."""
    pages = list(given.pages)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(pages))
        pages[at] = spoilt_page(rng, *pages[at], version)
    honest = rng.randrange(4) > 0
    for at, (header, body) in enumerate(pages):
        before, whole_body = given.pages[at]
        if body != whole_body and header[2] == before[2]:
            header = changed(header, (2,), len(body))
        if honest or header[3] == before[3]:
            header = changed(header, (3,), len(packed(header, body, given.codec)))
        pages[at] = header, body
    meta = chunk_of(given.footer)
    total = rng.choice((meta[6][1], 1 << 20, rng.choice(NUMBERS)))
    values = rng.choice(NUMBERS) if rng.randrange(3) == 0 else meta[5][1]
    return assembled(Whole(given.codec, tuple(pages), given.footer), {6: total, 5: values})


def spoilt_page(rng: random.Random, header: thrift.Struct, body: bytes, version: str) -> Page:
    """Its body, a number of its header, or one run of levels and how many values it stands for."""
    match rng.randrange(5):
        case 0:
            return header, spoilt_body(rng, body)
        case 1:
            counts = ((5, 1), (7, 1), (8, 1))
            place = next(path for path in numbers_of(header) if path in counts)
            return changed(header, place, rng.choice(NUMBERS)), long_run(rng, body, version)
        case _:
            path = rng.choice([path for path in numbers_of(header) if path != (3,)])
            return changed(header, path, rng.choice(NUMBERS)), body


def assembled(given: Whole, numbers: dict[int, int]) -> bytes:
    """The file of these pages; its footer has their places, and ``numbers`` about the chunk."""
    out, meta = bytearray(b"PAR1"), chunk_of(given.footer)
    for at, (header, body) in enumerate(given.pages):
        if at == 0 and 11 in meta:
            meta[11] = thrift.I64, len(out)
        elif at == (11 in meta):
            meta[9] = thrift.I64, len(out)
        out += thrift.written(header) + packed(header, body, given.codec)
    for field, number in {**numbers, 7: len(out) - 4}.items():
        meta[field] = thrift.I64, number
    tail = thrift.written(given.footer)
    return bytes(out + tail + len(tail).to_bytes(4, "little") + b"PAR1")


def read(path: Path) -> str:
    """As training reads it: found, decoded, encoded; "read" or "refused"."""
    try:
        shards = find(str(path))
        texts = [f.name for f in shards.shards[0].schema if pa.types.is_string(f.type)]
        batches = read_batches(
            shards, places=[0], columns=["x"], dictionary=texts, threads=1, unit_bytes=4 << 20,
            budget_bytes=32 << 20,
        )  # fmt: skip
        for _ in batches.map(lambda rows: rows.nbytes):
            pass
    except StreamomdError:
        return "refused"
    return "read"


def peak() -> int:
    """Bytes: the highest of this process since it was last reset."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


def child(path: Path, out: int) -> None:
    """One case, in a process forked for it."""
    Path("/proc/self/clear_refs").write_text("5")
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    began = time.process_time()
    try:
        ended = read(path)
    except BaseException as error:
        ended = f"{type(error).__name__}: {error}"
    os.write(out, json.dumps([ended, peak(), time.process_time() - began]).encode())
    os._exit(0)


def judged(path: Path) -> tuple[str, int, float]:
    """How a case ended, its peak of memory, and its seconds of processor time."""
    into, out = os.pipe()
    if (process := os.fork()) == 0:
        child(path, out)
    os.close(out)
    with os.fdopen(into, "rb") as told:
        said = told.read()
    _, status = os.waitpid(process, 0)
    if not said:
        return f"status {status}", 0, 0.0
    ended, memory, seconds = json.loads(said)
    return ended, memory, seconds


def main(encodings: str, seed: str, cases: str, first: str = "0") -> None:
    """Run cases, each of a codec, a version of pages, and of lists or none; a line each."""
    for encoding in encodings.split(","):
        print(json.dumps(ended(encoding, seed, range(int(first), int(first) + int(cases)))))


def ended(encoding: str, seed: str, cases: range) -> dict[str, Any]:
    """How the cases of an encoding ended."""
    found: Counter[str] = Counter()
    highest, longest, worst = 0, 0.0, ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        for at in cases:
            rng = random.Random(f"{encoding}-{seed}-{at}")
            codec, version = rng.choice(list(CODECS)), rng.choice(("1.0", "2.0"))
            given = whole(encoding, codec, version, bool(rng.randrange(3)))
            path.write_bytes(mutation(rng, given, version))
            end, memory, seconds = judged(path)
            found[end] += 1
            longest = max(longest, seconds)
            if memory > highest:
                highest, worst = memory, f"{encoding} {seed} 1 {at}"
    return {"ended": found, "peak": highest, "seconds": longest, "worst": worst}


if __name__ == "__main__":
    main(*sys.argv[1:])
