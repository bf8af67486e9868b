"""Statistics of columns over windows of rows, and over all rows before the window.

They merge: those of rows in two places are those of all of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import SHIFT, ColumnValues, Keys

Floats = NDArray[np.float64]
NO_KEYS: Keys = np.empty(0, np.int64)
C, COUNT, SUM, SQUARES = range(4)
"""Rows of ``ColumnStatistics.sums``."""


class Change(NamedTuple):
    """What changed from the rows before to a window. kind: "mean", "null_rate" or
    "new_categories"; column: its place among the numeric columns, or among those with categories.
    """

    kind: str
    column: int
    value: float


@dataclass(eq=False)
class ColumnStatistics:
    """rows: how many. sums: (4, columns), of each numeric column a number c near its values, how
    many are not missing, and the sums of x - c and of its square. categories: those that no row
    before had, ascending.

    ``add`` takes rows one after the other, c being the first value, so how they are cut into
    batches changes no bit. ``merged`` is Chan's formula: c is then the mean. It equals one pass
    over all rows up to rounding, of 1e-12 of the larger of standard deviation and distance of means
    for a million rows.
    """

    rows: int
    sums: Floats
    categories: Keys = field(default_factory=lambda: NO_KEYS)

    @classmethod
    def none(cls, columns: int) -> Self:
        """Statistics of no rows yet."""
        return cls(0, np.zeros((4, columns)))

    def add(self, values: ColumnValues, seen: SeenCategories) -> None:
        """Add rows. seen: categories of all rows before."""
        there = ~np.isnan(values.numbers)
        unknown = (self.sums[COUNT] == 0.0) & there.any(axis=0)
        c = self.sums[C].copy()
        for column in np.flatnonzero(unknown).tolist():
            c[column] = values.numbers[there[:, column].argmax(), column]
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.where(there, values.numbers - c, 0.0)
            terms = np.stack([there.astype(np.float64), x, x * x], axis=1)
            sums = np.concatenate([self.sums[np.newaxis, COUNT:], terms])
            self.sums = np.vstack([c, np.add.accumulate(sums, axis=0)[-1]])
        if len(new := seen.unseen(values.categories)):
            self.categories = np.union1d(self.categories, new)
        self.rows += len(values)

    def merged(self, other: Self) -> Self:
        """Returns the statistics of the rows of both."""
        with np.errstate(all="ignore"):
            (n, mean, squares), (m, more, others) = self._moments(), other._moments()
            count, far = n + m, more - mean
            shift = np.where(far == 0.0, 0.0, far * (m / count))
            spread = np.where(far == 0.0, 0.0, far * far * (n * m / count))
            sums = np.stack([mean + shift, count, np.zeros_like(n), squares + others + spread])
        sums = np.where(m == 0.0, self.sums, np.where(n == 0.0, other.sums, sums))
        return replace(
            self,
            rows=self.rows + other.rows,
            sums=sums,
            categories=np.union1d(self.categories, other.categories),
        )

    def means(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each column, NaN of one without values."""
        with np.errstate(all="ignore"):
            count, mean, squares = self._moments()
            return mean, np.sqrt(squares / count)

    def null_rates(self) -> Floats:
        """The share of missing values of each column."""
        found: Floats = 1.0 - self.sums[COUNT] / self.rows
        return found

    def _moments(self) -> tuple[Floats, Floats, Floats]:
        """Number, mean, and sum of squared differences from the mean."""
        c, count, total, squares = self.sums
        return count, c + total / count, np.maximum(squares - total * (total / count), 0.0)


@dataclass(eq=False)
class ColumnWindows:
    """before: of all rows before the window; its categories are those of ``seen``. window: of its
    rows so far."""

    before: ColumnStatistics
    window: ColumnStatistics
    seen: SeenCategories

    @classmethod
    def none(cls, columns: int, categorical: int, bits: int) -> Self:
        """Windows of no rows yet. columns, categorical: how many are numeric, and have
        categories."""
        seen = SeenCategories.none(categorical, bits)
        return cls(ColumnStatistics.none(columns), ColumnStatistics.none(columns), seen)

    def add(self, values: ColumnValues, size: int) -> Iterator[int]:
        """Add rows; where a window has ``size`` rows, how many of the rows that is after. The
        caller reads it, and ends it."""
        low = 0
        while low < len(values):
            high = min(len(values), low + max(size - self.window.rows, 1))
            self.window.add(values.rows(low, high), self.seen)
            low = high
            if self.window.rows >= size:
                yield low

    def merge(self, rows: ColumnStatistics) -> None:
        """Add rows to the window, of which another process made the statistics."""
        new = self.seen.unseen(rows.categories)
        self.window = self.window.merged(replace(rows, categories=new))

    def end(self) -> None:
        """The window's rows join the rows before it."""
        self.seen.mark(self.window.categories)
        whole = self.before.merged(self.window)
        self.before = replace(whole, categories=NO_KEYS)
        self.window = ColumnStatistics.none(self.window.sums.shape[1])

    def changes(self) -> list[Change]:
        """From the rows before to the window; none of the first window."""
        before, window = self.before, self.window
        if not before.rows or not window.rows:
            return []
        new = self.seen.by_column(window.categories) / window.rows
        nulls = window.null_rates() - before.null_rates()
        (old, spread), (mean, scatter) = before.means(), window.means()
        with np.errstate(all="ignore"):
            # The larger: of a column that is rarely not 0, the rows before may all be 0.
            far = np.abs(mean - old)
            far = np.where(far > 0.0, far / np.maximum(spread, scatter), 0.0)
        found = (("new_categories", new), ("null_rate", nulls), ("mean", far))
        return [
            Change(kind, at, value)
            for kind, values in found
            for at, value in enumerate(values.tolist())
        ]


MOST_BYTES = 64 << 20
"""The most bytes of the bits in a commit."""


@dataclass(eq=False)
class SeenCategories:
    """bits: uint64 (columns, words); coordinate c of a column is bit c % 64 of its word c // 64.

    Two categories of one column with the same coordinate are one; those of two columns are two.
    """

    bits: NDArray[np.uint64]

    @classmethod
    def none(cls, columns: int, bits: int) -> Self:
        """Categories of no rows yet. columns: those with categories, each with 2^bits
        coordinates."""
        return cls(np.zeros((columns, ((1 << bits) + 63) // 64), np.uint64))

    def unseen(self, keys: Keys) -> Keys:
        """Those of these categories that are not among them, ascending, each once; none if
        categories are not watched, without columns."""
        if not len(self.bits):
            return np.empty(0, np.int64)
        column, word, bit = self._places(keys)
        return np.unique(keys[self.bits[column, word] & bit == 0])

    def mark(self, keys: Keys) -> None:
        """Add categories."""
        column, word, bit = self._places(keys)
        np.bitwise_or.at(self.bits, (column, word), bit)

    def valid(self, keys: Keys, bits: int) -> Keys:
        """Those of these numbers that are categories of some column, ascending, each once."""
        column, at = keys >> SHIFT, keys & ((1 << SHIFT) - 1)
        return np.unique(keys[(column >= 0) & (column < len(self.bits)) & (at < 1 << bits)])

    def by_column(self, keys: Keys) -> NDArray[np.int64]:
        """How many of these categories each column has."""
        return np.bincount(keys >> SHIFT, minlength=len(self.bits))

    def _places(self, keys: Keys) -> tuple[Keys, Keys, NDArray[np.uint64]]:
        at = keys & ((1 << SHIFT) - 1)
        return keys >> SHIFT, at >> 6, np.uint64(1) << (at & 63).astype(np.uint64)
