"""Prediction intervals of numbers: adaptive conformal inference on residuals.

Each row's residual is label - prediction, of before the row was first learned. An interval at a
level ends at two quantiles of recent residuals. Their tails, the probabilities beyond either end,
follow what was found (Gibbs & Candès 2021, "Adaptive conformal inference under distribution
shift", eq. 2): tail <- tail + pace (goal - whether the row is beyond), goal = (1 - level) / 2. So
coverage comes to the level whatever the rows are, a drift of residuals included. The tails of both
ends are 1 together at most: no row is beyond an end that all residuals equal, and tails that grow
for as long would take as long to shrink.

The paper moves the tail, and computes the quantile, at each row; here tails and ends move after
every 32 rows, and the distribution whose quantiles they are is that of all rows up to a row number
of the list 1, 2, 4, … 1,024, 2,048, 3,072, …. There older rows lose a quarter of their weight. So
numbers depend on the rows and their order alone. Each row counts once, whatever its importance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.jit import LazyCompiled, callable_part, int64, read, written

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
GOALS = np.repeat([(1.0 - level) / 2.0 for level in LEVELS], 2)
"""The share of rows beyond the lower and the upper end of each level."""
ENDS = np.tile([-np.inf, np.inf], len(LEVELS))
PACES, EVERY = np.minimum(0.005, 0.1 * GOALS), 32
"""The paper's pace, or less: a row beyond an end moves the tail by a tenth of its goal at most."""
REFRESH, REMEMBERED = 1024, 3.0 / 4.0
"""Rows between two distributions, and the weight of older rows after each: half after 2,500. Where
residuals of made streams grow, shrink or jump, coverage is nearer to the level than with 7/8."""
DIGITS = 5
"""Binary digits that bins distinguish, 32 to a doubling, of whatever size a residual is."""
PLACES, SHIFT = 2047 << DIGITS, 52 - DIGITS
"""Bins above 0. A bin's place is by the upper bits of the float64; 0 has a bin, of width 0."""
SAVED, NAMES = "metrics.residuals.", ("of", "ends", "at", "value")


