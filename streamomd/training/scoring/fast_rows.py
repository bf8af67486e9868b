"""The fast path of a scorer: rows of numbers, categories and dates, each value read once.

It covers what most rows are; every other row, a bad one too, is left to the ``RowEncoder``. Both
give the same additions in the same order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from streamomd.training.scoring.categories import LONGEST, MOST, CategoryPlaces, cross_name, escaped
from streamomd.training.scoring.description import CategoryColumn, DateColumn, Description
from streamomd.training.scoring.margins import Margins
from streamomd.training.scoring.nested_rows import flat_row, paths_of
from streamomd.training.scoring.row_errors import BadValueError
from streamomd.training.scoring.row_values import category_of, date_of, part_of

Row = Mapping[str, Any]
Terms = list[tuple[Any, float]]
EXACT = 2**53
CLASSES = {"integer": int, "float": float, "float32": float, "boolean": bool, "bytes": bytes}
_SINGLE = struct.Struct("f")
_PLACE = itemgetter(0)
LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324


class Entry(NamedTuple):
    """A category: its coordinate, its weights, and its text in a cross."""

    place: int
    weights: Any
    text: bytes


class _Number(NamedTuple):
    """A numeric column. Its value becomes (x - c) / s; s = 0: it is constant, None: it stays x.

    missing: what a missing value becomes, None if it is an error. indicator: its weights.
    """

    name: str
    kind: type
    single: bool
    weights: Any
    c: float
    s: float | None
    missing: float | None
    indicator: Any


def terms_of(d: Description, margins: Margins) -> Callable[[Row], Terms | None] | None:
    """A function from a row to its terms, (weights, x) in the order of their addition.

    It gives None for a row that it leaves to the encoder. None for columns of other kinds, and for
    rules that predict more than a sum.
    """
    if margins.rule is not None or d.vectors or d.lists or d.texts or d.sparse:
        return None
    columns: list[Any] = [*d.numbers, *d.categories]
    if any(column.kind == "float16" for column in columns):
        return None
    weights = _weights_of(margins)
    add_numbers = _numbers_reader(d, margins, weights)
    add_hashed = _hashed_reader(d, weights) if d.hashes else None
    paths = paths_of(tuple(d.columns))

    def terms(row: Row) -> Terms | None:
        found: Terms = []
        late: Terms = []
        if paths:
            row = flat_row(row, paths)
        try:
            if not add_numbers(row, found, late):
                return None
            if add_hashed is not None:
                add_hashed(row, found)
        except (KeyError, TypeError, ValueError, OverflowError, BadValueError):
            return None  # the encoder says what is wrong
        return found + late if late else found

    return terms


def _numbers_reader(
    d: Description, margins: Margins, weights: Any
) -> Callable[[Row, Terms, Terms], bool]:
    """add(row, found, late): add the terms of numeric columns, and to late those of indicators.

    False for a row that it leaves to the encoder.
    """
    numbers = number_columns(d, margins, weights)
    least, most = max(d.least, SMALLEST), min(d.most, d.largest, LARGEST)
    lowest, highest = -most, -least

    def add(row: Row, found: Terms, late: Terms) -> bool:
        for name, kind, single, w, c, s, missing, indicator in numbers:
            x = row[name]
            if x.__class__ is not kind:
                if x is None:
                    x = math.nan
                elif kind is not float or x.__class__ is not int or not -EXACT <= x <= EXACT:
                    return False
            if not (least <= x <= most or lowest <= x <= highest or x == 0.0):
                if missing is None or x == x:  # noqa: PLR0124
                    return False
                if indicator is not None:
                    late.append((indicator, 1.0))
                x = missing
            elif single:
                (x,) = _SINGLE.unpack(_SINGLE.pack(x))
            if s is not None:
                x = (x - c) / s if s > 0.0 else 0.0
            if x:
                found.append((w, x))
        return True

    return add


def _hashed_reader(d: Description, weights: Any) -> Callable[[Row, Terms], None]:
    """add(row, found): add the terms of categories, parts of dates and crosses.

    Raises BadValueError, KeyError or TypeError for a row that it leaves to the encoder.
    """
    categories = [_Categories(column, d, weights) for column in d.categories]
    columns = [(one.name, one.kind, one.known, one.of) for one in categories]
    dates = [_Dates(column, d, weights) for column in d.dates]
    crosses, used = _crosses(d, weights), _used(d)

    def add(row: Row, found: Terms) -> None:
        entries: list[Entry] = []
        for name, kind, known, of in columns:
            value = row[name]
            entry = None
            if kind is None or value.__class__ is kind or value is None:
                entry = known.get(value)
            entries.append(of(value) if entry is None else entry)
        for date in dates:
            entries += date.of(row[date.name])
        if crosses:
            crossed = [cross.of(entries) for cross in crosses]
            entries = [entries[at] for at in used] + crossed
        entries.sort(key=_PLACE)
        last = -1
        for place, w, _ in entries:
            if place == last:  # equal coordinates are one, with their count
                found[-1] = w, found[-1][1] + 1.0
            else:
                found.append((w, 1.0))
                last = place

    return add


class _Categories:
    """The entries of a column's categories. kind: of values that are looked up, None: any."""

    def __init__(self, column: CategoryColumn, d: Description, weights: Any) -> None:
        self.name, self._kind = column.name, column.kind
        # Only texts are equal to nothing but texts: 1 is equal to 1.0 and to True.
        self.kind: type | None = CLASSES.get(column.kind)
        self.known: dict[Any, Entry] = {}
        self._places, self._weights = CategoryPlaces(column.name, d), weights

    def of(self, value: Any) -> Entry:
        """The entry of a value that is not cached."""
        text = category_of(value, self._kind)
        place = self._places.of(text)
        entry = Entry(place, self._weights(place), escaped(text))
        plain = value is None or value.__class__ is (self.kind or str)
        if plain and len(entry.text) <= LONGEST:
            _cache(self.known, value, entry)
        return entry


