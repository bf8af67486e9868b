"""Parts: named arrays of a range [lo, hi), packed as safetensors, verified by size and SHA-256.

F32, F64, I64 and U64 only, little-endian, C order; every bit is saved (NaN payloads, −0.0). A part
that becomes smaller by it is compressed with zstd: most of a hashed model's coordinates are often
those of the start.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from streamomd.checkpoint.sealed_json import Fields
from streamomd.core.errors import CorruptionError, UsageError
from streamomd.core.urls import printable

Part = tuple[int, int, dict[str, NDArray[Any]]]
"""lo, hi, and the arrays of that range; callers limit a part to ``Store.part_bytes``."""

DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8"}
_CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}
_ORDER = ("U64", "I64", "F64", "F32")
"""In a file, arrays are by dtype, then by name."""
PART_LIMIT = 1 << 30
HEADER_LIMIT = 1 << 20
ZSTD = "zstd"
LEVEL = -5
"""At this level 4 MB of zeros take .4 ms and 151 bytes, and 4 MB that do not compress as long."""
LEAST, WORTH = 1 << 14, 0.95
"""A part of ``LEAST`` bytes is compressed if it then takes at most this share of them."""
LAST = 10**12 - 1


class PartEntry(NamedTuple):
    """A part's entry in the manifest.

    size, sha256: of the object. arrays: name to (code of the dtype, shape). unpacked: bytes of the
    safetensors file if the object is compressed, else 0.
    """

    name: str
    size: int
    sha256: str
    lo: int
    hi: int
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    unpacked: int = 0

    @property
    def memory(self) -> int:
        """Bytes in memory while it is read."""
        return self.size + self.unpacked

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        arrays = {name: [code, list(shape)] for name, (code, shape) in self.arrays.items()}
        fields = {**self._asdict(), "arrays": arrays}
        unpacked = fields.pop("unpacked")
        return fields | ({ZSTD: unpacked} if unpacked else {})


class StoredParts(NamedTuple):
    """Parts already in a store, below ``data/directory``."""

    directory: str
    entries: tuple[PartEntry, ...]

    @property
    def parts(self) -> tuple[PartEntry, ...]:
        """The parts, under the name that a commit has for them."""
        return self.entries

    def part_name(self, entry: PartEntry) -> str:
        """The object that holds a part."""
        return f"data/{self.directory}/{entry.name}"


def pack(part: Part) -> tuple[PartEntry, bytes]:
    """A part's entry and bytes. Raises UsageError for other dtypes, a wrong range, or > 1 GiB."""
    lo, hi, given = part
    if not 0 <= lo < hi <= LAST:
        raise UsageError(f"a part's range is 0 <= lo < hi <= {LAST}, not {lo} to {hi}")
    arrays = {name: _little_endian(name, array) for name, array in given.items()}
    if sum(array.nbytes for array in arrays.values()) > PART_LIMIT - HEADER_LIMIT:
        raise UsageError(f"part {lo} to {hi} has more than 1 GiB: yield smaller parts")
    data = _save(arrays)
    described = {name: (_CODES[array.dtype], array.shape) for name, array in arrays.items()}
    unpacked = 0
    if len(data) >= LEAST:
        small = pa.Codec(ZSTD, compression_level=LEVEL).compress(data, asbytes=True)
        if len(small) <= WORTH * len(data):
            data, unpacked = small, len(data)
    sha256, name = hashlib.sha256(data).hexdigest(), _name(lo, hi, unpacked)
    return PartEntry(name, len(data), sha256, lo, hi, described, unpacked), data


def _save(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Returns what ``safetensors.numpy.save`` does, which copies every array three times."""
    ordered = sorted(arrays, key=lambda name: (_ORDER.index(_CODES[arrays[name].dtype]), name))
    header, end = {}, 0
    for name in ordered:
        array = arrays[name]
        offsets = [end, end := end + array.nbytes]
        shape = list(array.shape)
        header[name] = {"dtype": _CODES[array.dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    numbers = [arrays[name].reshape(-1).view(np.uint8).data for name in ordered]
    return b"".join([len(text).to_bytes(8, "little"), text, *numbers])


def unpack(entry: PartEntry, data: bytes) -> Part:
    """The part of these bytes. Raises CorruptionError if they are not bit-identical."""
    if len(data) != entry.size:
        raise CorruptionError(f"{entry.name} has {len(data):,} bytes, not {entry.size:,}")
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise CorruptionError(f"the SHA-256 of {entry.name} differs from the committed one")
    if entry.unpacked:
        try:
            data = pa.decompress(data, entry.unpacked, ZSTD, asbytes=True)
        except (OSError, ValueError) as error:
            raise CorruptionError(f"{entry.name} is not what zstd has written: {error}") from None
    if int.from_bytes(data[:8], "little") > HEADER_LIMIT:
        raise CorruptionError(f"{entry.name} has a header that is too long")
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError) as error:
        raise CorruptionError(
            f"{entry.name} is not a safetensors file: {printable(str(error))}"
        ) from None
    described = {name: (_CODES.get(array.dtype), array.shape) for name, array in arrays.items()}
    if described != entry.arrays:
        raise CorruptionError(f"{entry.name} has other arrays than its manifest lists")
    return entry.lo, entry.hi, arrays


def parse_entry(value: Any) -> PartEntry:
    """An entry of a manifest; CorruptionError if its numbers do not agree with each other."""
    fields = Fields(value, "a part")
    lo, hi = fields.number("lo", LAST), fields.number("hi", LAST)
    name = fields.text("name", r"p[0-9]{12}-[0-9]{12}\.safetensors(\.zst)?")
    size, sha256 = fields.number("size", PART_LIMIT), fields.text("sha256", r"[0-9a-f]{64}")
    unpacked = fields.number(ZSTD, PART_LIMIT) if ZSTD in fields.values else 0
    if lo >= hi or name != _name(lo, hi, unpacked):
        raise fields.invalid("name")
    if unpacked and size > unpacked:
        raise fields.invalid("size")
    arrays = {key: _parse_array(fields, one) for key, one in fields.mapping("arrays").items()}
    declared = sum(
        math.prod(shape) * np.dtype(DTYPES[code]).itemsize for code, shape in arrays.values()
    )
    if not 0 <= (unpacked or size) - declared - 8 <= HEADER_LIMIT:
        raise fields.invalid("arrays")
    return PartEntry(name, size, sha256, lo, hi, arrays, unpacked)


def _parse_array(fields: Fields, value: Any) -> tuple[str, tuple[int, ...]]:
    legal = (
        isinstance(value, list)
        and len(value) == 2
        and value[0] in tuple(DTYPES)
        and isinstance(value[1], list)
        and len(value[1]) <= 8
        and all(type(one) is int and 0 <= one <= PART_LIMIT for one in value[1])
    )
    if not legal:
        raise fields.invalid("arrays")
    return value[0], tuple(value[1])


def _name(lo: int, hi: int, unpacked: int) -> str:
    return f"p{lo:012d}-{hi:012d}.safetensors" + (".zst" if unpacked else "")


def _little_endian(name: str, array: NDArray[Any]) -> NDArray[Any]:
    dtype = array.dtype.newbyteorder("<")
    if name == "__metadata__":
        raise UsageError("an array may not be named '__metadata__': safetensors reserves it")
    if dtype not in _CODES:
        raise UsageError(
            f"array {name!r} is {array.dtype}; expected float32, float64, int64 or uint64"
        )
    return np.asarray(array, dtype=dtype, order="C")
