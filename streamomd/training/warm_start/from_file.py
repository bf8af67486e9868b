"""Weights of a Parquet file: one that ``export`` wrote, or any with the columns below.

``coordinate`` or ``feature`` (a name), and ``weight``; with several learners ``weight[CLASS]``.
Rows may come in any order; what is not there has weight 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import shown
from streamomd.shards.reader import Piece, ShardBatch, read_batches
from streamomd.shards.weight_files import read_metadata
from streamomd.sources.find import find
from streamomd.sources.table_options import TableOptions
from streamomd.training.model import Model
from streamomd.training.progress import copying
from streamomd.training.warm_start.weights import (
    StartWeights,
    columns_of,
    places_of,
    slots_of,
    why_scales,
)

_PLACES = (
    "bias", "numeric", "vectors", "hashed", "sparse", "nulls", "nulls_by", "bits", "hash_seed",
    "text", "crosses", "dates", "classes",
)  # fmt: skip
"""What of a plan decides which feature a coordinate is, and whose weight it has."""


def read(
    model: Model, url: str, storage_options: Mapping[str, Any] | None
) -> Iterator[StartWeights]:
    """The file's weights, piece by piece. Raises UsageError for other columns than expected."""
    shards = find(url, storage_options=storage_options, tables=TableOptions(as_files=True))
    first, where = next(iter(shards)), shown(url)
    names = first.schema.names
    by = next((name for name in ("coordinate", "feature") if name in names), "")
    scales = [f"slot.{name}" for name in slots_of(model)[1]]
    wanted = [*columns_of(model), *scales]
    missing = [name for name in wanted if name not in names]
    others = [name for name in names if name.split("[")[0] == "weight" and name not in wanted]
    if not by or missing or others:
        which = f"coordinate or feature, and {', '.join(wanted)}"
        raise UsageError(
            f"{where} has the columns {', '.join(names)}; expected {which}: one weight for each "
            f"learner of the job{why_scales(model, scales)}"
        )
    if by == "coordinate":
        metadata = read_metadata(first.schema)
        _refuse_other_plan(model, metadata, where)
        _take_means(model, metadata, where)
    report = copying()
    batches = read_batches(shards, places=range(len(shards)), columns=[by, *wanted])
    for piece in batches.map(partial(_given, model, by, scales, where)):
        yield piece.value
        report(piece.row + piece.rows, 0, 0)


def _given(
    model: Model, by: str, scales: list[str], where: str, rows: ShardBatch
) -> Piece[StartWeights]:
    table, row = rows.batch, rows.row
    if by == "feature":
        places = places_of(model, table.column(by).to_pylist(), f"{where}, row {row} and after")
    else:
        places = table.column(by).to_numpy(zero_copy_only=False)
        if places.dtype.kind not in "iu":
            raise DataError(
                f"{where}: column coordinate holds {places.dtype}, expected whole numbers, no nulls"
            )
    weights = [_numbers(table, name, where) for name in columns_of(model)]
    slots = {name.removeprefix("slot."): _numbers(table, name, where) for name in scales}
    given = StartWeights(np.asarray(places, np.int64), np.stack(weights, axis=1), slots, where)
    return Piece(rows.position, row, table.num_rows, given, rows.nbytes)


def _numbers(table: Any, name: str, where: str) -> Any:
    found = table.column(name).to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "fiu":
        raise DataError(f"{where}: column {name} holds {found.dtype}, expected numbers")
    return found.astype(np.float64)


def _refuse_other_plan(model: Model, metadata: Mapping[str, Any], where: str) -> None:
    """An exported file describes its coordinates; those of another file are trusted."""
    theirs = metadata.get("plan", {})
    if not theirs or not isinstance(theirs, dict):
        return
    ours = json.loads(json.dumps(model.plan.to_json()))  # as the file's went: lists, no tuples
    differ = [key for key in _PLACES if theirs.get(key) != ours.get(key)]
    if differ:
        lines = "; ".join(
            f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differ
        )
        raise UsageError(
            f"{where}: its coordinates are not this job's ({lines}). To match features by their "
            "names, leave out its column coordinate"
        )


def _take_means(model: Model, metadata: Mapping[str, Any], where: str) -> None:
    """Continue the means of missing numbers, if the file has them. Raises DataError."""
    if not model.plan.means or "means" not in metadata:
        return
    try:
        means = np.array(metadata["means"], np.float64)
        legal = means.shape == model.state.means.shape and bool(np.isfinite(means).all())
    except (TypeError, ValueError):
        legal = False
    if not legal or (means[1] < 0.0).any():
        raise DataError(
            f"{where}: its means of missing numbers are no sums and counts of "
            f"{len(model.plan.means)} columns: export the model again"
        )
    model.state.means[...] = means