@dataclass(eq=False)
class Residuals:
    """Residuals of the rows of a regression, before they were first learned.

    weights: (bins,), the weight of rows by bin: places -high … -low, 0, and low … high. table:
    their sums up to each bin when they were last computed. limits: (2, bins), where bins begin and
    end. Of each end of LEVELS, the lower one first, (ends,): tails; ends; beyond: rows beyond it in
    all; recent: since the last move. rows: how many.
    """

    low: int = 1
    high: int = 0
    weights: Floats = field(default_factory=lambda: np.zeros(1))
    table: Floats = field(default_factory=lambda: np.zeros(1))
    limits: Floats = field(default_factory=lambda: np.zeros((2, 1)))
    tails: Floats = field(default_factory=GOALS.copy)
    ends: Floats = field(default_factory=ENDS.copy)
    beyond: Floats = field(default_factory=lambda: np.zeros(len(GOALS)))
    recent: Floats = field(default_factory=lambda: np.zeros(len(GOALS)))
    rows: int = 0

    def count(self, residuals: Floats) -> None:
        """Count rows; residuals that are not finite do not count."""
        found = residuals[np.isfinite(residuals)]
        places = places_of(found)
        self._widen(places)
        self.rows = _count(
            len(found), found, self._bins(places), *self.limits, self.weights, self.table, GOALS,
            PACES, self.tails, self.ends, self.beyond, self.recent, self.rows,
        )  # fmt: skip

    def add(self, other: Residuals) -> None:
        """Add rows of another part of the stream, as if they came after these. Tails are means, by
        the weight of the rows that either remembers."""
        if not other.rows:
            return
        places = other._places()[other.weights != 0.0]
        self._widen(places)
        self.weights *= REMEMBERED ** (other.rows / REFRESH)
        ours, theirs = float(self.weights.sum()), float(other.weights.sum())
        self.weights[self._bins(places)] += other.weights[other.weights != 0.0]
        self.tails = (ours * self.tails + theirs * other.tails) / (ours + theirs)
        self.beyond, self.recent = self.beyond + other.beyond, np.zeros(len(GOALS))
        self.rows += other.rows
        np.cumsum(self.weights, out=self.table)
        move_ends(*self.limits, self.table, self.tails, self.ends)

    def _places(self) -> NDArray[np.int64]:
        above = np.arange(self.low, self.high + 1)
        return np.concatenate([-above[::-1], [0], above])

    def _bins(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which bins have these places, that lie within low … high."""
        bins: NDArray[np.int64] = len(self.weights) // 2 + places - np.sign(places) * (self.low - 1)
        return bins

    def _widen(self, places: NDArray[np.int64]) -> None:
        """Bins for these places, too. Their number changes no end: empty ones are passed over."""
        sizes = np.abs(places[places != 0])
        if not len(sizes):
            return
        low, high = int(sizes.min()), int(sizes.max())
        if self.low <= low and high <= self.high:
            return
        if self.low <= self.high:
            low, high = min(low, self.low), max(high, self.high)
        before, weights, table = self._places(), self.weights, self.table
        self.low, self.high = low, high
        self._spread(before, weights, table)

    def _spread(self, places: NDArray[np.int64], weights: Floats, table: Floats) -> None:
        """Weights and sums of ascending places; the sums are constant between these."""
        every = self._places()
        self.limits = limits_of(every)
        self.weights = np.zeros(len(every))
        self.weights[self._bins(places)] = weights
        self.table = np.concatenate([[0.0], table])[np.searchsorted(places, every, side="right")]

    def coverage(self, level: float) -> float:
        """The share of all rows whose label was in its interval."""
        at = 2 * LEVELS.index(level)
        return 1.0 - float(self.beyond[at : at + 2].sum()) / self.rows

    def interval(self, level: float) -> tuple[float, float] | None:
        """From where to where residuals are with this probability, in units of the label. An end
        beyond all residuals is the farthest. None before there were enough rows, 2 / (1 - level).

        >>> found = Residuals()
        >>> found.count(np.random.default_rng(0).normal(size=20000))
        >>> [round(end, 2) for end in found.interval(0.9)], round(found.coverage(0.9), 3)
        ([-1.75, 1.51], 0.9)
        """
        if self.rows < least_rows(level):
            return None
        at, seen = 2 * LEVELS.index(level), np.flatnonzero(self.weights)
        low, high = self.limits[0, seen[0]], self.limits[1, seen[-1]]
        lower, upper = self.ends[at : at + 2]
        return float(max(lower, low)), float(min(upper, high))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves: of bins the few that are not 0."""
        seen = np.flatnonzero((self.weights != 0.0) | (np.diff(self.table, prepend=0.0) != 0.0))
        saved = (
            np.array([self.rows]),
            np.stack([self.tails, self.beyond, self.recent]),
            self._places()[seen],
            np.stack([self.weights[seen], self.table[seen]]),
        )
        return dict(zip((SAVED + name for name in NAMES), saved, strict=True))

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]]) -> Residuals | None:
        """Back from ``arrays``; None of a checkpoint without. Raises ValueError for arrays that no
        run has written."""
        if f"{SAVED}of" not in arrays:
            return None
        made = cls()
        of, ends, seen, value = (np.array(arrays[SAVED + name]) for name in NAMES)
        legal = of.shape == (1,) and ends.shape == (3, len(GOALS)) and seen.ndim == 1
        legal = legal and value.shape == (2, len(seen)) and not np.any(np.diff(seen) <= 0)
        legal = legal and not np.any(np.abs(seen) > PLACES)
        finite = all(bool(np.isfinite(array).all()) for array in (of, ends, value))
        if not (legal and finite and np.all(of >= 0)):
            raise ValueError("metrics.residuals holds what no run has written")
        made.rows = int(of[0])
        made.tails, made.beyond, made.recent = ends.astype(np.float64)
        made._widen(seen)
        made._spread(seen, *value)
        move_ends(*made.limits, made.table, made.tails, made.ends)
        return made


def places_of(residuals: Floats) -> NDArray[np.int64]:
    """The place of each one's bin, in the order of residuals; of 0: 0.

    >>> places_of(np.array([-1.5, -0.0, 0.0, 5e-324, 1.5])) - places_of(np.array([1.0]))
    array([-65490, -32737, -32737, -32736,     16])
    """
    bits = np.abs(residuals).view(np.int64)
    return np.where(bits == 0, 0, np.where(residuals < 0.0, -1, 1) * ((bits >> SHIFT) + 1))


