"""What rows show while they are learned: labels in long runs, numbers outside of curves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.core.urls import printable
from streamomd.core.wording import listed
from streamomd.features.plan import Plan, number_at, number_name

Floats = NDArray[np.float64]
LEAST = 100  # rows, and
LEAST_EXPECTED = 20  # changes, below which mixed labels could come in such runs by chance
SHARE = 0.5
ENOUGH = 3  # passes, after which sorted labels cost little
REMEDY = (
    "Shuffle the rows before (streamomd convert SHARDS --shuffle 0 --to DIR), or learn several "
    "passes (--epochs 3)"
)


@dataclass(eq=False)
class LabelRuns:
    """Counts of a process's rows: changes of the label from row to row, and rows of each class."""

    changes: int = 0
    rows: int = 0
    last: float | None = None
    counts: dict[float, int] = field(default_factory=dict)

    def add(self, y: Floats) -> None:
        """The classes of the next rows, in their order."""
        if not len(y):
            return
        self.changes += int(np.count_nonzero(y[1:] != y[:-1]))
        self.changes += int(self.last is not None and self.last != y[0])
        self.rows, self.last = self.rows + len(y), float(y[-1])
        # Two classes are counted without sorting the labels.
        known = [*self.counts] if len(self.counts) == 2 else []
        found = {label: int(np.count_nonzero(y == label)) for label in known}
        if sum(found.values()) < len(y):
            found = {
                float(label): int(n)
                for label, n in zip(*np.unique(y, return_counts=True), strict=True)
            }
        for label, count in found.items():
            self.counts[label] = self.counts.get(label, 0) + count

    @property
    def expected(self) -> float:
        """Changes if the rows were shuffled."""
        shares = [count / self.rows for count in self.counts.values()]
        return self.rows * (1.0 - sum(share * share for share in shares))

    def warning(self, remedy: str = REMEDY) -> str:
        """What to say of them, and ``remedy``; "" of few rows, and of rows whose labels are mixed.

        >>> runs = LabelRuns()
        >>> runs.add(np.repeat([-1.0, 1.0], 1000))
        >>> runs.warning()[:65]
        'labels come in long runs (1 change in 2,000 rows; shuffled rows h'
        """
        if self.rows < LEAST or self.expected < LEAST_EXPECTED:
            return ""
        if self.changes >= SHARE * self.expected:
            return ""
        what = "change" if self.changes == 1 else "changes"
        return (
            f"labels come in long runs ({self.changes:,} {what} in {self.rows:,} rows; shuffled "
            f"rows have about {self.expected:,.0f}): one pass learns the last run best. {remedy}"
        )


LOOKED_AT = 1000
"""Rows of each batch, the first ones."""
SHARE_OUTSIDE = 0.05


@dataclass(eq=False)
class CurveRanges:
    """Counts of a process's rows, and, by curve, of those outside of its range."""

    rows: int = 0
    outside: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, plan: Plan, batch: Batch) -> None:
        """The next rows. A value of 0 may be a missing one, and counts as inside."""
        curves = plan.curves
        x = batch.first_columns(plan.given_numbers, LOOKED_AT)[:, [one.place for one in curves]]
        low, high = np.array([(one.least, one.most) for one in curves]).T
        missing = [plan.nulls_of(number_at(plan, one.place)[0]) != "error" for one in curves]
        found = ((x < low) | (x > high)) & ~((x == 0.0) & np.array(missing))
        before = self.outside if self.rows else np.zeros(len(curves), np.int64)
        self.outside, self.rows = before + found.sum(axis=0), self.rows + len(x)

    def warning(self, plan: Plan) -> str:
        """What to say of them; "" where few are outside."""
        if not self.rows:
            return ""
        share = self.outside / self.rows
        if not (share > SHARE_OUTSIDE).any():
            return ""
        pairs = zip(plan.curves, share.tolist(), strict=True)
        names = [
            f"{number_name(plan, one.place)} ({s:.0%})" for one, s in pairs if s > SHARE_OUTSIDE
        ]
        return (
            "curves: more than 5 % of the values are below or above those of the first rows, which "
            f"decided the knots, in {printable(listed(tuple(names), 8))}; there the effect is "
            "linear. Shuffle the rows before (streamomd convert SHARDS --shuffle 0 --to DIR)"
        )
