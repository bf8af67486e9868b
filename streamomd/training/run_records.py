"""What a model records of its run: which update it is in, and which rows it has learned so far.

Stream time is the latest time of the rows that arrived. A row that arrives at stream time W is
learned when stream time has reached W and a delay: before the first row is predicted that arrives
then. Rows are learned in the order in which they arrived, late ones too.

A later pass over the same rows is tried: it is accepted where it predicts much better than the
model before it.

One row in 20 of the pass is not learned, but predicted by the model before the pass and by the one
under way; where the job holds rows out, it is these. Both models have learned such a row equally
often, so the losses differ by what the other rows have taught. Both predict by B alone, which alone
learns in a later pass: the mixture before it may follow rows that change. The pass is accepted
where its loss is less by a tenth: of rows sorted by label it is a fifth of that before. Elsewhere a
second pass of 4,000 rows and more changes the loss of new rows by -3 to +2 %, and these rows do not
show which way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, Floats, Times
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.shards.order import Cursor
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.by_time import NEVER


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


Mask = NDArray[np.bool_]
EVERY, WINDOW = 20, 64
"""One window in ``EVERY``, of ``WINDOW`` rows, is not learned."""
LEAST = 4000
"""Rows of an epoch from which the next one is tried: of fewer, less than 200 rows would decide, and
a second pass helps most small tables."""
BETTER = 0.9
"""Times the loss before the pass, below which the pass is accepted."""


@dataclass(eq=False)
class TriedPass:
    """A pass that is tried, and the model before it.

    commit: of the model before, which is retained; -1 without a checkpoint. rows: read in the pass.
    before, now: importance, loss, and mistakes or squared errors of the rows not learned, as
    predicted by the model before and by the one under way. state, metrics, cursor: of the model
    before; None until they are read from its commit.
    """

    commit: int
    state: State | None = None
    metrics: Metrics | None = None
    cursor: Cursor = field(default_factory=Cursor)
    rows: int = 0
    before: Floats = field(default_factory=lambda: np.zeros(3))
    now: Floats = field(default_factory=lambda: np.zeros(3))

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        sums = {"before": self.before.tolist(), "now": self.now.tolist()}
        return {"commit": self.commit, "rows": self.rows, **sums}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Back from ``to_json``, without the model before."""
        commit, rows = saved["commit"], saved["rows"]
        if type(commit) is not int or type(rows) is not int or rows < 0:
            raise ValueError(f"its pass is of commit {commit}, {rows} rows")
        before, now = (np.array(saved[name], np.float64) for name in ("before", "now"))
        if before.shape != (3,) or now.shape != (3,):
            raise ValueError(f"its pass has sums {before}, {now}")
        return cls(commit, rows=rows, before=before, now=now)

    def fill(self, state: State, metrics: Metrics, cursor: Cursor) -> None:
        """Take the model before the pass."""
        self.state, self.metrics, self.cursor = state, metrics, cursor

    def draw(self, rows: int) -> Mask:
        """Which of the next rows of the pass are not learned, by their numbers in it. Windows of
        rows are predicted in one call each."""
        numbers = np.arange(self.rows, self.rows + rows)
        self.rows += rows
        found: Mask = numbers // WINDOW % EVERY == EVERY // 2
        return found

    def count(self, engine: Engine, state: State, rows: Batch) -> None:
        """Count rows that are not learned. state: of the model under way."""
        assert self.state is not None
        engine.predict_second(self.state, self.before, rows)
        engine.predict_second(state, self.now, rows)

    @property
    def losses(self) -> tuple[float, float]:
        """Mean loss of the rows not learned, by the model before and by the one under way."""
        return float(self.before[1] / self.before[0]), float(self.now[1] / self.now[0])

    @property
    def is_accepted(self) -> bool:
        """Whether the pass is accepted; always where no row was counted."""
        if not self.before[0] > 0.0:
            return True
        before, now = self.losses
        return now < BETTER * before

    def reason(self, epoch: int) -> str:
        """Why the pass is undone. epoch: its number, from 1."""
        before, now = self.losses
        return (
            f"stopped early: epoch {epoch} brings little, so the model is that of epoch "
            f"{epoch - 1}: rows that it did not learn have loss {now:.6f}, and {before:.6f} before"
        )
