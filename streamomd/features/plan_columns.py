"""What a plan says of columns: vectors, pairs of lists, texts, dates, partitions, legal values."""

from __future__ import annotations

import math
from typing import NamedTuple

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
