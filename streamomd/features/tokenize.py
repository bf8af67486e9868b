"""Words of texts. A word is a longest run of letters, marks, numbers (Unicode's categories L, M and
N) and underscores, lower-cased character by character; all other characters separate words.

Python's own tables of Unicode say what a character is: each that occurs is looked up once in a
process, and compiled code does the rest on UTF-8 itself.
"""

from __future__ import annotations

import functools
import unicodedata

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.arrow_buffers import buffers

Places = NDArray[np.int64]

_UNKNOWN = 4096


def words(texts: pa.Array) -> tuple[Places, pa.Array]:
    """Where each text's words begin (n + 1,), and all words in order, as UTF-8 bytes.

    texts: large_string, valid UTF-8, without nulls.

    >>> begins, found = words(pa.array(["It's GOOD, ÉTÉ_2!", "", "—"], pa.large_string()))
    >>> begins.tolist(), [word.decode() for word in found.to_pylist()]
    ([0, 4, 4, 4], ['it', 's', 'good', 'été_2'])
    """
    from streamomd.features.kernels.split_words import splitter  # late: it imports numba

    data, offsets = buffers(texts)
    size = int(offsets[-1] - offsets[0])
    begins = np.empty(len(texts) + 1, np.int64)
    starts = np.empty((size + len(texts)) // 2 + 2, np.int64)
    letters = np.empty(size + size // 2 + 1, np.uint8)
    lower = _lower()
    while True:
        unknown = np.zeros(_UNKNOWN, np.uint32)
        found = splitter()(data, offsets, lower, letters, starts, begins, unknown)
        if not unknown[0]:
            break
        for number in np.unique(unknown[unknown > 0]).tolist():
            lower[number] = _lowered(chr(number))
    return begins, _sliced(letters, starts[: found + 1])


def in_word(character: str) -> bool:
    """Whether a character belongs to a word.

    >>> [in_word(c) for c in "aß語ि9½_-'. "]
    [True, True, True, True, True, True, True, False, False, False, False]
    """
    return unicodedata.category(character)[0] in "LMN" or character == "_"


@functools.cache
def _lower() -> NDArray[np.uint32]:
    """The table of ``kernels.split_words.split``, by character; threads may write equal values.

    Of its 4 MiB a process has only the pages that were written.
    """
    table = np.zeros(0x110000, np.uint32)
    table[:0x80] = [_lowered(chr(number)) for number in range(0x80)]
    return table


def _lowered(character: str) -> int:
    from streamomd.features.kernels.split_words import BETWEEN

    # One for one: "İ" alone becomes two, of which the first is its simple lower case.
    return ord(character.lower()[0]) if in_word(character) else BETWEEN


def _sliced(letters: NDArray[np.uint8], starts: Places) -> pa.Array:
    """Words as an array of bytes: those of letters starts[k] … starts[k + 1] − 1."""
    made = [None, pa.py_buffer(starts), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, made)
