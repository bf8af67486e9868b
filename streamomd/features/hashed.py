r"""Categories and crosses of them: column=value hashed to a coordinate, by compiled code.

The text is ``job^marital=admin.^single``. In a column's name and in a value ``^`` is written ``\^``
and a backslash ``\\``; a null is ``\N``. So values that differ have different texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features.arrow_types import TEXTS, family
from streamomd.features.buffers import buffers
from streamomd.features.csr import Csr
from streamomd.features.lists import elements_of, of_any_length
from streamomd.features.names import AsciiValues, Names, name_of
from streamomd.features.plan import Plan

Codes = NDArray[np.int32]
_NO_CODES, _NO_NULLS = np.empty(0, np.int32), np.empty(0, np.bool_)
STORED_AS_BYTES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def coordinate(text: bytes, seed: int, bits: int) -> int:
    """The lowest ``bits`` bits of murmur3 x86_32 of ``text``.

    >>> coordinate(b"", 0, 18), coordinate(b"hello", 0, 32)
    (0, 613153351)
    """
    return int(mmh3.hash(text, seed, signed=False)) & ((1 << bits) - 1)


def category(column: str, value: bytes | None) -> bytes:
    """What is hashed: column=value in UTF-8; for a null, the column and a byte 0xFF.

    No UTF-8 text contains 0xFF, so no string has the text of the null.

    >>> category("job", b"admin."), category("job", None)
    (b'job=admin.', b'job\\xff')
    """
    name = column.encode()
    return name + b"\xff" if value is None else name + b"=" + value


class HashedValues:
    """The coordinates of a dictionary's values that were hashed already, by column: slices of a row
    group may share a dictionary."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[Any, pa.Array, Codes, Any, Any]] = {}

    def table(self, column: str, values: pa.Array) -> tuple[Codes, Any, Any]:
        """The coordinate of each value and of null, or −1; those of this dictionary if it is the
        column's last one. And its bytes and offsets."""
        where = (
            values.offset,
            len(values),
            *(buffer and buffer.address for buffer in values.buffers()),
        )
        # As long as the dictionary is referred to, no other one is at its address.
        known = self._tables.get(column)
        if known is None or known[0] != where:
            table = np.full(len(values) + 1, -1, np.int32)
            known = self._tables[column] = where, values, table, *buffers(values)
        return known[2:]


def categories(
    array: pa.Array, column: str, plan: Plan, names: Names | None, out: Codes | None = None,
    hashed: HashedValues | None = None,
) -> Codes:  # fmt: skip
    """Each row's coordinate (n,), in ``out`` if it is given. Every value is a category, null
    included: none is bad. hashed: of the batches before."""
    # A string costs less to hash than to look up among the distinct ones; a number must be written.
    if pa.types.is_dictionary(array.type) or family(array.type) not in TEXTS:
        codes, values = coded(array)
        return places(values, column, plan, names, codes, out, hashed)
    return places(array, column, plan, names, None, out)


def places(
    values: pa.Array, column: str, plan: Plan, names: Names | None, codes: Codes | None = None,
    out: Codes | None = None, hashed: HashedValues | None = None,
) -> Codes:  # fmt: skip
    """The coordinates of column=value, (n,): of each value, or of values[code] of each code.

    codes: below len(values), or len(values) for a null; a value that no row has is not hashed, and
    none of ``hashed`` again.
    """
    # Late: numba is loaded only where values are hashed.
    from streamomd.features.kernels.murmur3 import hasher, prefix_state

    if values.type not in STORED_AS_BYTES:
        values = as_bytes(values)
    gone = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else _NO_NULLS
    if out is None:
        out = np.empty(len(values if codes is None else codes), np.int32)
    if codes is None:
        table, wanted, hashes = _NO_CODES, _NO_CODES, np.empty(len(values), np.uint32)
        data, offsets = buffers(values)
    else:
        table, data, offsets = (hashed or HashedValues()).table(column, values)
        wanted = np.empty(min(len(codes), len(table)) + 1, np.int32)
        hashes = np.empty(len(wanted), np.uint32)
    size = hasher()(
        _NO_CODES if codes is None else codes, gone, data, offsets,
        *prefix_state(category(column, b""), plan.hash_seed),
        coordinate(category(column, None), plan.hash_seed, 32),
        (1 << plan.bits) - 1, plan.hashed_offset, table, wanted, hashes, out,
    )  # fmt: skip
    if names is not None and names.is_due(column):
        wanted = np.arange(size) if codes is None else wanted[:size]
        _note_names(names, column, plan, (values, data, offsets), wanted, hashes[:size])
    return out


