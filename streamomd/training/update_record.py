"""Which update a run is in: its shards are a list of their own in the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

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
