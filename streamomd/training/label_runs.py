"""Whether labels come in long runs, as in rows that are sorted by the label."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
