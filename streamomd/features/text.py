"""Texts: words and runs of words, hashed as ``column=word`` and ``column=word next``.

Nothing is fitted: a word's value is 1, its count in one text, or that count's logarithm. Words of a
column with the same coordinate are counted together, so that the result does not depend on
the order of summing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.features.arrow_buffers import buffers
from streamomd.features.bad_rows import CheckedValues, shown
from streamomd.features.canonical import Csr
from streamomd.features.csr import Places, taken
from streamomd.features.hashed import STORED_AS_BYTES, as_bytes, coded
from streamomd.features.names import Names
from streamomd.features.plan import Plan, Text
from streamomd.features.text_rows import text_rows

_LOOKED_AT = 64


class Texts(NamedTuple):
    """Texts, each split once, and each row's place among them; None: text k is row k's."""

    places: Places | None
    found: pa.Array


def texts_of(array: pa.Array, cells: CheckedValues) -> Texts:
    """A column's texts; a null is empty. Notes those that are not UTF-8."""
    known = _looked_up(array) if _repeats(array) else _plain(array)
    try:
        return Texts(known.places, arrow_cast(known.found, pa.large_string()))
    except pa.ArrowInvalid:
        _note_other_bytes(known, cells)
        return known


def _repeats(array: pa.Array) -> bool:
    """Whether texts are likely to repeat: a look-up costs a tenth of splitting a text."""
    if pa.types.is_dictionary(array.type):
        return True
    some = array.slice(0, _LOOKED_AT)
    # Of other lengths are other texts: to hash them all took 0.3 µs a text of 1,757 bytes.
    if array.type in STORED_AS_BYTES and 2 * len({*np.diff(buffers(some)[1])}) >= len(some):
        return False
    return 2 * len(arrow_function()("unique", [some])) < len(some)


def _plain(array: pa.Array) -> Texts:
    found = as_bytes(array)
    return Texts(None, found.fill_null(b"") if found.null_count else found)


def _looked_up(array: pa.Array) -> Texts:
    """Returns the texts of a dictionary array: the values that some row has, and an empty text for
    nulls."""
    codes, distinct = coded(array)
    size = len(distinct)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    known = used[used < size]
    found = arrow_function()("take", [as_bytes(distinct), pa.array(known)])
    place = np.full(size + 1, len(known))
    place[known] = np.arange(len(known))
    empty = pa.array([b""], pa.large_binary())
    return Texts(place[codes], pa.concat_arrays([found, empty]))


def counted(texts: Texts, text: Text, plan: Plan, dtype: Any, names: Names | None) -> Csr:
    """Each row's words and runs of words: canonical rows, values by ``text.counts``."""
    begins, indices, values = text_rows(texts.found, text, plan, names)
    if text.counts == "log":
        values = _logarithms(values)
    block = begins, indices, values.astype(dtype, copy=False)
    return block if texts.places is None else taken(block, texts.places)


def _logarithms(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 + count), by the C library: numpy's own differs in the last bit between processors."""
    whole = counts.astype(np.int64)
    occurs = np.zeros(whole.max(initial=0) + 1, np.bool_)
    occurs[whole] = True
    known = np.flatnonzero(occurs)
    table = np.empty(len(occurs))
    table[known] = [math.log1p(count) for count in known.tolist()]
    return table[whole]


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
