"""Coordinates of categories: column=value hashed by murmur3, each value once while it is cached."""

from __future__ import annotations

import mmh3

from streamomd.training.scoring.description import Description

MOST = 1 << 14
"""Values of a column that are cached; then the cache starts again."""
LONGEST = 256
"""Bytes of a value, or characters of a word, that is cached: anyone may send long ones."""


class CategoryPlaces:
    """The coordinates of a column's categories. Threads may share it."""

    def __init__(self, column: str, d: Description) -> None:
        self.column = column
        self._prefix = column.encode(errors="surrogatepass")
        self._seed, self._mask, self._first = d.seed, (1 << d.bits) - 1, d.hashed_offset
        self._known: dict[bytes | None, int] = {}

    def of(self, value: bytes | None) -> int:
        """The coordinate of a category; None: of a missing one."""
        found = self._known.get(value)
        if found is None:
            found = self._hashed(value)
            if value is not None and len(value) > LONGEST:
                return found
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[value] = found
        return found

    def _hashed(self, value: bytes | None) -> int:
        # No UTF-8 text contains 0xFF, so no category has the text of a missing one.
        text = self._prefix + (b"\xff" if value is None else b"=" + value)
        return self._first + (int(mmh3.hash(text, self._seed, signed=False)) & self._mask)

    def named(self, value: bytes | None) -> tuple[str, str | None]:
        """The feature's name, and the category as text."""
        if value is None:
            return f"{self.column} is null", None
        text = value.decode(errors="backslashreplace")
        return f"{self.column}={text}", text


class WordPlaces:
    """The coordinates of the words of a column of texts."""

    def __init__(self, column: str, d: Description) -> None:
        self._places = CategoryPlaces(column, d)
        self._known: dict[str, int] = {}

    def of(self, word: str) -> int:
        """The coordinate of a word or run of words."""
        found = self._known.get(word)
        if found is None:
            found = self._places._hashed(word.encode())
            if len(word) > LONGEST:
                return found
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[word] = found
        return found


def cross_name(columns: tuple[str, ...]) -> str:
    r"""The name of a cross, as ``features.crosses`` writes it.

    >>> cross_name(("a^b", "c"))
    'a\\^b^c'
    """
    return "^".join(name.replace("\\", "\\\\").replace("^", "\\^") for name in columns)


def escaped(value: bytes | None) -> bytes:
    r"""A value in the text of a cross; a missing one is ``\N``.

    >>> escaped(b"a^b"), escaped(None)
    (b'a\\^b', b'\\N')
    """
    if value is None:
        return b"\\N"
    return value.replace(b"\\", b"\\\\").replace(b"^", b"\\^")
