"""A later pass over the same rows is tried: it is accepted where it predicts much better than the
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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.shards.order import Cursor
from streamomd.training.metrics import Metrics

Floats = NDArray[np.float64]
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
