"""Texts: words and runs of words, hashed as ``column=word`` and ``column=word next``.

Nothing is fitted: a word's value is 1, its count in one text, or that count's logarithm. Words of a
column with the same coordinate are counted together, so that the result does not depend on
the order of summing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.arrow_buffers import buffers
from streamomd.features.bad_rows import CheckedValues, shown
from streamomd.features.canonical import Csr
from streamomd.features.csr import Places, indptr_of, joined, taken
from streamomd.features.hashed import Codes, as_bytes, coded, paired, places, side_by_side
from streamomd.features.names import Names
from streamomd.features.plan import Plan, Text
from streamomd.features.tokenize import words

_BLOCK = 1 << 17
_LOOKED_AT = 256

Grams = tuple[Places, Codes | None, pa.Array]


class Texts(NamedTuple):
    """Texts, each split once, and each row's place among them; None: text k is row k's."""

    places: Places | None
    found: pa.Array


def texts_of(array: pa.Array, cells: CheckedValues) -> Texts:
    """A column's texts; a null is empty. Notes those that are not UTF-8."""
    known = _looked_up(array) if _repeats(array) else _plain(array)
    try:
        return Texts(known.places, known.found.cast(pa.large_string()))
    except pa.ArrowInvalid:
        _note_other_bytes(known, cells)
        return known


def _repeats(array: pa.Array) -> bool:
    """Whether texts are likely to repeat: a look-up costs a tenth of splitting a text."""
    if pa.types.is_dictionary(array.type):
        return True
    some = array.slice(0, _LOOKED_AT)
    return 2 * len(some.dictionary_encode().dictionary) < len(some)


def _plain(array: pa.Array) -> Texts:
    found = as_bytes(array)
    return Texts(None, found.fill_null(b"") if found.null_count else found)


def _looked_up(array: pa.Array) -> Texts:
    """Of a dictionary those values that some row has, and an empty text for nulls."""
    codes, distinct = coded(array)
    size = len(distinct)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    known = used[used < size]
    found = as_bytes(distinct).take(pa.array(known))
    place = np.full(size + 1, len(known))
    place[known] = np.arange(len(known))
    empty = pa.array([b""], pa.large_binary())
    return Texts(place[codes], pa.concat_arrays([found, empty]))


def counted(texts: Texts, text: Text, plan: Plan, dtype: Any, names: Names | None) -> Csr:
    """Each row's words and runs of words: canonical rows, values by ``text.counts``."""
    made = [_block(some, text, plan, names) for some in _blocks(texts.found)]
    rows = indptr_of(np.concatenate([np.diff(begins) for begins, _, _ in made]))
    indices, values = (np.concatenate([block[part] for block in made]) for part in (1, 2))
    block = rows, indices, values.astype(dtype, copy=False)
    return block if texts.places is None else taken(block, texts.places)


def _blocks(texts: pa.Array) -> Iterator[pa.Array]:
    """Texts in order, 128 KiB at a time: memory for results this small is reused, not requested
    from the system each time, which takes a fifth of the time of one large block. At least one
    block.
    """
    _, offsets = buffers(texts)
    low = high = 0
    while high < len(texts) or not high:
        high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + _BLOCK)))
        yield texts.slice(low, high - low)
        low = high


def _block(texts: pa.Array, text: Text, plan: Plan, names: Names | None) -> Csr:
    indptr, found = words(texts)
    blocks = []
    for begins, codes, grams in _grams(indptr, found, text.ngrams):
        at = places(grams, text.column, plan, names, codes)
        blocks.append((begins, at, np.ones(len(at), np.float32)))
    begins, at, _ = joined(blocks)
    begins, indices, counts = _counts(begins, at, plan)
    return begins, indices, _VALUES[text.counts](counts)


def _counts(begins: Places, at: NDArray[np.int32], plan: Plan) -> Csr:
    """Canonical rows of how often each row's places occur."""
    from streamomd.features.kernels.split_words import (  # late: it imports numba
        COUNTERS,
        counter,
    )

    longest = int(np.diff(begins).max(initial=0))
    room = np.empty(longest, np.int32), np.empty(longest, np.int32), np.empty(COUNTERS, np.int64)
    rows, indices, counts = np.empty_like(begins), np.empty_like(at), np.empty(len(at))
    counter()(
        begins,
        at,
        plan.hashed_offset,
        (1 << plan.bits) - 1,
        -int(plan.bias),
        *room,
        rows,
        indices,
        counts,
    )
    return rows, indices[: rows[-1]], counts[: rows[-1]]


def _grams(indptr: Places, found: pa.Array, most: int) -> Iterator[Grams]:
    """Of words, pairs, … runs of ``most``: where each text's begin, and their texts; each run's, or
    with the code of each run the distinct ones.

    A run is known by the run without its last word and that word, so that of each length only the
    distinct ones are ever written out.
    """
    yield indptr, None, found
    if most == 1:
        return
    codes, known = coded(found)
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    at, grams, texts = np.arange(len(codes)), codes, known
    for more in range(1, most):
        inside = at < len(codes) - more
        at, grams = at[inside], grams[inside]
        inside = owner[at + more] == owner[at]
        at, grams = at[inside], grams[inside]
        grams, first, last = paired(grams, codes[at + more], len(known))
        texts = side_by_side(texts.take(first), known.take(last), " ")
        yield indptr_of(np.bincount(owner[at], minlength=len(indptr) - 1)), grams, texts


def _logarithms(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 + count), by the C library: numpy's own differs in the last bit between processors."""
    whole = counts.astype(np.int64)
    occurs = np.zeros(whole.max(initial=0) + 1, np.bool_)
    occurs[whole] = True
    known = np.flatnonzero(occurs)
    table = np.empty(len(occurs))
    table[known] = [math.log1p(count) for count in known.tolist()]
    return table[whole]


_VALUES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "presence": np.ones_like,
    "count": lambda counts: counts,
    "log": _logarithms,
}


def _note_other_bytes(texts: Texts, cells: CheckedValues) -> None:
    given = texts.found.to_pylist()
    strange = np.array([not _is_utf8(text) for text in given])
    rows = np.arange(len(given)) if texts.places is None else texts.places
    cells.note(
        "utf8",
        np.flatnonzero(strange[rows]),
        lambda row: shown(given[rows[row]]),
        "text in UTF-8",
        "write it as UTF-8, or drop the row",
    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