def listed_categories(
    array: pa.Array, column: str, plan: Plan, names: Names | None, dtype: Any
) -> Csr:
    """A coordinate for each element, in the order of the list, with the value 1.

    A null list is one null element, which is a category of its own; an empty list has none.
    """
    array = of_any_length(array)
    if array.null_count:
        array = array.fill_null(pa.scalar([None], array.type))
    begins, elements = elements_of(array)
    at = categories(elements, column, plan, names)
    return begins, at - np.int32(plan.bias), np.ones(len(at), dtype)


def _note_names(
    names: Names, column: str, plan: Plan,
    given: tuple[pa.Array, NDArray[np.uint8], NDArray[np.int64]],
    wanted: NDArray[Any], hashes: NDArray[np.uint32],
) -> None:  # fmt: skip
    """Note the names of the hashed values, where they are not settled.

    given: the values, and their bytes and offsets.
    """
    from streamomd.features.kernels.murmur3 import chooser  # late: it imports numba

    first, mask = plan.hashed_offset, (1 << plan.bits) - 1
    fresh = np.empty(len(hashes), np.int64)
    unnamed = chooser()(len(hashes), hashes, first, mask, *names.watch(plan.size), fresh)
    if unnamed:
        (values, data, offsets), fresh = given, fresh[:unnamed]
        at, new_hashes = wanted[fresh], hashes[fresh]
        coordinates = (first + (new_hashes & np.uint32(mask))).astype(np.int32)
        letters = data[offsets[0] : offsets[-1]]
        if not values.null_count and at.max() < len(values) and letters.max(initial=0) < 128:
            # Most are: Arrow would copy them three times.
            some = AsciiValues(data, offsets[at], offsets[at + 1])
            names.note(column, coordinates, some, new_hashes)
            return
        taken = pa.array(at, mask=at == len(values))
        some = as_bytes(arrow_function()("take", [values, taken]))
        names.note(column, coordinates, some, new_hashes)


def coded(array: pa.Array) -> tuple[Codes, pa.Array]:
    """Each row's code (n,), and the values: one past their end is the code of a null."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    known = array
    if not pa.types.is_dictionary(array.type):
        known = arrow_function()("dictionary_encode", [array])
    indices, values = known.indices, known.dictionary
    if indices.type != pa.int32():
        indices = arrow_cast(indices, pa.int32())
    if not len(indices):
        return _NO_CODES, values
    valid, data = indices.buffers()
    low, high = indices.offset, indices.offset + len(indices)
    codes = np.frombuffer(data, np.int32, high)[low:]
    if not indices.null_count:
        return codes, values
    bits = np.frombuffer(valid, np.uint8)
    some = np.unpackbits(bits, count=high, bitorder="little")[low:].view(np.int8)
    # A tenth of the time of np.where, and this one's is a quarter of that of Arrow's fill_null.
    null = np.int32(len(values))
    return (codes - null) * some + null, values


def as_bytes(values: pa.Array) -> pa.Array:
    """Values as the bytes that are hashed, large_binary: strings as they are, UTF-8 or not; numbers
    and booleans are written one way only.

    >>> as_bytes(pa.array([1.0, -0.0, None])).to_pylist(), as_bytes(pa.array([True])).to_pylist()
    ([b'1.0', b'0.0', None], [b'true'])
    """
    if family(values.type) == "float":
        # Adding 0.0 makes one category of -0.0 and 0.0, which are equal.
        texts = [None if v is None else repr(v + 0.0).encode() for v in values.to_pylist()]
        return pa.array(texts, pa.large_binary())
    if family(values.type) not in TEXTS:
        values = arrow_cast(values, pa.large_string())
    return arrow_cast(values, pa.large_binary())


def paired(first: Codes, second: Codes, size: int) -> tuple[Codes, pa.Array, pa.Array]:
    """Each one's place among the distinct pairs of codes, and the two codes of each such pair.

    size: above every code of the second.
    """
    coded = pa.array(first.astype(np.int64) * size + second).dictionary_encode()
    pairs = coded.dictionary.to_numpy()
    return coded.indices.to_numpy(), pa.array(pairs // size), pa.array(pairs % size)


def side_by_side(left: pa.Array, right: pa.Array, between: str) -> pa.Array:
    """Two arrays' bytes in one, large_binary, with something between them."""
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    return pc.binary_join_element_wise(left, right, pa.scalar(between.encode(), pa.large_binary()))


