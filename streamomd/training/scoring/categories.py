"""Coordinates of categories and words: column=value hashed by murmur3, once while it is cached,
and the entries of hashed features, with their weights.

Words are found as ``features.text`` does, in Python alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import mmh3
import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
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
    r"""The name of a cross, as ``features.hashed`` writes it.

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


class Entry(NamedTuple):
    """A value of a hashed feature: its coordinate, its weights, and its text in a cross."""

    place: int
    weights: Any
    text: bytes


class Table(NamedTuple):
    """Entries as arrays, and the number of each key's; never changed."""

    codes: dict[Any, int]
    places: NDArray[np.int64]
    weights: Floats
    texts: list[bytes]


Coded = tuple[Table, NDArray[np.int64]]


class HashedFeature:
    """The entries of a hashed feature: a category, a part of a date, or a cross.

    kind: of the keys that are cached. text: from a key to the bytes that are hashed. Threads may
    share it: they replace its table as a whole.
    """

    def __init__(
        self, name: str, kind: type, text: Callable[[Any], bytes | None], d: Description,
        weights: Callable[[int], Any],
    ) -> None:  # fmt: skip
        self.kind, self.known = kind, dict[Any, Entry]()
        self._table = Table({}, np.empty(0, np.int64), np.empty((0, 0)), [])
        self._text, self._places, self._weights = text, CategoryPlaces(name, d), weights

    def entry(self, key: Any) -> Entry:
        """The entry of a key that is not cached."""
        text = self._text(key)
        place = self._places.of(text)
        entry = Entry(place, self._weights(place), escaped(text))
        # Other types may be equal to one of this: 1 is equal to 1.0 and to True.
        cached = key is None or key.__class__ is self.kind
        if cached and len(entry.text) <= LONGEST:  # anyone may send long ones
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[key] = entry
        return entry

    def coded(self, keys: Sequence[Any]) -> tuple[Table, NDArray[np.int64]]:
        """A table with these keys, and the number of each. Raises TypeError for other types."""
        if not {self.kind, type(None)}.issuperset(map(type, keys)):
            raise TypeError
        table = self._table
        try:
            return table, np.fromiter(map(table.codes.__getitem__, keys), np.int64, len(keys))
        except KeyError:
            table = self._table_with(keys)
            return table, np.fromiter(map(table.codes.__getitem__, keys), np.int64, len(keys))

    def _table_with(self, keys: Sequence[Any]) -> Table:
        """What is cached, and these keys."""
        entries = {**self.known, **{key: self.entry(key) for key in dict.fromkeys(keys)}}
        places, weights, texts = zip(*entries.values(), strict=True)
        codes = {key: at for at, key in enumerate(entries)}
        by_code = np.array(weights).reshape(len(codes), -1)
        table = Table(codes, np.array(places), by_code, list(texts))
        if entries.keys() <= self.known.keys():
            self._table = table
        return table
