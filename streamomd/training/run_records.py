"""What a model records of its run: which update it is in, and which rows it has learned so far.

Stream time is the latest time of the rows that arrived. A row that arrives at stream time W is
learned when stream time has reached W and a delay: before the first row is predicted that arrives
then. Rows are learned in the order in which they arrived, late ones too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from streamomd.core.batch import Times
from streamomd.shards.order import Cursor
from streamomd.training.metrics.by_time import NEVER

if TYPE_CHECKING:
    from streamomd.training.metrics import Metrics


class UpdateRecord(NamedTuple):
    """An update of a run.

    number: 0 of the first run. first: the ledger's number of the first shard of the list that is
    learned; 0: a pass over all shards. rows, sums: of the metrics before the update.
    """

    number: int = 0
    first: int = 0
    rows: int = 0
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def of_new(self) -> bool:
        """Whether the list is that of an update; else it is the first run's, or all shards."""
        return self.first > 0

    def next(self, first: int, metrics: Metrics) -> UpdateRecord:
        """The update after this one, of the shards from number ``first`` on."""
        importance, loss, wrong = metrics.total.tolist()
        return UpdateRecord(self.number + 1, first, metrics.total_rows, (importance, loss, wrong))

    def figures(self, metrics: Metrics) -> dict[str, Any]:
        """rows, loss, error and rmse of the rows since this record was made."""
        rows = metrics.total_rows - self.rows
        return {"rows": rows, **metrics.figures(metrics.total - self.sums)}

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        return {
            "number": self.number,
            "first": self.first,
            "rows": self.rows,
            # JSON has no word for a sum that is not finite; it is finite in every commit's parts.
            "sums": [value if math.isfinite(value) else 0.0 for value in self.sums],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self:
        """Back from ``to_json``; None: the first run."""
        if saved is None:
            return cls()
        importance, loss, wrong = (float(value) for value in saved["sums"])
        number, first, rows = numbers = [saved["number"], saved["first"], saved["rows"]]
        if not all(type(value) is int and value >= 0 for value in numbers):
            raise ValueError(f"its update is {numbers}")
        return cls(number, first, rows, (importance, loss, wrong))


class Schedule(NamedTuple):
    """Which rows are learned before another one is predicted.

    lag: nanoseconds between the arrival of a row and its label. length, origin: of periods, at
    whose start all due rows are learned, and then none until the next; length 1: at any time.
    """

    lag: int
    length: int = 1
    origin: int = 0

    def due(self, stream: Times) -> Times:
        """The times from which rows are learned. stream: the stream time when each arrived."""
        return stream + self.lag

    def now(self, stream: Times) -> Times:
        """The times up to which others are learned before each row is predicted."""
        return stream - (stream - self.origin) % self.length


@dataclass(frozen=True)
class Teaching:
    """The second cursor of a run: the next row to learn.

    latest: the stream time when the row before it arrived, ``NEVER`` before the first. rows: how
    many were learned.
    """

    cursor: Cursor = field(default_factory=Cursor)
    latest: int = NEVER
    rows: int = 0

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        return {"cursor": self.cursor.to_json(), "latest": self.latest, "rows": self.rows}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self:
        """Back from ``to_json``; None: nothing was learned yet."""
        if saved is None:
            return cls()
        latest, rows = saved["latest"], saved["rows"]
        if type(latest) is not int or type(rows) is not int or rows < 0:
            raise ValueError(f"its learning cursor is {latest}, {rows}")
        return cls(Cursor.from_json(saved["cursor"]), latest, rows)


def stream_times(time: Times, before: int) -> Times:
    """The stream time when each row arrives. before: the stream time of the rows before.

    >>> stream_times(np.array([3, 9, 5, 9]), 4)
    array([4, 9, 9, 9])
    """
    first = np.array([before], np.int64)
    found: Times = np.maximum.accumulate(np.concatenate([first, time]))[1:]
    return found
