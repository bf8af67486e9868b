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
from streamomd.features.hashed import as_bytes, codes_of, paired, places
from streamomd.features.names import Names
from streamomd.features.plan import Plan, Text
from streamomd.features.words import words

Grams = tuple[Places, Places, list[bytes]]


class Texts(NamedTuple):
    """Distinct texts, each split once, and each row's place among them; a null is empty."""

    places: Places
    distinct: pa.Array


def texts_of(array: pa.Array, cells: Cells) -> Texts:
    """A column's texts. Notes those that are not UTF-8."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes, size = codes_of(coded), len(coded.dictionary)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    known = used[used < size]
    found = as_bytes(coded.dictionary).cast(pa.large_binary()).take(pa.array(known))
    found = pa.concat_arrays([found.fill_null(b""), pa.array([b""], pa.large_binary())])
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
    coded = found.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    blocks, prefix = [], f"{text.column}=".encode()
    for begins, grams, known in _grams(indptr, codes, coded.dictionary.to_pylist(), text.ngrams):
        table = places((prefix + gram for gram in known), len(known), plan)
        if names is not None:
            names.note(text.column, table.tolist(), known)
        blocks.append((begins, table[grams] - np.int32(plan.bias), np.ones(len(grams))))
    rows, indices, counts = canonical(*joined(blocks))
    values = _logarithms(counts) if text.counts == "log" else counts
    return taken((rows, indices, values.astype(dtype, copy=False)), texts.places)


def _grams(indptr: Places, codes: Places, known: list[bytes], most: int) -> Iterator[Grams]:
    """Of words, pairs, … runs of ``most``: where each text's begin, their codes, and their texts.

    A run is known by the run without its last word and that word, so that of each length only the
    distinct ones are ever written out.
    """
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    at, grams, texts = np.arange(len(codes)), codes, known
    yield indptr, grams, texts
    for more in range(1, most):
        inside = at < len(codes) - more
        at, grams = at[inside], grams[inside]
        inside = owner[at + more] == owner[at]
        at, grams = at[inside], grams[inside]
        grams, first, last = paired(grams, codes[at + more], len(known))
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        texts = [texts[run] + b" " + known[word] for run, word in pairs]
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
