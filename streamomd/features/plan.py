"""Plan: how columns become coordinates, made once, frozen, and saved in every checkpoint.

Coordinates, in order, without overlap: the bias, numeric columns, vectors, the hats of curves, the
margins of trees, 2^bits for all hashed features if there are any, the size of the sparse pair, and
with nulls = "indicator" one for each numeric and vector column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

from streamomd.core.errors import DataError
from streamomd.core.scalars import Bins, Curve, check_bins, check_curves, hats_of
from streamomd.core.trees import Trees
from streamomd.features.arrow_types import is_category_list
from streamomd.features.plan_columns import (
    Column,
    Date,
    Label,
    LegalValues,
    Partition,
    SparsePair,
    Text,
    Vector,
    check_types,
)
from streamomd.rules.ranges import ANY, Limits

MOST_BITS, LARGEST, MOST_MEANS = 30, 2**31 - 1, 2**20


@dataclass(frozen=True)
class Plan:
    """The columns, their kinds and their blocks of coordinates. Equal plans encode alike.

    weight is "" without a weight column. classes is () in regression, else [negative, positive] or
    all K classes. label_type is the Arrow type (as text) of a label's value. dtype is the slots'.
    least_label is the smallest label that the loss can learn from, None: any. on_bad_row "skip":
    rows that cannot be learned from are skipped. crosses name columns, or parts of dates. limits:
    the magnitudes that the rule learns from, None: any that the slots can hold. partitions: all
    columns of directories, features or not. nulls: what missing numbers become, in columns that
    nulls_by does not name. time: the column of each row's time, which need not be a feature.
    rename: names of columns in some files, and the columns they are. curves: numeric and vector
    coordinates with hats. trees: whose margins are numbers, too. pairs: crosses that the first rows
    decided, of what has one category a row and of numbers with bins.
    column_values: whether batches have the values of their columns, too; not saved. tree_columns:
    whether these are those that trees read. learns: whether rows that trees were grown on have the
    margins of earlier ones; neither is saved.
    """

    bias: bool
    label: str
    weight: str
    numeric: tuple[str, ...]
    vectors: tuple[Vector, ...]
    hashed: tuple[str, ...]
    sparse: SparsePair | None
    nulls: str
    bits: int
    hash_seed: int
    types: tuple[Column, ...]
    label_type: str
    classes: tuple[Label, ...]
    dtype: str = "float64"
    least_label: float | None = None
    on_bad_row: str = "error"
    text: tuple[Text, ...] = ()
    crosses: tuple[tuple[str, ...], ...] = ()
    dates: tuple[Date, ...] = ()
    limits: Limits | None = None
    partitions: tuple[Partition, ...] = ()
    nulls_by: tuple[tuple[str, str], ...] = ()
    time: str = ""
    rename: tuple[tuple[str, str], ...] = ()
    curves: tuple[Curve, ...] = ()
    trees: Trees | None = None
    bins: tuple[Bins, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    column_values: bool = False
    tree_columns: bool = False
    learns: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The feature columns, in the order of their coordinates; a crossed one once."""
        pair = self.sparse[:2] if self.sparse else ()
        placed = (*self.numeric, *(v.column for v in self.vectors), *self.hashed)
        dates, texts = (date.column for date in self.dates), (text.column for text in self.text)
        return tuple(dict.fromkeys((*placed, *dates, *self._crossed, *texts, *pair)))

    @property
    def _crossed(self) -> tuple[str, ...]:
        parts = {name for date in self.dates for name in date.names}
        return tuple(name for cross in self.crosses for name in cross if name not in parts)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The columns whose values are categories: hashed ones, dates, those of crosses."""
        dates = (date.column for date in self.dates)
        return tuple(dict.fromkeys((*self.hashed, *dates, *self._crossed)))

    def family(self, column: str) -> str:
        """The family of a column of the first shard."""
        return self.families[column]

    @cached_property
    def families(self) -> dict[str, str]:
        """The family of each column's type."""
        return {column.name: column.family for column in self.types}

    @cached_property
    def hashed_lists(self) -> tuple[str, ...]:
        """The hashed columns of lists, of which each element is a category."""
        return tuple(name for name in self.hashed if is_category_list(self.family(name)))

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be read from a shard to learn: label, weight, features, time."""
        others = [self.weight] if self.weight else []
        last = [self.time] if self.time and self.time not in self.features else []
        return (self.label, *others, *self.features, *last)

    @property
    def timeless(self) -> Plan:
        """The plan for rows whose time does not matter: shards need not have its column."""
        if not self.time:
            return self
        made = replace(self, time="")
        return replace(made, types=tuple(one for one in self.types if one.name in made.columns))

    @property
    def dictionary(self) -> tuple[str, ...]:
        """Hashed strings, to be read as dictionaries: then hashing costs per distinct value."""
        texts = {c.name for c in self.types if c.family in ("string", "binary")}
        named = dict.fromkeys((*self.hashed, *self._crossed))
        return tuple(name for name in named if name in texts)

    @property
    def hashes(self) -> bool:
        """Whether anything is hashed."""
        return bool(self.categorical or self.text or self.pairs)

    @property
    def dense(self) -> bool:
        """Whether a batch is a matrix: there are numeric and vector columns only."""
        return not self.hashes and self.sparse is None

    @property
    def indicators(self) -> tuple[str, ...]:
        """The columns with a missing-value indicator."""
        return tuple(name for name in self.measured if self.nulls_of(name) == "indicator")

    @property
    def measured(self) -> tuple[str, ...]:
        """The numeric and vector columns."""
        return (*self.numeric, *(vector.column for vector in self.vectors))

    def nulls_of(self, column: str) -> str:
        """What a missing number of a column becomes."""
        return self._nulls_by.get(column, self.nulls)

    @cached_property
    def _nulls_by(self) -> dict[str, str]:
        return dict(self.nulls_by)

    @cached_property
    def means(self) -> tuple[int, ...]:
        """The places, among numeric and vector coordinates, whose missing values become means."""
        found: list[int] = []
        at = 0
        for name, width in self._widths:
            if self.nulls_of(name) == "mean":
                found += range(at, at + width)
            at += width
        return tuple(found)

    @property
    def _widths(self) -> list[tuple[str, int]]:
        """The numeric and vector columns, each with its number of coordinates."""
        return [(name, 1) for name in self.numeric] + [(v.column, v.width) for v in self.vectors]

    @property
    def mean_count(self) -> int:
        """How many coordinates have a mean, which a manifest may claim to be many."""
        return sum(width for name, width in self._widths if self.nulls_of(name) == "mean")

    @property
    def mean_columns(self) -> tuple[str, ...]:
        """The columns whose missing values become means."""
        return tuple(name for name in self.measured if self.nulls_of(name) == "mean")

    @property
    def largest(self) -> float:
        """The largest value the slots can hold."""
        return ANY.of(self.dtype).most

    @property
    def legal(self) -> LegalValues:
        """Which numbers are legal features."""
        return LegalValues(self.largest, self.limits or Limits(0.0, math.inf))

    @property
    def vector_offset(self) -> int:
        """The first vector coordinate."""
        return int(self.bias) + len(self.numeric)

    @cached_property
    def hat_offset(self) -> int:
        """The first hat."""
        return self.vector_offset + sum(vector.width for vector in self.vectors)

    @cached_property
    def hashed_offset(self) -> int:
        """The first hashed coordinate."""
        return self.tree_offset + self.margins

    @property
    def tree_offset(self) -> int:
        """The first margin of trees."""
        return self.hat_offset + self.hats

    @property
    def margins(self) -> int:
        """How many margins of trees a row has."""
        return self.trees.margins if self.trees else 0

    @property
    def single(self) -> tuple[str, ...]:
        """The names of what has one category a row, without crosses: columns, parts of dates."""
        columns = (name for name in self.hashed if name not in self.hashed_lists)
        return (*columns, *(name for date in self.dates for name in date.names))

    @property
    def crossed(self) -> tuple[tuple[str, ...], ...]:
        """All crosses: those of the job, then the pairs."""
        return (*self.crosses, *self.pairs)

    @property
    def learning(self) -> Plan:
        """The plan for rows that are learned, of which trees may have been grown on some."""
        return replace(self, learns=True) if self.trees else self

    @cached_property
    def hats(self) -> int:
        """How many hats all curves have."""
        return sum(len(curve.knots) for curve in self.curves)

    @property
    def made(self) -> int:
        """How many numbers are made of others: hats and margins of trees."""
        return self.hats + self.margins

    @property
    def hats_of_curves(self) -> Iterator[tuple[Curve, slice]]:
        """The curves, each with the coordinates of its hats."""
        return hats_of(self.curves, self.hat_offset)

    @property
    def given_numbers(self) -> int:
        """How many numeric and vector coordinates there are; they follow the bias."""
        return self.hat_offset - int(self.bias)

    @property
    def numbers(self) -> int:
        """The same with their hats and the margins of trees, which follow them."""
        return self.hashed_offset - int(self.bias)

    @property
    def sparse_offset(self) -> int:
        """The coordinate of the sparse pair's index 0."""
        return self.hashed_offset + (2**self.bits if self.hashes else 0)

    @property
    def indicator_offset(self) -> int:
        """The first coordinate of missing-value indicators: after all others, which keep theirs."""
        return self.sparse_offset + (self.sparse.size if self.sparse else 0)

    @cached_property
    def size(self) -> int:
        """d: how many coordinates there are, the bias included."""
        return self.indicator_offset + len(self.indicators)

    def to_json(self, *, brief: bool = False) -> dict[str, Any]:
        """Plain lists and dicts that ``from_json`` reads back. brief: with the hash of the trees
        alone."""
        saved = asdict(replace(self, trees=None))
        for key in ("column_values", "tree_columns", "learns", "trees"):
            del saved[key]
        if self.trees is not None:
            saved["trees"] = self.trees.sha256 if brief else self.trees.to_json()
        if self.limits is None:  # in the form of every earlier version
            del saved["limits"]
        for key in ("partitions", "nulls_by", "time", "rename", "curves", "bins", "pairs"):
            if not saved[key]:
                del saved[key]
        return saved

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The plan that was saved. Raises DataError when it is not a plan of this version."""
        try:
            fields: dict[str, Any] = {**saved}
            for key in ("numeric", "hashed", "classes"):
                fields[key] = tuple(saved[key])
            fields["vectors"] = tuple(Vector(*vector) for vector in saved["vectors"])
            fields["types"] = tuple(Column(*column) for column in saved["types"])
            fields["sparse"] = SparsePair(*saved["sparse"]) if saved["sparse"] else None
            fields["text"] = tuple(Text(*text) for text in saved.get("text", ()))
            fields["crosses"] = tuple(tuple(cross) for cross in saved.get("crosses", ()))
            dates = saved.get("dates", ())
            fields["dates"] = tuple(Date(column, tuple(parts)) for column, parts in dates)
            partitions = (Partition(*one) for one in saved.get("partitions", ()))
            fields["partitions"] = tuple(partitions)
            fields["nulls_by"] = tuple(
                (str(name), str(word)) for name, word in saved.get("nulls_by", ())
            )
            fields["rename"] = tuple((str(old), str(new)) for old, new in saved.get("rename", ()))
            fields["limits"] = Limits(*saved["limits"]) if saved.get("limits") else None
            fields["curves"] = fields["bins"] = ()
            fields["pairs"] = tuple((str(a), str(b)) for a, b in saved.get("pairs", ()))
            fields["trees"] = Trees.from_json(saved["trees"]) if saved.get("trees") else None
            plan = cls(**fields)
            given = plan.given_numbers
            plan = replace(plan, curves=check_curves(saved.get("curves", ()), given))
            plan = replace(plan, bins=check_bins(saved.get("bins", ()), given))
            binned = {number_name(plan, one.place) for one in plan.bins}
            members = binned.union(plan.single).issuperset(sum(plan.pairs, ()))
            if not members or binned.intersection((*plan.categorical, *plan.single)):
                raise ValueError(f"pairs of {plan.pairs!r}")
            if plan.trees and plan.trees.columns != plan.given_numbers + len(plan.single):
                raise ValueError(f"trees of {plan.trees.columns} columns")
            if not 1 <= plan.bits <= MOST_BITS or not 0 <= plan.size <= LARGEST:
                raise ValueError(f"{plan.bits} bits")
            if plan.mean_count > MOST_MEANS:
                raise ValueError(f"means of {plan.mean_count:,} coordinates")
            check_types(plan)
            return plan
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"expected a feature plan as this version saves it: {error}; "
                "read it with the streamomd that wrote it"
            ) from None


def number_at(plan: Plan, place: int) -> tuple[str, int | None]:
    """The column of a numeric or vector coordinate, and the element of its list, or None; place:
    among these coordinates."""
    if place < len(plan.numeric):
        return plan.numeric[place], None
    place -= len(plan.numeric)
    for vector in plan.vectors:
        if place < vector.width:
            break
        place -= vector.width
    return vector.column, place


def number_name(plan: Plan, place: int) -> str:
    """The name of a numeric or vector coordinate: age, embedding[3]."""
    column, element = number_at(plan, place)
    return column if element is None else f"{column}[{element}]"
