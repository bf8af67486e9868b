"""Evaluation by slices: figures of the rows that share a value of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamomd.core.batch import Batch, taken
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.shards.distinct_values import Value, check_sliced, places_of, weights_of_values
from streamomd.shards.shard import ShardSet
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.ranking import COARSE
from streamomd.training.progress import note

MOST = 1000
OTHER = "(other)"
FIGURES = ("auc", "auc_error", "mae", "r2")
RANKED_CLASSES = 2
"""With more classes there are no histograms for each slice: they would take 65 KB a class and
slice."""


@dataclass(eq=False)
class Slices:
    """The slices of one column: its heaviest values, at most 1,000, and all others together."""

    column: str
    places: Mapping[Value, int]
    metrics: list[Metrics]

    @classmethod
    def of(cls, column: str, weights: Mapping[Value, float], *, classifies: bool) -> Slices:
        """No rows yet. weights: of every value there is."""
        heaviest = sorted(weights, key=lambda value: (-weights[value], str(value)))[:MOST]
        metrics = [Metrics(classifies) for _ in (*heaviest, OTHER)]
        for one in metrics:
            one.begin(0)
        return cls(column, {value: at for at, value in enumerate(heaviest)}, metrics)

    def add(self, engine: Engine, state: State, batch: Batch, columns: Any) -> None:
        """Predict a batch, slice by slice. ``columns``: columns of its rows.

        A slice's rows stay in their order, so that how batches are cut changes no bit.
        """
        column = columns.column(columns.schema.get_field_index(self.column))
        places = places_of(column, self.places, len(self.places))
        order = np.argsort(places, kind="stable")
        rows, edges = (
            taken(batch, order),
            np.searchsorted(places[order], range(len(self.metrics) + 1)),
        )
        for at in np.unique(places).tolist():
            metrics, some = self.metrics[at], rows.rows(int(edges[at]), int(edges[at + 1]))
            margins = engine.predict(state, metrics.current, some)
            metrics.count(len(some))
            if engine.classes <= RANKED_CLASSES:
                metrics.examine(
                    engine.loss, engine.classes, margins, some.y, some.weight, digits=COARSE
                )

    def result(self, engine: Engine, classes: Sequence[Any]) -> list[dict[str, Any]]:
        """Each slice with rows: its value, rows, weight, loss and further metrics."""
        slices = []
        for value, metrics in zip((*self.places, OTHER), self.metrics, strict=True):
            if metrics.total_rows:
                more = metrics.detailed(engine.loss, classes)
                slices.append(
                    {
                        "value": value,
                        "rows": metrics.total_rows,
                        "weight": float(metrics.total[0]),
                        **metrics.figures(metrics.total),
                        **{key: more[key] for key in FIGURES},
                    }
                )
        return slices


def slices_of(
    shards: ShardSet, columns: Sequence[str], weight: str, *, classifies: bool
) -> list[Slices]:
    """The slices of each column, from a reading of these columns alone.

    Raises SchemaError for a column that is not there or holds lists, DataError for one of more
    than a million values.
    """
    for shard in shards:
        check_sliced(shard, columns)
    if not columns:
        return []
    note(f"counting the values of {', '.join(columns)}")
    found = weights_of_values(shards, columns, weight)
    return [
        Slices.of(column, weights, classifies=classifies)
        for column, weights in zip(columns, found, strict=True)
    ]
