"""Whether rows leave the range of those that decided the knots of curves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.core.urls import printable
from streamomd.core.wording import listed
from streamomd.features.plan import Plan, number_at, number_name

LOOKED_AT = 1000
"""Rows of each batch, the first ones."""
SHARE = 0.05


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
        if not (share > SHARE).any():
            return ""
        pairs = zip(plan.curves, share.tolist(), strict=True)
        names = [f"{number_name(plan, one.place)} ({s:.0%})" for one, s in pairs if s > SHARE]
        return (
            "curves: more than 5 % of the values are below or above those of the first rows, which "
            f"decided the knots, in {printable(listed(tuple(names), 8))}; there the effect is "
            "linear. Shuffle the rows before (streamomd convert SHARDS --shuffle 0 --to DIR)"
        )
