"""Progressive validation: each row is predicted before it is learned; sums of what came of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Metrics:
    """Rows and sums of each epoch.

    sums: float64 (epochs, 3): importance, loss times importance, and mistakes (squared errors in
    regression) times importance. Rows are added one by one, so how they are cut changes no bit.
    """

    classifies: bool
    rows: list[int] = field(default_factory=list)
    sums: Floats = field(default_factory=lambda: np.zeros((0, 3)))

    def copy(self) -> Metrics:
        """The same figures, apart from these."""
        return Metrics(self.classifies, [*self.rows], self.sums.copy())

    @property
    def current(self) -> Floats:
        """The sums of the epoch under way, to be added to in place."""
        sums: Floats = self.sums[-1]
        return sums

    def count(self, rows: int) -> None:
        """Count rows of the epoch under way."""
        self.rows[-1] += rows

    def begin(self, epoch: int) -> None:
        """Begin an epoch, or go on with it."""
        if len(self.rows) <= epoch:
            self.rows.append(0)
            self.sums = np.vstack([self.sums, np.zeros(3)])

    @property
    def total_rows(self) -> int:
        """Rows of all epochs."""
        return sum(self.rows)

    @property
    def total(self) -> Floats:
        """Sums of all epochs, added in their order."""
        total = np.zeros(3)
        for sums in self.sums:
            total += sums
        return total

    def result(self) -> dict[str, Any]:
        """rows, loss, error and rmse, of all and by epoch; null where there is nothing to say."""
        epochs = [
            {"rows": rows, **self.figures(sums)}
            for rows, sums in zip(self.rows, self.sums, strict=True)
        ]
        return {"rows": self.total_rows, **self.figures(self.total), "epochs": epochs}

    def figures(self, sums: Floats) -> dict[str, float | None]:
        """loss, error, rmse of some sums."""
        importance, loss, wrong = (float(number) for number in sums)
        mean = finite(wrong / importance) if importance > 0.0 else None
        return {
            "loss": finite(loss / importance) if importance > 0.0 else None,
            "error": mean if self.classifies else None,
            "rmse": math.sqrt(mean) if mean is not None and not self.classifies else None,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps."""
        return {"metrics.rows": np.array(self.rows, dtype=np.int64), "metrics.sums": self.sums}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], *, classifies: bool) -> Metrics:
        """Back from ``arrays``."""
        rows = [int(row) for row in arrays["metrics.rows"]]
        return cls(classifies, rows, np.array(arrays["metrics.sums"], dtype=np.float64))

    def digest(self, digest: hashlib._Hash) -> None:
        """Feed all counters to a hash."""
        for name, array in self.arrays().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).data)


def finite(number: float) -> float | None:
    """The number, or None for NaN and infinities: JSON has no word for them."""
    return number if math.isfinite(number) else None
