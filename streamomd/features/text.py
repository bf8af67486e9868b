"""Texts: words and runs of words, hashed as ``column=word`` and ``column=word next``, and counted.

Nothing is fitted: a count is that of one text alone. What falls to one coordinate in a column is
counted together, so that no order of summing can be told from another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.bad import Cells, shown
from streamomd.features.canonical import Csr, canonical
from streamomd.features.csr import Places, indptr_of, joined, taken
from streamomd.features.hashed import Codes, as_bytes, coded, paired, places, side_by_side
from streamomd.features.names import Names
from streamomd.features.plan import Plan, Text
from streamomd.features.words import words

Grams = tuple[Places, Codes | None, pa.Array]


class Texts(NamedTuple):
    """Distinct texts, each split once, and each row's place among them; a null is empty."""

    places: Places
    distinct: pa.Array


def texts_of(array: pa.Array, cells: Cells) -> Texts:
    """A column's texts. Notes those that are not UTF-8."""
    codes, distinct = coded(array)
    size = len(distinct)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    known = used[used < size]
    found = as_bytes(distinct).take(pa.array(known))
    found = pa.concat_arrays([found, pa.array([b""], pa.large_binary())])
    place = np.full(size + 1, len(known))
    place[known] = np.arange(len(known))
    rows = place[codes]
    try:
        return Texts(rows, found.cast(pa.large_string()))
    except pa.ArrowInvalid:
        _note_other_bytes(found.to_pylist(), rows, cells)
        return Texts(rows, found)


def counted(texts: Texts, text: Text, plan: Plan, dtype: Any, names: Names | None) -> Csr:
    """Each row's words and runs of words: canonical rows of their counts, or log(1 + count)."""
    indptr, found = words(texts.distinct)
    blocks = []
    for begins, codes, grams in _grams(indptr, found, text.ngrams):
        at = places(grams, text.column, plan, names, codes)
        blocks.append((begins, at - np.int32(plan.bias), np.ones(len(at))))
    rows, indices, counts = canonical(*joined(blocks))
    values = _logarithms(counts) if text.counts == "log" else counts
    return taken((rows, indices, values.astype(dtype, copy=False)), texts.places)


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
    values = np.full(len(counts), math.log1p(1.0))
    often = np.flatnonzero(counts > 1.0)  # few, in most texts
    distinct, which = np.unique(counts[often], return_inverse=True)
    values[often] = np.array([math.log1p(count) for count in distinct.tolist()])[which]
    return values


def _note_other_bytes(texts: list[bytes], rows: Places, cells: Cells) -> None:
    strange = np.array([not _is_utf8(text) for text in texts])
    cells.note(
        "utf8",
        np.flatnonzero(strange[rows]),
        lambda row: shown(texts[rows[row]]),
        "text in UTF-8",
        "write it as UTF-8, or drop the row",
    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