def limits_of(places: NDArray[np.int64]) -> Floats:
    """Where bins begin and end, (2, n). That of the largest numbers ends at the largest one."""
    size = np.abs(places)
    near = (np.maximum(size - 1, 0) << SHIFT).view(np.float64)
    far = np.minimum((size << SHIFT).view(np.float64), np.finfo(np.float64).max)
    below = places < 0
    return np.stack([np.where(below, -far, near), np.where(below, -near, far)])


def least_rows(level: float) -> int:
    """Rows of which both ends are quantiles: 2 / (1 - level)."""
    return round(2.0 / (1.0 - level))


def residual_ends(
    residuals: Residuals | None, level: float, *, classifies: bool
) -> tuple[float, float]:
    """From where to where residuals of a regression are with probability ``level``.

    Raises UnsupportedError of classes, UsageError for a level that the run did not follow, or that
    needs more rows.
    """
    if classifies:
        raise UnsupportedError(
            "a prediction interval is of numbers, and this model predicts classes: their "
            "probabilities say how sure it is; for an interval of a probability, --with interval"
        )
    if level not in LEVELS:
        known = ", ".join(f"{one:g}" for one in LEVELS)
        raise UsageError(f"--level {level:g}: a run follows the levels {known}")
    ends = None if residuals is None else residuals.interval(level)
    if ends is None:
        rows, least = 0 if residuals is None else residuals.rows, least_rows(level)
        raise UsageError(
            f"a prediction interval at level {level:g} needs at least {least} rows whose residuals "
            f"were counted when they were first learned, and this model has {rows:,}: train more "
            "rows, or, of a checkpoint of an older version, update it"
        )
    return ends


@callable_part
def move_ends(begin: Any, end: Any, table: Any, tails: Any, ends: Any) -> None:
    """Each end at its tail's quantile, linear within a bin; infinite where the tail is less than
    one row of the n + 1 that a new one makes."""
    total = table[-1]
    for k in range(len(ends)):
        upper = k % 2 == 1
        mass = tails[k] * (total + 1.0)
        if mass < 1.0:
            ends[k] = math.inf if upper else -math.inf
            continue
        mass = min(mass, total)
        goal = total - mass if upper else mass
        low, high = 0, len(table) - 1
        while low < high:
            middle = (low + high) // 2
            if table[middle] < goal or (upper and table[middle] == goal):
                low = middle + 1
            else:
                high = middle
        before = table[low - 1] if low > 0 else 0.0
        weight = table[low] - before
        part = (goal - before) / weight if weight > 0.0 else 0.0
        ends[k] = begin[low] + part * (end[low] - begin[low])
        if upper:
            ends[k] = max(ends[k], ends[k - 1])


def _count_rows(
    residuals: Any, bins: Any, begin: Any, end: Any, weights: Any, table: Any, goals: Any,
    paces: Any, tails: Any, ends: Any, beyond: Any, recent: Any, rows: int,
) -> int:  # fmt: skip
    for i in range(len(residuals)):
        for k in range(len(ends)):
            if (residuals[i] > ends[k]) if k % 2 == 1 else (residuals[i] < ends[k]):
                beyond[k] += 1.0
                recent[k] += 1.0
        weights[bins[i]] += 1.0
        rows += 1
        if rows % REFRESH == 0 or (rows < REFRESH and rows & (rows - 1) == 0):
            if rows % REFRESH == 0:
                for j in range(len(weights)):
                    weights[j] *= REMEMBERED
            total = 0.0
            for j in range(len(weights)):
                total += weights[j]
                table[j] = total
        if rows % EVERY == 0:
            for k in range(len(ends)):
                moved = tails[k] + paces[k] * (EVERY * goals[k] - recent[k])
                tails[k] = min(moved, 1.0 - max(tails[k ^ 1], 0.0))
                recent[k] = 0.0
        if rows % EVERY == 0 or (rows < EVERY and rows & (rows - 1) == 0):
            move_ends(begin, end, table, tails, ends)
    return rows


_count = LazyCompiled(
    _count_rows,
    (
        read("float64"), read("int64"), read("float64"), read("float64"), written("float64"),
        written("float64"), read("float64"), read("float64"), *[written("float64")] * 4, int64,
    ),
    2000,
)  # fmt: skip
