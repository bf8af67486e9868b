"""Statistics of columns over windows of rows, and over all rows before the window.

They merge: those of rows in two places are those of all of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.config.run_tables import Alert
from streamomd.core.batch import SHIFT, Batch, ColumnValues, Floats, Keys
from streamomd.engine import Engine

KINDS = ("loss", "mean", "null_rate", "new_categories")
"""Kinds of alerts. Checkpoints save the place in this list: only append to it."""
MOST = 100
"""Alerts that are saved: the last ones."""
PREFIX = "metrics.drift"


class Fired(NamedTuple):
    """An alert. row: how many rows were learned then. column: its place among the numeric columns,
    or of new categories among those with categories; -1: none. value: what was above the limit."""

    row: int
    kind: str
    column: int
    value: float
    limit: float


@dataclass(eq=False)
class Drift:
    """arrays: "loss" of ``PageHinkley``, and those of ``ColumnWindows``, by name. alerts: the last
    ones; count: of all."""

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    alerts: list[Fired] = field(default_factory=list)
    count: int = 0

    def fire(self, one: Fired) -> None:
        """Record an alert."""
        self.alerts = [*self.alerts, one][-MOST:]
        self.count += 1

    def saved(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        numbers = [(one.row, KINDS.index(one.kind), *one[2:]) for one in self.alerts]
        found: dict[str, NDArray[Any]] = {
            f"{PREFIX}alerts": np.array(numbers, dtype=np.float64).reshape(-1, 5),
            f"{PREFIX}count": np.array([self.count], dtype=np.int64),
        }
        return found | {f"{PREFIX}{name}": array for name, array in self.arrays.items()}

    @classmethod
    def restored(cls, saved: Mapping[str, NDArray[Any]]) -> Self | None:
        """Back from ``saved``; None of a checkpoint that has none."""
        if f"{PREFIX}count" not in saved:
            return None
        given = {
            name.removeprefix(PREFIX): np.array(array)
            for name, array in saved.items()
            if name.startswith(PREFIX)
        }
        numbers, count = given.pop("alerts").tolist(), int(given.pop("count")[0])
        alerts = [
            Fired(int(row), KINDS[int(kind)], int(column), value, limit)
            for row, kind, column, value, limit in numbers
        ]
        return cls(given, alerts, count)


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


MOST_LOSSES = 1 << 16
"""Losses that a part sends, 512 KiB: those of its rows, or means of blocks of its rows."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """rows: how many the part learned. losses: of its blocks of ``block`` rows, the means; the last
    block may have fewer. windows: statistics of its columns, by windows of its rows."""

    rows: int
    block: int
    losses: Floats
    windows: tuple[ColumnStatistics, ...]

    @property
    def counts(self) -> Floats:
        """How many rows each loss is of."""
        counts = np.full(len(self.losses), float(self.block))
        if len(counts):
            counts[-1] = self.rows - self.block * (len(counts) - 1)
        return counts

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        windows = (one.sums.nbytes + one.categories.nbytes for one in self.windows)
        return self.losses.nbytes + sum(windows)


def block_of(rows: int) -> int:
    """Rows of a block, in a part of at most this many rows: a power of 2.

    >>> block_of(1000), block_of(65537), block_of(1_000_000)
    (1, 2, 16)
    """
    block = 1
    while block * MOST_LOSSES < rows:
        block *= 2
    return block


@dataclass(eq=False)
class PartWatcher:
    """Collects ``PartRows``. How the rows are cut into batches changes no bit of them.

    windows: of no rows yet. block: see ``block_of``.
    """

    engine: Engine
    job: Alert
    windows: ColumnWindows
    block: int
    _rows: int = 0
    _rest: Floats = field(default_factory=lambda: np.empty(0))
    _losses: list[Floats] = field(default_factory=list)
    _ended: list[ColumnStatistics] = field(default_factory=list)

    def add(self, batch: Batch, margins: Floats, learned: float) -> None:
        """Add rows that were just learned. margins: of before learning. learned:
        ``Engine.rows_learned`` before them."""
        self._rows += len(batch)
        if self.job.loss:
            losses = self.engine.row_losses(learned, margins, batch.y, batch.weight)[:, 0]
            every = np.concatenate([self._rest, losses])
            whole = len(every) - len(every) % self.block
            self._losses.append(_means(every[:whole], self.block))
            self._rest = every[whole:]
        if batch.columns is not None:
            for _ in self.windows.add(batch.columns, self.job.rows):
                self._end_window()

    def found(self) -> PartRows:
        """Returns what is known of all rows added."""
        if self.windows.window.rows:
            self._end_window()
        losses = [*self._losses, _means(self._rest, max(len(self._rest), 1))]
        return PartRows(self._rows, self.block, np.concatenate(losses), tuple(self._ended))

    def _end_window(self) -> None:
        self._ended.append(replace(self.windows.window))
        self.windows.end()


def _means(losses: Floats, block: int) -> Floats:
    """Returns the mean loss of each block of rows. One block's mean does not depend on the
    others."""
    if block == 1:
        return losses
    sums: Floats = np.add.reduce(np.ascontiguousarray(losses).reshape(-1, block), axis=1)
    return sums / block
