"""Probabilities of margins that were learned from predictions of rows before they were learned."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import DataError
from streamomd.core.sigmoid import sigmoid

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """The probability of the second of two classes at a margin.

    "sigmoid": 1 / (1 + exp(-(a m + b))), x = (a, b). "isotonic": linear between the points
    (x_i, p_i), which ascend, and constant beyond them.
    """

    kind: str
    x: tuple[float, ...]
    p: tuple[float, ...] = ()

    def __call__(self, margin: float) -> float:
        """The probability at a margin; NaN at NaN.

        >>> Calibration("isotonic", (0.0, 2.0), (0.25, 0.75))(0.5)
        0.375
        """
        if self.kind == "sigmoid":
            a, b = self.x
            return sigmoid(a * margin + b)
        if math.isnan(margin):
            return math.nan
        above = bisect_right(self.x, margin)
        if above == 0 or above == len(self.x):
            return self.p[0 if above == 0 else -1]
        low, high = self.x[above - 1], self.x[above]
        share = (margin - low) / (high - low)
        return self.p[above - 1] + share * (self.p[above] - self.p[above - 1])

    def of(self, margins: Floats) -> Floats:
        """The probabilities of rows with these margins: (rows,), or (rows, 2) of two learners."""
        two = margins.shape[1] == 2
        score = margins[:, 1] - margins[:, 0] if two else margins[:, 0]
        likely = np.array([self(one) for one in score.tolist()], np.float64)
        return np.column_stack([1.0 - likely, likely]) if two else likely

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads back."""
        return {"kind": self.kind, "x": list(self.x), "p": list(self.p)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """A calibration that was saved. Raises DataError for anything else."""
        kind, x, p = saved["kind"], saved["x"], saved["p"]
        numbers = [*x, *p]
        legal = all(type(one) is float and math.isfinite(one) for one in numbers)
        if kind == "sigmoid":
            legal = legal and len(x) == 2 and not p
        else:
            legal = legal and kind == "isotonic" and len(x) == len(p) > 0
            legal = legal and x == sorted(set(x)) and p == sorted(p) and 0.0 <= p[0] <= p[-1] <= 1.0
        if not legal:
            raise DataError(f"the calibration of kind {kind!r} with {len(numbers)} numbers")
        return cls(kind, tuple(x), tuple(p))
