"""Shards whose rows have times, and the literal loops that predict and learn their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from running import rows, write

import streamomd
from streamomd.core.batch import Batch
from streamomd.engine.state import State
from streamomd.sources.find import find
from streamomd.training.row_stream import rows_of

START = 1_767_225_600
"""2026-01-01, in seconds; a Thursday."""
DAY = 86_400
COUNT, DAYS = 60, 6
FLAGS: dict[str, Any] = {
    "label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"], "bits": 8, "rule": "nag",
    "checkpoint": "none", "quiet": True,
}  # fmt: skip


def seconds_of(day: int, *, late: bool = False) -> NDArray[np.int64]:
    """Times of the rows of a day, with ties; late: in no order, some of the day before."""
    draw = np.random.default_rng(day)
    found = np.sort(draw.integers(0, DAY // 900, COUNT) * 900) + START + day * DAY
    if late:
        found = draw.permutation(found) - np.where(draw.random(COUNT) < 0.2, DAY, 0)
    return found


def timed_shards(folder: Path, *, late: bool = False, days: int = DAYS) -> Path:
    """A shard of 60 rows a day, in groups of 25, with a column ``ts`` of timestamps."""
    for day in range(days):
        table = rows(COUNT, first=day)
        ts = pa.array(seconds_of(day, late=late).astype("datetime64[s]"))
        write(folder / f"{day}.parquet", table.append_column("ts", ts), row_group_size=25)
    return folder


def train(shards: Path | list[str], **more: Any) -> streamomd.Model:
    """A run on shards with times."""
    given = [str(shards)] if isinstance(shards, Path) else shards
    return streamomd.train(given, **{**FLAGS, "time": "ts", **more})


class Literal:
    """The rows of some shards one by one, and a learner that has learned nothing."""

    def __init__(self, shards: Path) -> None:
        self.model = train(shards)
        found = find((str(shards),))
        pieces = rows_of(self.model.plan, found, range(len(found)))
        batches = [piece.value.batch for piece in pieces]
        self.rows: list[Batch] = [
            batch.rows(row, row + 1) for batch in batches for row in range(len(batch))
        ]
        self.engine = self.model.engine
        self.state = State.start(self.engine.layout)
        self.engine.begin(self.state)

    @property
    def times(self) -> list[int]:
        """The time of each row."""
        return [int(row.time[0]) for row in self.rows if row.time is not None]

    def predict(self, row: int, sums: Any) -> None:
        """Predict a row and add to sums."""
        self.engine.predict(self.state, sums, self.rows[row])

    def learn(self, row: int) -> None:
        """Learn a row."""
        self.engine.learn(self.state, np.zeros(3), self.rows[row])

    def slots(self) -> dict[str, Any]:
        """All slots, in bytes."""
        return slots(self.model, self.state)


def slots(model: streamomd.Model, state: State | None = None) -> dict[str, Any]:
    """All slots of a model, in bytes."""
    known = state or model.state
    names = (*model.spec.rule.own_slots, *model.spec.rule.shared_slots)
    return {slot.name: known.slot(slot.name).tobytes() for slot in names} | {
        "totals": known.totals.tobytes()
    }
