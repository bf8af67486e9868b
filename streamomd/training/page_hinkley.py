"""The Page-Hinkley test for a rise of the mean of a sequence (Page 1954)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamomd.config.alert_table import Alert

Floats = NDArray[np.float64]


@dataclass(eq=False)
class PageHinkley:
    """After n values x with mean m: U <- alpha U + x - m - delta, and the least U so far.

    An alert where U - least > threshold, after ``min_instances`` values; then it starts over.
    A mean of b values counts for all of them: U <- alpha^b U + b (x - m - delta).
    """

    n: float = 0.0
    mean: float = 0.0
    up: float = 0.0
    least: float = 0.0
    alerted: float = 0.0

    def add(
        self, values: Floats, job: Alert, counts: Floats | None = None
    ) -> list[tuple[int, float]]:
        """Take values in their order; the places of those that alert, with U - least.

        counts: of how many rows each is the mean; None: of one.
        """
        n, mean, up, least = self.n, self.mean, self.up, self.least
        alerted, found = self.alerted > 0.0, []
        alpha, delta, enough = job.alpha, job.delta, job.min_instances
        many = itertools.repeat(1.0) if counts is None else counts.tolist()
        for at, (x, b) in enumerate(zip(values.tolist(), many, strict=False)):
            if alerted:
                n = mean = up = 0.0
                alerted = False
            begins = n == 0.0
            n += b
            mean += (x - mean) * b / n
            fade = alpha if b == 1.0 else alpha**b
            up = fade * up + b * (x - mean) - b * delta
            if begins or up < least:
                least = up
            if up - least > job.threshold and n >= enough:
                found.append((at, up - least))
                alerted = True
        self.n, self.mean, self.up, self.least = n, mean, up, least
        self.alerted = float(alerted)
        return found

    def array(self) -> Floats:
        """What a checkpoint saves."""
        return np.array([self.n, self.mean, self.up, self.least, self.alerted])

    @classmethod
    def from_array(cls, saved: Floats) -> Self:
        """Back from ``array``."""
        return cls(*saved.tolist())
