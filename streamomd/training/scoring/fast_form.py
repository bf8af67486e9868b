"""The fast form of a scorer: rows of numbers, categories, dates and crosses, each value read once.

One row is read in plain Python, many rows column by column with numpy. Rows of other columns, and
rows with a bad value, are left to the ``RowEncoder``. All of them give the same additions in the
same order: numbers, their hats, margins of trees, then what is hashed by ascending coordinate, then
indicators.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from streamomd.core.batch import Floats
from streamomd.core.scalars import LEAST, hat_of, hats_of
from streamomd.training.scoring.categories import (
    Coded,
    Entry,
    HashedFeature,
    cross_name,
    escaped,
)
from streamomd.training.scoring.description import Description
from streamomd.training.scoring.margins import Margins
from streamomd.training.scoring.row_values import (
    BadValueError,
    category_of,
    date_of,
    flat_row,
    part_of,
    paths_of,
)

Row = Mapping[str, Any]
FEWEST = 8
"""Rows from which numpy is faster."""
EXACT = 2**53
LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324
LEFT = KeyError, TypeError, ValueError, OverflowError, BadValueError
"""Raised by rows that the encoder reads: it says what is wrong."""
_CLASSES = {"integer": int, "boolean": bool, "text": str, "bytes": bytes}
_SINGLE = struct.Struct("f")
_PLACE = itemgetter(0)
NO_BIN = escaped(None)
_COLUMNS = 1 << 20
"""More than a row has columns; with 31 bits of a coordinate it fits an int64."""


class _Number(NamedTuple):
    """A numeric column. Its value becomes (x - c) / s; s = 0: it is constant, None: it stays x.

    missing: what a missing value becomes, None if it is an error. indicator: its weights. curve:
    its knots and the weights of its hats; () without one. of_missing: whether a missing value has
    hats, and is a number to trees and bins.
    """

    name: str
    kind: type
    single: bool
    weights: Any
    c: float
    s: float | None
    missing: float | None
    indicator: Any
    curve: Any
    of_missing: bool


class FastForm:
    """Margins of one row and of many; None for those that it leaves to the encoder."""

    def __init__(self, d: Description, margins: Margins) -> None:
        self._margins = margins
        weights: Callable[[int], Any] = margins.weights.at
        if margins.learners == 1:
            weights = lambda place: margins.weights.at(place)[0]  # noqa: E731
        self._numbers = list(_numbers(d, margins, weights))
        self._limits = max(d.least, SMALLEST), min(d.most, d.largest, LARGEST)
        self._paths = paths_of(tuple(d.columns))

        def feature(name: str, kind: type, text: Callable[[Any], bytes | None]) -> HashedFeature:
            return HashedFeature(name, kind, text, d, weights)

        self._categories = [
            (name, feature(name, _CLASSES.get(kind, float), partial(category_of, kind=kind)))
            for name, kind, _ in d.categories
        ]
        self._dates = [
            (name, kind, [(part, feature(f"{name}.{part}", int, _digits)) for part in parts])
            for name, kind, parts in d.dates
        ]
        # All of them by name, in the order in which a row's are read.
        dated = [f"{date.name}.{part}" for date in d.dates for part in date.parts]
        # Their texts are made once: one that is compared with itself is equal without a look.
        binned = [one.name for one in d.bins]
        self._bins = [
            (one.place, one.edges, [escaped(text.encode()) for text in one.texts]) for one in d.bins
        ]
        names = [*(column.name for column in d.categories), *dated, *binned]
        crossed_only = {column.name for column in d.categories if not column.alone} | {*binned}
        self._first, self._trees, self._hashes = d.hashed_offset, d.trees, d.hashes
        self._of_trees = [weights(at) for at in range(d.tree_offset, d.hashed_offset)]
        self._alone = [at for at, name in enumerate(names) if name not in crossed_only]
        self._crosses = [
            (feature(cross_name(cross), tuple, b"^".join), itemgetter(*map(names.index, cross)))
            for cross in d.crosses
        ]

    @classmethod
    def of(cls, d: Description, margins: Margins) -> FastForm | None:
        """None for columns of other kinds, and for rules that predict more than a sum."""
        columns: list[Any] = [*d.numbers, *d.categories]
        other = d.vectors or d.lists or d.texts or d.sparse
        # Of standardised hats none is 0: the encoder's form is as fast.
        curved = bool(d.curves or d.trees) and margins.reference is not None
        if (
            margins.rule is not None
            or other
            or curved
            or any(one.kind == "float16" for one in columns)
        ):
            return None
        return cls(d, margins)

    def one(self, row: Row) -> list[float] | None:
        """The margins of a row."""
        terms: list[tuple[Any, float]] = []
        late: list[tuple[Any, float]] = []
        raw: list[float] = []
        if self._paths:
            row = flat_row(row, self._paths)
        try:
            if not self._add_numbers(row, terms, late, raw):
                return None
            entries = self._entries(row, raw) if self._hashes else []
            if self._trees:
                raw += [entry.place - self._first for entry in entries[: len(self._alone)]]
                terms += zip(self._of_trees, self._trees.margins_of(raw), strict=True)
            if entries:
                _add_hashed(entries, terms)
        except LEFT:
            return None
        return self._margins.of_terms(terms + late if late else terms)

    def _add_numbers(self, row: Row, terms: list[Any], late: list[Any], raw: list[float]) -> bool:
        """Add the terms of numeric columns, and to late those of indicators; False for a row that
        is left. raw: gets what trees and bins read."""
        least, most = self._limits
        lowest, highest = -most, -least
        hats: list[Any] = []
        for name, kind, single, w, c, s, missing, indicator, curve, of_missing in self._numbers:
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
                curve = curve if of_missing else ()  # noqa: PLW2901
                raw.append(x if of_missing else math.nan)
            else:
                if single:
                    (x,) = _SINGLE.unpack(_SINGLE.pack(x))
                raw.append(x)
            if s is not None:
                x = (x - c) / s if s > 0.0 else 0.0
            if x:
                terms.append((w, x))
            if curve:
                knots, of_hats = curve
                k, share = hat_of(x, knots)
                hats += (of_hats[k], 1.0 - share), (of_hats[k + 1], share)
        terms += hats
        return True

    def _entries(self, row: Row, raw: list[float]) -> list[Entry]:
        """What is hashed of a row: categories and parts of dates, then crosses. raw: its numbers,
        NaN where one is missing."""
        entries: list[Entry] = []
        for name, feature in self._categories:
            value = row[name]
            entry = None
            if value.__class__ is feature.kind or value is None:
                entry = feature.known.get(value)
            entries.append(entry or feature.entry(value))
        for name, kind, parts in self._dates:
            moment = date_of(row[name], kind)
            for part, feature in parts:
                key = None if moment is None else part_of(moment, part)
                entries.append(feature.known.get(key) or feature.entry(key))
        if self._crosses:
            texts = [entry.text for entry in entries]
            for at, edges, names in self._bins:
                x = raw[at]
                texts.append(names[bisect_right(edges, x)] if x == x else NO_BIN)  # noqa: PLR0124
            entries = [entries[at] for at in self._alone]
            for feature, those in self._crosses:
                crossed = those(texts)
                entries.append(feature.known.get(crossed) or feature.entry(crossed))
        return entries

    def many(self, rows: Sequence[Row]) -> Floats | None:
        """The margins of rows, (n, learners)."""
        margins = self._margins
        sums = np.tile(np.array(margins.start), (len(rows), 1))
        late: list[tuple[Any, Any]] = []
        if self._paths:
            rows = [flat_row(row, self._paths) for row in rows]
        try:
            hats: list[tuple[Floats, Floats]] = []
            raw: list[Any] = []
            for column in self._numbers:
                x = self._values(column, [row[column.name] for row in rows], late, hats, raw)
                if x is None:
                    return None
                sums += x[:, np.newaxis] * np.array(column.weights)
            for share, of_hat in hats:
                sums += share[:, np.newaxis] * of_hat
            read = self._read(rows, raw) if self._hashes else []
            if self._trees:
                raw += [table.places[of] - self._first for table, of in read[: len(self._alone)]]
                grown = self._trees.margins_of_rows(np.column_stack(raw))
                for k, w in enumerate(self._of_trees):
                    sums += grown[:, k : k + 1] * np.array(w)
            if read and not _add_all_hashed(read, sums):
                return None
        except LEFT:
            return None  # the row that is bad is found again, one by one
        for gone, indicator in late:
            sums += gone[:, np.newaxis] * np.array(indicator)
        if margins.target is not None:
            c, s = margins.target
            sums = c + s * sums
        return sums

    def _values(
        self, column: _Number, given: list[Any], late: list[Any], hats: list[Any], raw: list[Any]
    ) -> Floats | None:
        """A column's values as they are multiplied; None if some are left. hats: gets two hats of
        each row, and their weights; raw: what trees read."""
        kinds = set(map(type, given))
        if type(None) in kinds:
            given = [math.nan if value is None else value for value in given]
            kinds.discard(type(None))
        if not kinds <= ({bool} if column.kind is bool else {float, int}):
            return None
        x = np.array(given, np.float64)
        size = np.abs(x)
        if int in kinds and size.max() > EXACT:
            return None
        gone = np.isnan(x)
        least, most = self._limits
        legal = ((size >= least) & (size <= most)) | (x == 0.0) | gone
        if not legal.all() or (column.missing is None and gone.any()):
            return None
        if column.single:
            x = x.astype(np.float32).astype(np.float64)
        raw.append(np.where(gone, 0.0, x) if column.of_missing else x.copy())
        if column.missing is not None:
            x[gone] = column.missing
            if column.indicator is not None:
                late.append((gone.astype(np.float64), column.indicator))
        if column.curve:
            known = np.ones(len(x)) if column.of_missing else (~gone).astype(np.float64)
            knots, weights = column.curve
            hats += _hats(x, knots, weights, known)
        if column.s is not None:
            x = (x - column.c) / column.s if column.s > 0.0 else np.zeros(len(x))
        return x

    def _read(self, rows: Sequence[Row], raw: Sequence[Floats]) -> list[Coded]:
        """What is hashed of rows, as ``_entries``."""
        read = [feature.coded([row[name] for row in rows]) for name, feature in self._categories]
        for name, kind, parts in self._dates:
            moments = [date_of(row[name], kind) for row in rows]
            for part, feature in parts:
                read.append(feature.coded([m and part_of(m, part) for m in moments]))
        if self._crosses:
            texts = [[table.texts[code] for code in codes.tolist()] for table, codes in read]
            for at, edges, names in self._bins:
                x = raw[at]
                codes = np.where(np.isnan(x), len(names), np.searchsorted(edges, x, side="right"))
                texts.append([*map([*names, NO_BIN].__getitem__, codes.tolist())])
            read = [read[at] for at in self._alone]
            for feature, those in self._crosses:
                read.append(feature.coded([*zip(*those(texts), strict=True)]))
        return read


def _add_hashed(entries: list[Entry], found: list[Any]) -> None:
    """Add the terms of what is hashed."""
    entries.sort(key=_PLACE)
    last = -1
    for place, w, _ in entries:
        if place == last:  # equal coordinates are one, with their count
            found[-1] = w, found[-1][1] + 1.0
        else:
            found.append((w, 1.0))
            last = place


def _add_all_hashed(read: Sequence[Coded], found: Floats) -> bool:
    """Add what is hashed of each row; False where several of a row have one coordinate."""
    # Coordinates with the number of their feature, so that one sort gives both.
    keys = np.stack([table.places[of] * _COLUMNS + at for at, (table, of) in enumerate(read)])
    keys.sort(axis=0)
    places, features = np.divmod(keys, _COLUMNS)
    if (places[1:] == places[:-1]).any():
        return False
    weights = np.stack([table.weights[of] for table, of in read])  # (features, rows, learners)
    each = np.arange(len(found))
    for at in features:
        found += weights[at, each]
    return True


def _numbers(d: Description, margins: Margins, weights: Any) -> Iterator[_Number]:
    """The numeric columns. weights: from a coordinate to its weights."""
    reference = margins.reference
    curves = {
        curve.place: (curve.knots, [*map(weights, range(places.start, places.stop))])
        for curve, places in hats_of(d.curves, d.hat_offset)
    }
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
        more = curves.get(at, ()), nulls == "zero"
        yield _Number(name, whole, kind == "float32", w, c, s, missing, indicator, *more)


def _hats(
    x: Floats, knots: Sequence[float], weights: list[Any], known: Floats
) -> Iterator[tuple[Floats, Floats]]:
    """The two hats of each number that may not be 0, as ``hat_of``, and their weights."""
    at, of_hats = np.array(knots), np.array(weights).reshape(len(knots), -1)
    k = np.clip(np.searchsorted(at, x, side="right") - 1, 0, len(at) - 2)
    share = np.clip((x - at[k]) / (at[k + 1] - at[k]), 0.0, 1.0)
    share = np.where(share < LEAST, 0.0, np.where(share > 1.0 - LEAST, 1.0, share))
    yield known * (1.0 - share), of_hats[k]
    yield known * share, of_hats[k + 1]


def _digits(number: int | None) -> bytes | None:
    """The text of a part of a date."""
    return None if number is None else b"%d" % number
