"""Prediction intervals of numbers: adaptive conformal inference on residuals.

Each row's residual is label - prediction, of before the row was first learned. An interval at a
level ends at two quantiles of recent residuals. Their tails, the probabilities beyond either end,
follow what was found (Gibbs & Candès 2021, "Adaptive conformal inference under distribution
shift", eq. 2): tail <- tail + pace (goal - whether the row is beyond), goal = (1 - level) / 2. So
coverage comes to the level whatever the rows are, a drift of residuals included.

The paper moves the tail, and computes the quantile, at each row; here tails and ends move after
every 32 rows, and the distribution whose quantiles they are is that of all rows up to a row number
of the list 1, 2, 4, … 1,024, 2,048, 3,072, …. There older rows lose a quarter of their weight. So
numbers depend on the rows and their order alone. Each row counts once, whatever its importance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.data_class import dataclass
from streamomd.core.jit import LazyCompiled, callable_part, int64, read, written
from streamomd.training.metrics.bins import COARSE, binned, bins, edges

Floats = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
GOALS = np.repeat([(1.0 - level) / 2.0 for level in LEVELS], 2)
"""Of the lower and the upper end of each level."""
ENDS = np.tile([-np.inf, np.inf], len(LEVELS))
PACES, EVERY = np.minimum(0.005, 0.1 * GOALS), 32
"""The paper's pace, or less: a row beyond an end moves the tail by a tenth of its goal at most."""
REFRESH, REMEMBERED = 1024, 3.0 / 4.0
"""Rows between two distributions, and the weight of older rows after each: half after 2,500. Where
residuals of made streams grow, shrink or jump, coverage is nearer to the level than with 7/8."""
SAVED, NAMES = "metrics.residuals.", ("of", "ends", "at", "value")


@dataclass(eq=False)
class Residuals:
    """Of the rows of a regression, before they were first learned.

    weights: (bins,), the weight of rows by residual / unit, a power of two that the first residual
    gives. table: their sums up to each bin when they were last computed. Of each end of LEVELS,
    the lower one first, (ends,): tails; ends, over unit; beyond: rows beyond it in all; recent:
    since the last move. rows: how many.
    """

    weights: Floats = field(default_factory=lambda: np.zeros(bins(COARSE)))
    table: Floats = field(default_factory=lambda: np.zeros(bins(COARSE)))
    tails: Floats = field(default_factory=GOALS.copy)
    ends: Floats = field(default_factory=ENDS.copy)
    beyond: Floats = field(default_factory=lambda: np.zeros(len(GOALS)))
    recent: Floats = field(default_factory=lambda: np.zeros(len(GOALS)))
    rows: int = 0
    unit: float = 0.0

    def count(self, residuals: Floats) -> None:
        """Count rows; residuals that are not finite do not count."""
        found = residuals[np.isfinite(residuals)]
        if self.unit == 0.0 and np.any(found != 0.0):
            self.unit = math.ldexp(1.0, math.frexp(found[np.flatnonzero(found)[0]])[1])
        scaled = found / self.unit if self.unit else found
        with np.errstate(over="ignore"):
            places = binned(scaled, COARSE)
        self.rows = _count(
            len(found), scaled, places, edges(COARSE), self.weights, self.table, GOALS, PACES,
            self.tails, self.ends, self.beyond, self.recent, self.rows,
        )  # fmt: skip

    def add(self, other: Residuals) -> None:
        """Add rows of another part of the stream, as if they came after these. Tails are means, by
        the weight of the rows that either remembers."""
        if not other.rows:
            return
        if self.unit == 0.0:
            self.unit = other.unit
        seen = np.flatnonzero(other.weights)
        self.weights *= REMEMBERED ** (other.rows / REFRESH)
        ours, theirs = float(self.weights.sum()), float(other.weights.sum())
        middle = (edges(COARSE)[seen] + edges(COARSE)[seen + 1]) / 2.0
        by = other.unit / self.unit if self.unit else 1.0
        np.add.at(self.weights, binned(middle * by, COARSE), other.weights[seen])
        self.tails = (ours * self.tails + theirs * other.tails) / (ours + theirs)
        self.beyond, self.recent = self.beyond + other.beyond, np.zeros(len(GOALS))
        self.rows += other.rows
        np.cumsum(self.weights, out=self.table)
        move_ends(edges(COARSE), self.table, self.tails, self.ends)

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
        low, high = edges(COARSE)[seen[0]], edges(COARSE)[seen[-1] + 1]
        lower, upper = self.ends[at : at + 2]
        return self.unit * float(max(lower, low)), self.unit * float(min(upper, high))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves: of bins the few that are not 0."""
        seen = np.flatnonzero((self.weights != 0.0) | (np.diff(self.table, prepend=0.0) != 0.0))
        saved = (
            np.array([float(self.rows), self.unit]),
            np.stack([self.tails, self.beyond, self.recent]),
            seen,
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
        legal = of.shape == (2,) and ends.shape == (3, len(GOALS)) and seen.ndim == 1
        legal = legal and value.shape == (2, len(seen)) and not np.any(np.diff(seen) <= 0)
        legal = legal and (not len(seen) or 0 <= seen[0] <= seen[-1] < len(made.table))
        finite = all(bool(np.isfinite(array).all()) for array in (of, ends, value))
        if not (legal and finite and np.all(of >= 0.0)):
            raise ValueError("metrics.residuals holds what no run has written")
        made.rows, made.unit = int(of[0]), float(of[1])
        made.tails, made.beyond, made.recent = ends.astype(np.float64)
        made.weights[seen] = value[0]
        steps = np.zeros(len(made.table))  # the table is constant between bins with weight
        places = np.searchsorted(seen, np.arange(len(steps)), side="right") - 1
        made.table = np.where(places >= 0, value[1][places], steps) if len(seen) else steps
        move_ends(edges(COARSE), made.table, made.tails, made.ends)
        return made


def least_rows(level: float) -> int:
    """Rows of which both ends are quantiles: 2 / (1 - level)."""
    return round(2.0 / (1.0 - level))


@callable_part
def move_ends(limits: Any, table: Any, tails: Any, ends: Any) -> None:
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
        ends[k] = limits[low] + part * (limits[low + 1] - limits[low])


def _count_rows(
    residuals: Any, places: Any, limits: Any, weights: Any, table: Any, goals: Any, paces: Any,
    tails: Any, ends: Any, beyond: Any, recent: Any, rows: int,
) -> int:  # fmt: skip
    for i in range(len(residuals)):
        for k in range(len(ends)):
            if (residuals[i] > ends[k]) if k % 2 == 1 else (residuals[i] < ends[k]):
                beyond[k] += 1.0
                recent[k] += 1.0
        weights[places[i]] += 1.0
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
                tails[k] += paces[k] * (EVERY * goals[k] - recent[k])
                recent[k] = 0.0
        if rows % EVERY == 0 or (rows < EVERY and rows & (rows - 1) == 0):
            move_ends(limits, table, tails, ends)
    return rows


_count = LazyCompiled(
    _count_rows,
    (
        read("float64"), read("int64"), read("float64"), written("float64"), written("float64"),
        read("float64"), read("float64"), *[written("float64")] * 4, int64,
    ),
    2000,
)  # fmt: skip
