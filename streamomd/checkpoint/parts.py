"""Parts: named arrays of a range of coordinates, as safetensors bytes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load, save

from streamomd.checkpoint.store import Store
from streamomd.errors import CorruptionError

Arrays = dict[str, NDArray[Any]]
Part = tuple[int, int, Arrays]

DTYPES = {"float32", "float64", "int64", "uint64"}
FOLDER = re.compile(r"data/\d{12}-[0-9a-f]{8}-[0-9a-f]{8}")
NAME = re.compile(r"p\d{12}-\d{12}\.safetensors")


@dataclass(frozen=True)
class PartEntry:
    """What a manifest says of a part."""

    folder: str
    name: str
    size: int
    sha256: str
    low: int
    high: int

    def __post_init__(self) -> None:
        expected = f"p{self.low:012d}-{self.high:012d}.safetensors"
        if not FOLDER.fullmatch(self.folder) or not NAME.fullmatch(self.name):
            raise CorruptionError(f"{self.folder!r}/{self.name!r} is no name of a part")
        if self.name != expected or not 0 <= self.low < self.high or self.size < 0:
            raise CorruptionError(f"{self.name!r} is not the part of {self.low} to {self.high}")

    @property
    def path(self) -> str:
        """Its name in the store."""
        return f"{self.folder}/{self.name}"


def write_part(store: Store, folder: str, part: Part) -> PartEntry:
    """Put a part; it has a name of its own, so an earlier try of ours is no obstacle."""
    low, high, arrays = part
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    name = f"p{low:012d}-{high:012d}.safetensors"
    entry = PartEntry(folder, name, len(data), hashlib.sha256(data).hexdigest(), low, high)
    try:
        store.create(entry.path, data)
    except FileExistsError:
        if store.read(entry.path) != data:
            raise
    return entry


def read_part(store: Store, entry: PartEntry) -> Part:
    """A part, proven to be the one that was committed. Raises CorruptionError."""
    data = check_part(store, entry)
    try:
        arrays = load(data)
    except safetensors.SafetensorError as error:
        raise CorruptionError(f"{entry.path} is no safetensors file: {error}") from None
    if not {array.dtype.name for array in arrays.values()} <= DTYPES:
        raise CorruptionError(f"{entry.path} holds arrays of other types than {sorted(DTYPES)}")
    return entry.low, entry.high, arrays


def check_part(store: Store, entry: PartEntry) -> bytes:
    """A part's bytes, their size checked before they are read and their hash after."""
    size = store.size(entry.path)
    if size is None:
        raise CorruptionError(f"{entry.path} is missing")
    if size != entry.size:
        raise CorruptionError(f"{entry.path} has {size} bytes, not the {entry.size} committed")
    data = store.read(entry.path)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise CorruptionError(f"{entry.path} does not have the sha256 that was committed")
    return data
