"""Plan: how columns become coordinates, made once, frozen, and saved in every checkpoint.

Coordinates, in order, without overlap: the bias, numeric columns, vectors, the hats of curves,
2^bits for all hashed features if there are any, the size of the sparse pair, and with nulls =
"indicator" one for each numeric and vector column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

from streamomd.config.values import MOST_NGRAMS, NULLS
from streamomd.core.errors import DataError
from streamomd.core.scalars import Curve, check_curves, hats_of
from streamomd.features.arrow_types import PARTITION_TYPES, is_category_list
from streamomd.features.plan_columns import (
    COUNTED,
    DATE_PARTS,
    Column,
    Date,
    Label,
    LegalValues,
    Partition,
    SparsePair,
    Text,
    Vector,
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
    coordinates with hats.
    column_values: whether batches have the values of their columns, too; not saved.
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
    column_values: bool = False

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
        return self._families[column]

    @cached_property
    def _families(self) -> dict[str, str]:
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
        return bool(self.hashed or self.text or self.crosses or self.dates)

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
        return self.hat_offset + self.hats

    @cached_property
    def hats(self) -> int:
        """How many hats all curves have."""
        return sum(len(curve.knots) for curve in self.curves)

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
        """The same with their hats, which follow them."""
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

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts that ``from_json`` reads back."""
        saved = asdict(self)
        del saved["column_values"]
        if self.limits is None:  # in the form of every earlier version
            del saved["limits"]
        for key in ("partitions", "nulls_by", "time", "rename", "curves"):
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
            fields["curves"] = ()
            plan = cls(**fields)
            plan = replace(plan, curves=check_curves(saved.get("curves", ()), plan.given_numbers))
            if not 1 <= plan.bits <= MOST_BITS or not 0 <= plan.size <= LARGEST:
                raise ValueError(f"{plan.bits} bits")
            if plan.mean_count > MOST_MEANS:
                raise ValueError(f"means of {plan.mean_count:,} coordinates")
            _check_types(plan)
            return plan
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"expected a feature plan as this version saves it: {error}; "
                "read it with the streamomd that wrote it"
            ) from None


def _check_types(plan: Plan) -> None:
    """Raises TypeError unless columns are named by text, and widths and seeds are integers.

    pyarrow takes an integer for the position of a column, so it would find another one.
    """
    crossed = (name for cross in plan.crosses for name in cross)
    directories = (column for column, _ in plan.partitions)
    for name in (plan.label, plan.weight, plan.time, *plan.features, *crossed, *directories):
        if not isinstance(name, str):
            raise TypeError(f"a column is named {name!r}, expected text")
    sizes = [vector.width for vector in plan.vectors] + ([plan.sparse.size] if plan.sparse else [])
    for _, kind in plan.partitions:
        if kind not in PARTITION_TYPES:
            raise TypeError(f"a partition column of kind {kind!r}")
    _check_columns(plan)
    _check_classes(plan)
    for word in (plan.nulls, *(word for _, word in plan.nulls_by)):
        if word not in NULLS:
            raise TypeError(f"missing numbers become {word!r}")
    for number in (plan.bits, plan.hash_seed, *sizes):
        if type(number) is not int:
            raise TypeError(f"{number!r} is not an integer")


def _check_columns(plan: Plan) -> None:
    """Raises TypeError unless each column that is read has its type, and others their parts."""
    for one in plan.types:
        if not all(isinstance(text, str) for text in one):
            raise TypeError(f"column {one.name!r} has the type {one.type!r} ({one.family!r})")
    if missing := set(plan.columns) - {one.name for one in plan.types} - {""}:
        raise TypeError(f"column {min(missing)!r} has no type")
    if not all(plan.crosses):
        raise TypeError("a cross of no columns")
    for date in plan.dates:
        if not all(isinstance(part, str) and part in DATE_PARTS for part in date.parts):
            raise TypeError(f"date {date.column!r} has the parts {date.parts!r}")
    for text in plan.text:
        known = isinstance(text.counts, str) and text.counts in COUNTED
        if not known or type(text.ngrams) is not int or not 1 <= text.ngrams <= MOST_NGRAMS:
            raise TypeError(f"text {text.column!r} has {text.ngrams!r} ngrams, {text.counts!r}")
    least = () if plan.least_label is None else (plan.least_label,)
    for number in (*(plan.limits or ()), *least):
        if type(number) not in (int, float):
            raise TypeError(f"a limit is {number!r}, expected a number")
    if not 0 <= plan.hash_seed < 1 << 32:
        raise ValueError(f"hash_seed is {plan.hash_seed}, expected 0 … 2^32 - 1")


def _check_classes(plan: Plan) -> None:
    """Raises TypeError unless classes are distinct values of one kind, which Arrow can hold."""
    kinds = {float if type(one) is int else type(one) for one in plan.classes}
    whole = [one for one in plan.classes if type(one) is int]
    some = len({*plan.classes}) == len(plan.classes) != 1 and len(kinds) < 2
    if not (some and kinds <= {bool, float, str} and all(abs(one) < 1 << 63 for one in whole)):
        raise TypeError(f"classes are {plan.classes!r}")
    if not isinstance(plan.label_type, str):
        raise TypeError(f"label_type is {plan.label_type!r}, expected text")


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
