"""Parquet: a row for each coordinate that training changed; its name, weights and slots.

Columns: ``coordinate`` (int64), ``feature`` (its name; null if unknown), ``weight``
(float64) and ``slot.NAME`` for each of the rule's slots, as stored. With several learners one
column each, ``weight[CLASS]`` and ``slot.NAME[CLASS]``; slots shared by learners stay one column.
A missing coordinate has weight 0 and initial slots. Of a run with data.standardize there are no
slots: theirs are of standardised columns, the weights of raw ones.

``train --start FILE`` reads it back: ``streamomd.training.warm_start``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.finite import finite_or_none
from streamomd.core.urls import without_secrets
from streamomd.features import name_of
from streamomd.integrations.export.contract import Format, WeightChunk, pieces
from streamomd.shards.output_files import write_weights
from streamomd.training.model_data import ModelData
from streamomd.training.warm_start.weights import column_of, columns_of, weight_slot

READ_ALONE = "pyarrow.parquet.read_table({file!r})"


def write(model: ModelData, file: Any) -> dict[str, Any]:
    """Writes a model's weights to a Parquet file; returns its figures, see ``Format.write``."""
    rows = write_weights(file, _columns(model), _metadata(model))
    figures = {"coordinates": model.plan.size, "rows": rows}
    if weight_slot(model.engine.layout.rule) is None:
        return {**figures, "to_read": READ_ALONE}  # --start with this rule would refuse the file
    return figures


def _columns(model: ModelData) -> Iterator[dict[str, Any]]:
    starts = {slot.name: slot.start for slot, _ in model.engine.layout.columns()}
    for piece in pieces(model):
        at = np.flatnonzero(_moved(piece, starts))
        coordinates = at + piece.low
        feature = [_name(model, int(one)) for one in coordinates]
        weights = zip(columns_of(model), piece.weights[at].T, strict=True)
        slots = {
            column_of(model, f"slot.{name}", k if slot.shape[1] > 1 else None): slot[at, k]
            for name, slot in piece.slots.items()
            if not model.engine.layout.referred
            for k in range(slot.shape[1])
        }
        yield {"coordinate": coordinates, "feature": feature, **dict(weights), **slots}


def _moved(piece: WeightChunk, starts: dict[str, float]) -> NDArray[np.bool_]:
    """Which coordinates have a weight, or a slot that differs from its start (NaN does)."""
    moved: NDArray[np.bool_] = (piece.weights != 0.0).any(axis=1)
    for name, slot in piece.slots.items():
        moved |= (slot != starts[name]).any(axis=1)
    return moved


def _name(model: ModelData, coordinate: int) -> str | None:
    plan = model.plan
    if plan.hashed_offset <= coordinate < plan.sparse_offset and not model.names.at(coordinate):
        return None
    return name_of(plan, model.names, coordinate)


def _metadata(model: ModelData) -> dict[str, Any]:
    job = model.spec.model
    return {
        "rule": job.rule,
        "params": job.params,
        "loss": job.loss,
        "loss_params": job.loss_params,
        "classes": list(model.plan.classes),
        "bias": job.bias,
        "dtype": job.dtype,
        "rows": model.metrics.total_rows,
        "clock": model.state.clock,
        "totals": [[finite_or_none(total) for total in row] for row in model.state.totals.tolist()],
        "total_names": [slot.name for slot in model.engine.layout.rule.total_slots],
        "checkpoint": {"url": without_secrets(model.url), "sequence": model.sequence},
        "plan": model.plan.to_json(brief=True),
        **({"means": model.state.means.tolist()} if model.plan.means else {}),
    }


FORMAT = Format(
    name="parquet",
    what="one row per coordinate: name, weights, slots; also for --start",
    extra="",
    to_read="streamomd train SHARDS --label y --start {file}   (or any reader of Parquet)",
    write=write,
)
