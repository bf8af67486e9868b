"""Many rows of numbers and categories, column by column with numpy.

The additions of each row are those of ``fast_rows``, in the same order: columns are added one after
the other, categories by ascending coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.training.scoring.categories import LONGEST, MOST, CategoryPlaces
from streamomd.training.scoring.description import CategoryColumn, Description
from streamomd.training.scoring.fast_rows import (
    CLASSES,
    EXACT,
    LARGEST,
    SMALLEST,
    number_columns,
)
from streamomd.training.scoring.margins import Margins
from streamomd.training.scoring.nested_rows import flat_row, paths_of
from streamomd.training.scoring.row_errors import BadValueError
from streamomd.training.scoring.row_values import category_of

Floats = NDArray[np.float64]
Rows = Sequence[Mapping[str, Any]]
FEWEST = 8
"""Rows from which numpy is faster."""
_COLUMNS = 1 << 20
"""More than a row has columns; with 31 bits of a coordinate it fits an int64."""


def table_margins(d: Description, margins: Margins) -> Callable[[Rows], Floats | None] | None:
    """A function from rows to margins, (n, learners).

    It gives None for rows that it leaves to others. None for other columns than numbers and
    categories, and for rules that predict more than a sum.
    """
    other = d.vectors or d.lists or d.texts or d.sparse or d.dates or d.crosses
    columns: list[Any] = [*d.numbers, *d.categories]
    if margins.rule is not None or other or any(one.kind == "float16" for one in columns):
        return None
    names = [column.name for column in columns]
    paths = paths_of(names)
    numbers = number_columns(d, margins, lambda at: np.array(margins.weights.at(at)))
    categories = [_Codes(column, d, margins) for column in d.categories]
    limits = max(d.least, SMALLEST), min(d.most, d.largest, LARGEST)

    def of_rows(rows: Rows) -> Floats | None:
        found = np.tile(np.array(margins.start), (len(rows), 1))
        late: list[tuple[Any, Any]] = []
        if paths:
            rows = [flat_row(row, paths) for row in rows]
        try:
            values = [[row[name] for row in rows] for name in names]
            for column, given in zip(numbers, values, strict=False):
                x = _numbers_of(column, given, limits, late)
                if x is None:
                    return None
                found += x[:, np.newaxis] * column.weights
            if categories and not _add_categories(categories, values[len(numbers) :], found):
                return None
        except (KeyError, TypeError, ValueError, OverflowError, BadValueError):
            return None  # the row that is bad is found again, one by one
        for gone, indicator in late:
            found += gone[:, np.newaxis] * indicator
        if margins.target is not None:
            c, s = margins.target
            found = c + s * found
        return found

    return of_rows


def _numbers_of(
    column: Any, given: Sequence[Any], limits: tuple[float, float], late: list[tuple[Any, Any]]
) -> Floats | None:
    """A column's values as they are multiplied; None if some are left to others."""
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
    legal = ((size >= limits[0]) & (size <= limits[1])) | (x == 0.0) | gone
    if not legal.all() or (column.missing is None and gone.any()):
        return None
    if column.single:
        x = x.astype(np.float32).astype(np.float64)
    if column.missing is not None:
        x[gone] = column.missing
        if column.indicator is not None:
            late.append((gone.astype(np.float64), column.indicator))
    if column.s is not None:
        x = (x - column.c) / column.s if column.s > 0.0 else np.zeros(len(x))
    return x


def _add_categories(
    categories: Sequence[_Codes], values: Sequence[Sequence[Any]], found: Floats
) -> bool:
    """Add each row's categories; False if some are left to others."""
    read: list[tuple[NDArray[np.int64], Floats]] = []
    for one, column in zip(categories, values, strict=True):
        codes = one.of(column)
        if codes is None:
            return False
        read.append(codes)
    # Coordinates with the number of their column, so that one sort gives both.
    keys = np.stack([places * _COLUMNS + at for at, (places, _) in enumerate(read)])
    keys.sort(axis=0)
    places, columns = np.divmod(keys, _COLUMNS)
    if (places[1:] == places[:-1]).any():
        return False  # equal coordinates are one
    weights = np.stack([weights for _, weights in read])  # (columns, rows, learners)
    rows = np.arange(len(found))
    for at in columns:
        found += weights[at, rows]
    return True


class _Known(NamedTuple):
    """Codes of values, and of each code the coordinate and the weights; never changed."""

    codes: dict[Any, int]
    places: NDArray[np.int64]
    weights: Floats


class _Codes:
    """The coordinates and weights of a column's categories."""

    def __init__(self, column: CategoryColumn, d: Description, margins: Margins) -> None:
        self._kind, self._places = column.kind, CategoryPlaces(column.name, d)
        # Only texts are equal to nothing but texts: 1 is equal to 1.0 and to True.
        kind = CLASSES.get(column.kind)
        self._classes = {kind, type(None)} if kind else None
        self._margins = margins
        self._known = _Known({}, np.empty(0, np.int64), np.empty((0, margins.learners)))

    def of(self, values: Sequence[Any]) -> tuple[NDArray[np.int64], Floats] | None:
        """Each value's coordinate and weights, (n, learners); None for values of other types."""
        if self._classes and not self._classes.issuperset(map(type, values)):
            return None
        known = self._known
        try:
            at = np.fromiter(map(known.codes.__getitem__, values), np.int64, len(values))
        except KeyError:
            known = self._with(values, known)
            at = np.fromiter(map(known.codes.__getitem__, values), np.int64, len(values))
        return known.places[at], known.weights[at]

    def _with(self, values: Iterable[Any], known: _Known) -> _Known:
        """What is known with these values; threads replace it as a whole."""
        kind = self._kind not in ("text", "bytes")
        codes = {} if len(known.codes) >= MOST else dict(known.codes)
        for value in dict.fromkeys(values):
            if value is None or value == value:  # noqa: PLR0124
                codes.setdefault(value, len(codes))
        texts = (category_of(value, self._kind) for value in codes)
        places = np.array([self._places.of(text) for text in texts], np.int64)
        made = _Known(codes, places, self._margins.weights.among(places))
        # Long values are not cached: anyone may send them.
        if all(value is None or kind or len(value) <= LONGEST for value in codes):
            self._known = made
        return made
