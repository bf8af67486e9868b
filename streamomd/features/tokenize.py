"""Words of texts. A word is a longest run of letters, marks, numbers (Unicode's categories L, M and
N) and underscores, lower-cased character by character; all other characters separate words.

Python's own tables of Unicode say what a character is: each that occurs is looked up once in a
process, and compiled code does the rest on UTF-8 itself.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def in_word(character: str) -> bool:
    """Whether a character belongs to a word.

    >>> [in_word(c) for c in "aß語ि9½_-'. "]
    [True, True, True, True, True, True, True, False, False, False, False]
    """
    return unicodedata.category(character)[0] in "LMN" or character == "_"


@functools.cache
def lower_cases() -> NDArray[np.uint32]:
    """The table of ``kernels.split_words.split_any``, by character; threads may write equal values.

    Of its 4 MiB a process has only the pages that were written.
    """
    table = np.zeros(0x110000, np.uint32)
    look_up(range(0x80), table)
    return table


def look_up(characters: Iterable[int], table: NDArray[np.uint32]) -> None:
    """Write what some characters are into the table."""
    from streamomd.features.kernels.split_words import BETWEEN  # late: it imports numba

    for number in characters:
        character = chr(number)
        # One for one: "İ" alone becomes two, of which the first is its simple lower case.
        table[number] = ord(character.lower()[0]) if in_word(character) else BETWEEN
