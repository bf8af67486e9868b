"""Categories: column=value hashed to a coordinate, once per distinct value of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.kinds import TEXTS, family
from streamomd.features.names import Names
from streamomd.features.plan import Plan


def coordinate(text: bytes, seed: int, bits: int) -> int:
    """The lowest ``bits`` bits of murmur3 x86_32 of ``text``.

    >>> coordinate(b"", 0, 18), coordinate(b"hello", 0, 32)
    (0, 613153351)
    """
    return int(mmh3.hash(text, seed, signed=False)) & ((1 << bits) - 1)


def category(column: str, value: bytes | None) -> bytes:
    """What is hashed: column=value in UTF-8; for a null, the column and a byte 0xFF.

    No UTF-8 text holds 0xFF, so no string can fall together with the null by its meaning.

    >>> category("job", b"admin."), category("job", None)
    (b'job=admin.', b'job\\xff')
    """
    name = column.encode()
    return name + b"\xff" if value is None else name + b"=" + value


class Coded(NamedTuple):
    """Values of rows. codes: each row's, below ``size``. used: the codes there are, ascending.

    texts: of each code that is used, the value as bytes; None for a null.
    """

    codes: NDArray[np.int64]
    size: int
    used: NDArray[np.int64]
    texts: list[bytes | None]


def coded(array: pa.Array) -> Coded:
    """The distinct values of a column, which may be a dictionary; each is looked at once."""
    known = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = codes_of(known)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    return Coded(codes, len(known.dictionary) + 1, used, _values(known.dictionary, used))


def categories(array: pa.Array, column: str, plan: Plan, names: Names | None) -> NDArray[np.int32]:
    """Each row's coordinate (n,). Every value, a null too, is a category: none is bad."""
    found = coded(array)
    known, of_null = f"{column}=".encode(), category(column, None)
    texts = (of_null if text is None else known + text for text in found.texts)
    table = np.empty(found.size, np.int32)
    table[found.used] = places(texts, len(found.texts), plan)
    if names is not None:
        names.note(column, table[found.used].tolist(), found.texts)
    return table[found.codes]


def places(texts: Iterable[bytes], count: int, plan: Plan) -> NDArray[np.int32]:
    """The coordinates of texts, (count,)."""
    # Once a distinct value, of which there may be as many as rows: nothing is looked up in a loop.
    seed, hashed = plan.hash_seed, mmh3.hash
    hashes = (hashed(text, seed, signed=False) for text in texts)
    found = np.fromiter(hashes, np.int64, count)
    return (found % (1 << plan.bits) + plan.hashed_offset).astype(np.int32)


def paired(
    first: NDArray[np.int64], second: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Each one's place among the distinct pairs of codes, and the two codes of each such pair.

    size: above every code of the second; both are below 2^31, so that a pair is one number.
    """
    known = pa.array(first * size + second).dictionary_encode()
    pairs = known.dictionary.to_numpy()
    codes = known.indices.to_numpy().astype(np.int64)
    return codes, pairs // max(1, size), pairs % max(1, size)


def as_text(values: pa.Array) -> list[bytes | None]:
    """Values as the bytes that are hashed; numbers and booleans are written one way only.

    >>> as_text(pa.array([1.0, -0.0, None])), as_text(pa.array([True])), as_text(pa.array([7]))
    ([b'1.0', b'0.0', None], [b'true'], [b'7'])
    """
    if family(values.type) in TEXTS:
        found: list[bytes | None] = as_bytes(values).to_pylist()
        return found
    return [None if value is None else _number(value) for value in values.to_pylist()]


def as_bytes(values: pa.Array) -> pa.Array:
    """Strings as bytes: a shard may hold a string that is not UTF-8."""
    if values.type == pa.string():
        return values.cast(pa.binary())
    return values if pa.types.is_fixed_size_binary(values.type) else values.cast(pa.large_binary())


def _number(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    # Adding 0.0 makes one category of -0.0 and 0.0, which are equal.
    return repr(value + 0.0 if isinstance(value, float) else value).encode()


def codes_of(coded: pa.DictionaryArray) -> NDArray[np.int64]:
    """Each row's place in the dictionary; one past its end for a null."""
    indices = coded.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(coded.dictionary))
    codes: NDArray[np.int64] = indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes


def _values(dictionary: pa.Array, used: NDArray[np.int64]) -> list[bytes | None]:
    known = used[used < len(dictionary)]
    if family(dictionary.type) in TEXTS:
        dictionary = as_bytes(dictionary)
    return as_text(dictionary.take(pa.array(known))) + [None] * (len(used) - len(known))
