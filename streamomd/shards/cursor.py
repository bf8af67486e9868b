"""The position of a run in its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, order=True)
class Cursor:
    """The next row to consume: of ``epoch``, of the shard at ``place`` in that epoch's order.

    Epoch −1 is the pass of a rule that observes all rows before it learns from the first.

    Rows are absolute and counted when they are consumed, so batch boundaries and
    prefetching have no effect.
    """

    epoch: int = 0
    place: int = 0
    row: int = 0

    def to_json(self) -> dict[str, int]:
        """For a manifest."""
        return {"epoch": self.epoch, "place": self.place, "row": self.row}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Back from ``to_json``."""
        return cls(int(saved["epoch"]), int(saved["place"]), int(saved["row"]))