class _Dates:
    """The entries of a column's dates: one for each part."""

    def __init__(self, column: DateColumn, d: Description, weights: Any) -> None:
        self.name, self._column, self._weights = column.name, column, weights
        self._places = [CategoryPlaces(f"{column.name}.{part}", d) for part in column.parts]
        self._parts: list[dict[int | None, Entry]] = [{} for _ in column.parts]

    def of(self, value: Any) -> list[Entry]:
        """The entries of a value, in the order of its parts."""
        column = self._column
        moment = date_of(value, column.kind)
        found = []
        for at, part in enumerate(column.parts):
            number = None if moment is None else part_of(moment, part)
            entry = self._parts[at].get(number)
            if entry is None:
                text = None if number is None else b"%d" % number
                place = self._places[at].of(text)
                entry = Entry(place, self._weights(place), escaped(text))
                _cache(self._parts[at], number, entry)
            found.append(entry)
        return found


class _Cross:
    """The entries of a cross, by the texts of its columns."""

    def __init__(self, name: str, at: tuple[int, ...], d: Description, weights: Any) -> None:
        self._at, self._weights = at, weights
        self._places = CategoryPlaces(name, d)
        self._known: dict[tuple[bytes, ...], Entry] = {}

    def of(self, entries: list[Entry]) -> Entry:
        """The entry of a row; entries: of all its columns and parts."""
        texts = tuple([entries[at].text for at in self._at])
        entry = self._known.get(texts)
        if entry is None:
            place = self._places.of(b"^".join(texts))
            entry = Entry(place, self._weights(place), b"")
            if sum(map(len, texts)) <= LONGEST:
                _cache(self._known, texts, entry)
        return entry


def _cache(known: dict[Any, Entry], key: Any, entry: Entry) -> None:
    if len(known) >= MOST:
        known.clear()
    known[key] = entry


def _weights_of(margins: Margins) -> Callable[[int], Any]:
    """The weights of a coordinate: a float of one learner, else a tuple."""
    if margins.learners > 1:
        return margins.weights.at
    return lambda place: margins.weights.at(place)[0]


def number_columns(d: Description, margins: Margins, weights: Any) -> list[_Number]:
    """The numeric columns. weights: from a coordinate to its weights."""
    found = []
    reference = margins.reference
    for at, (name, kind, nulls) in enumerate(d.numbers):
        c, s = 0.0, None
        if reference is not None and at < reference.shape[1]:
            c, s = reference[:, at].tolist()
        missing = None if nulls == "error" else margins.fill[at] if nulls == "mean" else 0.0
        indicator = None
        if name in d.indicators:
            indicator = weights(d.indicator_offset + d.indicators.index(name))
        w = weights(int(d.bias) + at)
        whole = bool if kind == "boolean" else float
        found.append(_Number(name, whole, kind == "float32", w, c, s, missing, indicator))
    return found


def _names(d: Description) -> list[str]:
    """All categories and parts of dates, in the order in which a row's are read."""
    parts = [f"{date.name}.{part}" for date in d.dates for part in date.parts]
    return [*(column.name for column in d.categories), *parts]


def _used(d: Description) -> list[int]:
    """The places among ``_names`` of what is hashed itself."""
    alone = {column.name: column.alone for column in d.categories}
    return [at for at, name in enumerate(_names(d)) if alone.get(name, True)]


def _crosses(d: Description, weights: Any) -> list[_Cross]:
    names = _names(d)
    return [
        _Cross(cross_name(cross), tuple(map(names.index, cross)), d, weights) for cross in d.crosses
    ]
