"""What the alerts of a run are computed from, and the alerts so far: part of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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
