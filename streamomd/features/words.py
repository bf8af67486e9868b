"""Words of texts. A word is a longest run of letters, marks, numbers (Unicode's categories L, M and
N) and underscores, lower-cased character by character; all other characters stand between words.

Python's own tables of Unicode say what a character is: each that occurs is asked about once, and
the rest is done on arrays of characters.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamomd.features.csr import indptr_of

Places = NDArray[np.int64]


def words(texts: pa.Array) -> tuple[Places, pa.Array]:
    """Where each text's words begin (n + 1,), and all words in order, as UTF-8 bytes.

    texts: large_string, UTF-8 indeed, without nulls.

    >>> begins, found = words(pa.array(["It's GOOD, ÉTÉ_2!", "", "—"], pa.large_string()))
    >>> begins.tolist(), [word.decode() for word in found.to_pylist()]
    ([0, 4, 4, 4], ['it', 's', 'good', 'été_2'])
    """
    characters, edges = _characters(texts)
    lowered = _table(characters).take(characters)
    inside = lowered != 0
    first = inside.copy()
    first[1:] &= ~inside[:-1]
    begins = edges[:-1][edges[:-1] < len(inside)]
    first[begins] = inside[begins]  # a word ends with its text
    letters = lowered[inside]
    starts = np.append(np.flatnonzero(first[inside]), len(letters))
    found = np.searchsorted(np.flatnonzero(first), edges)
    return found.astype(np.int64, copy=False), _sliced(letters, starts)


def in_word(character: str) -> bool:
    """Whether a character belongs to a word.

    >>> [in_word(c) for c in "aß語ि9½_-'. "]
    [True, True, True, True, True, True, True, False, False, False, False]
    """
    return unicodedata.category(character)[0] in "LMN" or character == "_"


def _characters(texts: pa.Array) -> tuple[NDArray[Any], Places]:
    """All characters as numbers, and where each text begins among them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    stored = texts.buffers()[2] or b""
    data = np.frombuffer(stored, np.uint8)[offsets[0] : offsets[-1]]
    if data.max(initial=0) < 128:
        return data, offsets - offsets[0]
    wide = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.dtype("<u4"))
    return wide.astype(np.intp), indptr_of(pc.utf8_length(texts).to_numpy())


def _table(characters: NDArray[Any]) -> NDArray[Any]:
    """By character: its lower case if it belongs to a word, else 0; of those that occur."""
    size = int(characters.max(initial=0)) + 1
    occurs, table = np.zeros(size, np.bool_), np.zeros(size, "<u4")
    occurs[characters] = True
    for number in np.flatnonzero(occurs).tolist():
        if in_word(chr(number)):
            # One for one: "İ" alone becomes two, of which the first is its simple lower case.
            table[number] = ord(chr(number).lower()[0])
    return table if size > 128 else table.astype(np.uint8)


def _sliced(letters: NDArray[Any], starts: Places) -> pa.Array:
    """Words as an array of bytes: those of letters starts[k] … starts[k + 1] − 1."""
    data = letters.tobytes()
    if letters.dtype != np.uint8:
        data = data.decode("utf-32-le").encode()
        begun = np.frombuffer(data, np.uint8) & 0xC0 != 0x80  # all but a character's later bytes
        starts = np.append(np.flatnonzero(begun), len(data))[starts]
    buffers = [None, pa.py_buffer(starts.astype(np.int64, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)
