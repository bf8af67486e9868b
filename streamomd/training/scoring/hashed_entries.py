"""Hashed features of a scorer's rows: each value's coordinate, weights and text, once while it is
cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.training.scoring.categories import LONGEST, MOST, CategoryPlaces, escaped
from streamomd.training.scoring.description import Description

Floats = NDArray[np.float64]


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
