"""How the columns of a row become coordinates, as a scorer needs it: plain values that JSON holds.

It says what ``features.plan.Plan`` says of features, without Arrow.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

from streamomd.core.errors import DataError
from streamomd.core.scalars import Curve, check_bins, check_curves
from streamomd.core.trees import Trees

NUMBERS = ("integer", "float", "float32", "float16", "boolean")
CATEGORIES = (*NUMBERS, "text", "bytes")
DATES = ("date", "timestamp", "timestamp with a zone")
_SCALED = re.compile(r"decimal:\d{1,2}|(?:duration|time):(?:s|ms|us|ns)")
PARTS = ("year", "month", "weekday", "hour")
COUNTS = ("presence", "count", "log")
NULLS = ("error", "zero", "indicator", "mean")
LARGEST = 2**31 - 1


def is_measured(kind: str) -> bool:
    """Whether numbers may be of this kind: of ``NUMBERS``, decimal:SCALE, or duration:UNIT and
    time:UNIT, which are seconds.

    >>> is_measured("float32"), is_measured("decimal:2"), is_measured("duration:h")
    (True, True, False)
    """
    return kind in NUMBERS or _SCALED.fullmatch(kind) is not None


class NumberColumn(NamedTuple):
    """A column of numbers, one coordinate. kind: see ``is_measured``. nulls: of ``NULLS``."""

    name: str
    kind: str
    nulls: str


class VectorColumn(NamedTuple):
    """A column of lists of ``width`` numbers. ragged: or of fewer, the rest is 0."""

    name: str
    width: int
    kind: str
    nulls: str
    ragged: bool = False


class CategoryColumn(NamedTuple):
    """A column of categories. alone: it is hashed itself, not only in crosses."""

    name: str
    kind: str
    alone: bool


class CategoryList(NamedTuple):
    """A column of lists of categories of a kind."""

    name: str
    kind: str


class DateColumn(NamedTuple):
    """A column of dates or times; each part is a category called name.part."""

    name: str
    kind: str
    parts: tuple[str, ...]


class TextColumn(NamedTuple):
    """A column of texts: words and runs of up to ``ngrams`` words."""

    name: str
    ngrams: int
    counts: str


class BinnedNumber(NamedTuple):
    """A number as a category, in crosses. place: among numeric and vector coordinates. edges: see
    ``core.scalars.Bins``. texts: of the bins."""

    name: str
    place: int
    edges: tuple[float, ...]
    texts: tuple[str, ...]

    def of(self, x: float) -> bytes | None:
        """The bin of a number as a category; None of NaN."""
        return None if math.isnan(x) else self.texts[bisect_right(self.edges, x)].encode()


class SparseColumns(NamedTuple):
    """Two columns of lists: indices below ``size``, and their values."""

    indices: str
    values: str
    size: int
    kind: str


@dataclass(frozen=True)
class Description:
    """All columns of a model, in the order of their coordinates.

    crosses: names of columns, of parts of dates or of bins. narrow: sums of equal coordinates are
    rounded to float32. largest: the largest float the model can hold; least, most: of magnitudes.
    curves: numbers with hats, see ``core.scalars``. trees: whose margins are numbers, too.
    """

    bias: bool
    numbers: tuple[NumberColumn, ...] = ()
    vectors: tuple[VectorColumn, ...] = ()
    categories: tuple[CategoryColumn, ...] = ()
    dates: tuple[DateColumn, ...] = ()
    crosses: tuple[tuple[str, ...], ...] = ()
    texts: tuple[TextColumn, ...] = ()
    sparse: SparseColumns | None = None
    bits: int = 18
    seed: int = 0
    narrow: bool = False
    largest: float = math.inf
    least: float = 0.0
    most: float = math.inf
    lists: tuple[CategoryList, ...] = ()
    curves: tuple[Curve, ...] = ()
    trees: Trees | None = None
    bins: tuple[BinnedNumber, ...] = ()

    @cached_property
    def hat_offset(self) -> int:
        """The first hat."""
        return self.vector_offset + sum(vector.width for vector in self.vectors)

    @cached_property
    def hashed_offset(self) -> int:
        """The first hashed coordinate."""
        return self.tree_offset + (self.trees.margins if self.trees else 0)

    @cached_property
    def tree_offset(self) -> int:
        """The first margin of trees."""
        return self.hat_offset + sum(len(curve.knots) for curve in self.curves)

    @property
    def vector_offset(self) -> int:
        """The first coordinate of a vector."""
        return int(self.bias) + len(self.numbers)

    @property
    def hashes(self) -> bool:
        """Whether anything is hashed."""
        return bool(self.categories or self.lists or self.texts or self.dates or self.crosses)

    @cached_property
    def sparse_offset(self) -> int:
        """The coordinate of index 0 of the pair of lists."""
        return self.hashed_offset + (2**self.bits if self.hashes else 0)

    @cached_property
    def indicators(self) -> tuple[str, ...]:
        """The columns with a missing-value indicator."""
        measured: list[Any] = [*self.numbers, *self.vectors]
        return tuple(column.name for column in measured if column.nulls == "indicator")

    @cached_property
    def indicator_offset(self) -> int:
        """The first coordinate of an indicator."""
        return self.sparse_offset + (self.sparse.size if self.sparse else 0)

    @cached_property
    def size(self) -> int:
        """How many coordinates there are."""
        return self.indicator_offset + len(self.indicators)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Each column's kind: number, category, categories, date, text or list."""
        found = {column.name: "number" for column in self.numbers}
        found |= {column.name: "list" for column in self.vectors}
        found |= {column.name: "category" for column in self.categories if column.alone}
        found |= {column.name: "categories" for column in self.lists}
        found |= {column.name: "date" for column in self.dates}
        found |= {c.name: "category" for c in self.categories if c.name not in found}
        found |= {column.name: "text" for column in self.texts}
        if self.sparse:
            found |= {self.sparse.indices: "list", self.sparse.values: "list"}
        return found

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads back; infinity is null."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("curves", "trees", "bins"):  # in the form of every earlier version
            if not found[name]:
                del found[name]
        if self.trees:
            found["trees"] = self.trees.to_json()
        return {name: None if value == math.inf else value for name, value in found.items()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The description that was saved. Raises DataError for anything else."""
        try:
            saved = {"curves": (), "trees": None, "bins": (), **saved}
            given = {one.name: saved[one.name] for one in fields(cls)}
            for name, make in _COLUMNS.items():
                given[name] = tuple(make(*one) for one in given[name])
            given["curves"] = tuple(
                curve._replace(knots=tuple(curve.knots)) for curve in given["curves"]
            )
            given["bins"] = tuple(
                BinnedNumber(name, place, tuple(edges), tuple(texts))
                for name, place, edges, texts in given["bins"]
            )
            given["trees"] = Trees.from_json(saved["trees"]) if saved["trees"] else None
            dates = given["dates"]
            given["dates"] = tuple(one._replace(parts=tuple(one.parts)) for one in dates)
            given["crosses"] = tuple(tuple(cross) for cross in given["crosses"])
            given["sparse"] = SparseColumns(*given["sparse"]) if given["sparse"] else None
            for name in ("largest", "most"):
                given[name] = math.inf if given[name] is None else given[name]
            made = cls(**given)
            _check(made)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(f"a scorer of other columns than this version saves: {error}") from None
        return made


_COLUMNS: dict[str, Any] = {
    "numbers": NumberColumn,
    "vectors": VectorColumn,
    "categories": CategoryColumn,
    "lists": CategoryList,
    "dates": DateColumn,
    "texts": TextColumn,
    "curves": Curve,
}


def _check(made: Description) -> None:
    """Raises ValueError or TypeError for values that no description has."""
    numbers, dates = made.numbers, made.dates
    pair = [made.sparse] if made.sparse else []
    named: list[Any] = [*numbers, *made.vectors, *made.categories, *made.lists, *dates, *made.texts]
    for name in (*(c.name for c in named), *(n for one in pair for n in one[:2])):
        _need(type(name) is str, f"a column is named {name!r}")
    for cross in made.crosses:
        parts = {f"{one.name}.{part}" for one in dates for part in one.parts}
        known = parts.union(one[0] for one in (*made.categories, *made.bins))
        _need(len(cross) > 1 and known.issuperset(cross), f"a cross is of {cross!r}")
    measured: list[Any] = [*numbers, *made.vectors]
    for column in measured:
        _need(is_measured(column.kind) and column.nulls in NULLS, repr(column))
    for one in pair:
        _need(one.kind in NUMBERS, repr(one))
    for category in made.categories:
        _need(category.kind in CATEGORIES and type(category.alone) is bool, repr(category))
    for listed in made.lists:
        _need(listed.kind in CATEGORIES, repr(listed))
    for vector in made.vectors:
        _need(type(vector.ragged) is bool, repr(vector))
    for date in dates:
        _need(date.kind in DATES and set(date.parts) <= set(PARTS), repr(date))
    for text in made.texts:
        _need(text.counts in COUNTS and 1 <= _whole(text.ngrams) <= 64, repr(text))
    for width in (*(v.width for v in made.vectors), *(p.size for p in pair)):
        _need(0 <= _whole(width) <= LARGEST, f"{width!r} elements")
    _need(1 <= _whole(made.bits) <= 30, f"{made.bits!r} bits")
    _need(0 <= _whole(made.seed) < 2**32, f"seed {made.seed!r}")
    _need(type(made.bias) is bool and type(made.narrow) is bool, "bias")
    for number in (made.largest, made.least, made.most):
        _need(type(number) in (int, float) and number >= 0.0, f"a limit of {number!r}")
    given = made.hat_offset - int(made.bias)
    check_curves(made.curves, given)
    known_bins = check_bins([(one.place, one.edges) for one in made.bins], given)
    texts = [[*one.texts] for one in made.bins]
    _need(texts == [one.names for one in known_bins], f"bins of {made.bins!r}")
    single = sum(column.alone for column in made.categories)
    single += sum(len(date.parts) for date in dates)
    if made.trees:
        _need(made.trees.columns == given + single, f"trees of {made.trees.columns} columns")
    _need(made.size <= LARGEST, f"{made.size} coordinates")


def _need(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError(f"{number!r} is not an integer")
    return number
