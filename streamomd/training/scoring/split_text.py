"""Words of a text, as ``features.tokenize`` finds them, in Python alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator


class _Lower(dict[int, int]):
    """By character: its lower case, or a space for what stands between words."""

    def __missing__(self, number: int) -> int:
        character = chr(number)
        inside = unicodedata.category(character)[0] in "LMN" or character == "_"
        # One for one: "İ" alone becomes two, of which the first is its simple lower case.
        found = ord(character.lower()[0]) if inside else 32
        self[number] = found
        return found


_LOWER = _Lower()


def words(text: str) -> list[str]:
    """The words of a text, lower-cased, in their order.

    >>> words("It's GOOD, ÉTÉ_2!"), words("—")
    (['it', 's', 'good', 'été_2'], [])
    """
    return text.translate(_LOWER).split()


def runs(text: str, most: int) -> Iterator[str]:
    """The words of a text, then its pairs, … up to runs of ``most`` words.

    >>> list(runs("not at all", 2))
    ['not', 'at', 'all', 'not at', 'at all']
    """
    found = words(text)
    yield from found
    for size in range(2, most + 1):
        for at in range(len(found) - size + 1):
            yield " ".join(found[at : at + size])
