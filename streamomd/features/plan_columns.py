"""What a plan says of columns: vectors, pairs of lists, texts, dates, partitions, legal values; and
what a plan that was saved may say of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from streamomd.config.values import MOST_NGRAMS, NULLS
from streamomd.features.arrow_types import PARTITION_TYPES
from streamomd.rules.ranges import Limits

Label = bool | int | float | str


class Vector(NamedTuple):
    """A column of lists of numbers: ``width`` coordinates, 0 beyond the end of a shorter list."""

    column: str
    width: int


class SparsePair(NamedTuple):
    """Two list columns: coordinates 0 … size − 1 and their values."""

    indices: str
    values: str
    size: int


COUNTED = {"presence": "each 1", "count": "counted", "log": "log(1 + count)"}
"""The value of a word in a text with repeats: 1, its count, or the logarithm of 1 + count."""


DATE_PARTS = ("year", "month", "weekday", "hour")
"""Parts of a time; a date has no hour."""


class Text(NamedTuple):
    """A column of texts: its words and runs of up to ``ngrams``; ``counts``: see ``COUNTED``."""

    column: str
    ngrams: int
    counts: str


class Date(NamedTuple):
    """A column of dates or times: each part is a category, called column.part."""

    column: str
    parts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(f"{self.column}.{part}" for part in self.parts)


class Partition(NamedTuple):
    """A column of key=value directories; ``kind``: of its values, see ``PARTITION_TYPES``."""

    column: str
    kind: str


class LegalValues(NamedTuple):
    """largest: the largest number the slots can hold. limits: what the rule learns from."""

    largest: float = math.inf
    limits: Limits = Limits(0.0, math.inf)


class Column(NamedTuple):
    """A column as the first shard has it; ``family`` is what later shards must match."""

    name: str
    type: str
    family: str


Plan = Any
"""A plan, of a module that imports this one."""


def check_types(plan: Plan) -> None:
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