_BETWEEN, NULL = "^", "\\N"


def cross_name(columns: Sequence[str]) -> str:
    r"""The name of a cross.

    >>> cross_name(["job", "marital"]), cross_name(["a^b", "c"])
    ('job^marital', 'a\\^b^c')
    """
    return _BETWEEN.join(name.replace("\\", "\\\\").replace("^", "\\^") for name in columns)


def crossed(
    columns: Sequence[str], arrays: Sequence[pa.Array], plan: Plan, names: Names | None
) -> NDArray[np.int32]:
    """Each row's coordinate (n,): hashed once for all rows that have the same values."""
    codes, texts = _values(arrays[0])
    for array in arrays[1:]:
        more, others = _values(array)
        codes, first, second = paired(codes, more, len(others))
        texts = side_by_side(texts.take(first), others.take(second), _BETWEEN)
    return places(texts, cross_name(columns), plan, names, codes)


def _values(array: pa.Array) -> tuple[Codes, pa.Array]:
    """Each row's place among the distinct values of all rows, and these, escaped."""
    codes, values = coded(array)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    rank = np.empty(len(values) + 1, np.int32)
    rank[used] = np.arange(len(used))
    texts = as_bytes(values).take(pa.array(used, mask=used == len(values)))
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    for special in (b"\\", b"^"):
        texts = pc.replace_substring(texts, special, b"\\" + special)
    return rank[codes], texts.fill_null(pa.scalar(NULL.encode(), pa.large_binary()))


UNKNOWN = -1


def coordinates_of(plan: Plan, names: Sequence[str]) -> list[int]:
    """The coordinate of each name; ``UNKNOWN`` where the plan has no such feature.

    A name is one that ``name_of`` gives: bias, age, embedding[3], i:17, age is null; a hashed
    feature has the text that is hashed, job=admin., or job is null.
    """
    hashed = (
        *plan.hashed,
        *(name for date in plan.dates for name in date.names),
        *map(cross_name, plan.crossed),
        *(text.column for text in plan.text),
    )
    known = _dense(plan)
    return [known[n] if n in known else _other(plan, hashed, n) for n in names]


def _dense(plan: Plan) -> dict[str, int]:
    """Bias, numbers, vectors, indicators: few enough to be listed."""
    places = (*range(plan.hashed_offset), *range(plan.indicator_offset, plan.size))
    return {name_of(plan, Names(), place): place for place in places}


def _other(plan: Plan, hashed: Sequence[str], name: str) -> int:
    if plan.sparse:
        column, _, index = name.rpartition(":")
        if column == plan.sparse.indices and index.isdecimal() and int(index) < plan.sparse.size:
            return plan.sparse_offset + int(index)
    for column in hashed:
        of_null = name == f"{column} is null"
        if of_null or name.startswith(f"{column}="):
            text = category(column, None) if of_null else name.encode()
            return plan.hashed_offset + coordinate(text, plan.hash_seed, plan.bits)
    return UNKNOWN
