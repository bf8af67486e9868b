"""Rows in memory, of any kind: as batches and mappings, learned and predicted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, ColumnValues, DenseBatch, Floats, SparseBatch
from streamomd.core.errors import DataError, UsageError
from streamomd.core.finite import is_finite
from streamomd.features import Names, Plan, decode_labels
from streamomd.features.labels import labels_in_memory
from streamomd.sources.memory.encoded_frames import batch_of_memory, row_dicts, values_of_columns
from streamomd.sources.memory.row_streams import batches_of, is_row_stream
from streamomd.training.drift_alerts import plan_to_read
from streamomd.training.model_data import ModelData
from streamomd.training.scoring.link import chosen, means
from streamomd.training.training_step import learn_foreign_rows, learn_more, watched_alerts

if TYPE_CHECKING:
    from streamomd.training.scoring.row_encoder import RowEncoder

ROWS = "rows"


def batch_of_rows(plan: Plan, rows: Any, names: Names | None = None) -> Batch:
    """Rows without labels as a batch: y is 0, weight 1. names: records hashed values.

    rows: a frame, an Arrow table, an array, a CSR matrix, a mapping or a list of mappings. Raises
    SchemaError for columns that are missing or of another type, BadRowError for bad values,
    DataError for arrays of another shape, UsageError for anything else.
    """
    if not is_mappings(rows):
        return batch_of_memory(plan, rows, ROWS, names)
    # Late, here and below: a run on shards needs none of the modules that score rows one by one.
    from streamomd.training.prepare_scorer import description_of
    from streamomd.training.scoring.row_encoder import RowEncoder, mappings_of

    given = mappings_of(rows)
    noted: dict[str, dict[int, set[bytes | None]]] = {}

    def note(column: str, at: int, value: bytes | None) -> None:
        noted.setdefault(column, {}).setdefault(at, set()).add(value)

    encoder = RowEncoder(description_of(plan), note if names is not None else None)
    indptr, indices, values = _arrays_of(encoder, given)
    if names is not None:
        _note_names(names, noted)
    blank = np.zeros(len(given)), np.ones(len(given))
    if plan.dense:
        dense = np.zeros((len(given), plan.size - int(plan.bias)))
        dense[np.repeat(np.arange(len(given)), np.diff(indptr)), indices] = values
        return DenseBatch(dense, *blank)
    return SparseBatch(indptr, indices, values, *blank)


def _arrays_of(encoder: RowEncoder, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Any]:
    """Rows as CSR arrays without the bias: indptr, indices from 0, values in float64."""
    indptr, indices, values = [0], list[int](), list[float]()
    for number, row in enumerate(rows):
        found = encoder.entries(row, f"{ROWS}, row {number}")
        indices += found.coordinates
        values += found.values
        indptr.append(len(indices))
    bias = int(encoder.description.bias)
    shifted = np.array(indices, np.int64) - bias
    return np.array(indptr, np.int64), shifted.astype(np.int32), np.array(values, np.float64)


def is_mappings(rows: Any) -> bool:
    """Whether rows are one mapping or a list of them."""
    if isinstance(rows, Mapping):
        return True
    some = rows[:1] if isinstance(rows, list | tuple) else ()
    return isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in some)


def _is_stream(rows: Any) -> bool:
    """Whether rows come batch by batch, and are no frame."""
    return not hasattr(rows, "shape") and is_row_stream(rows)


def is_shards(given: Any) -> bool:
    """Whether what is to be predicted are shards: a name or path, or several."""
    if isinstance(given, str | os.PathLike):
        return True
    several = isinstance(given, list | tuple)
    return bool(several and given) and all(isinstance(one, str | os.PathLike) for one in given)


def dicts_of_rows(plan: Plan, rows: Any) -> Sequence[Mapping[str, Any]]:
    """Rows of any kind as mappings."""
    from streamomd.training.scoring.row_encoder import mappings_of

    if _is_stream(rows):
        return [row for one in batches_of(rows, ROWS) for row in row_dicts(plan, one, ROWS)]
    return mappings_of(rows) if is_mappings(rows) else row_dicts(plan, rows, ROWS)


def labelled_batch(plan: Plan, rows: Any, y: Any, weight: Any, names: Names) -> Batch:
    """Rows with labels and importance weights, all checked before any is learned.

    Raises BadRowError naming the row of a label that is no class, or of a weight below 0.
    """
    batch = batch_of_rows(plan, rows, names)
    targets, weights = labels_in_memory(plan, y, weight, ROWS)
    for name, found in (("y", targets), ("sample_weight", weights)):
        if found is not None and len(found) != len(batch):
            raise DataError(f"{ROWS} has {len(batch)} rows and {name} has {len(found)} values")
    ones: Floats = np.ones(len(batch))
    columns = batch.columns or (_columns_of(plan, rows) if plan.column_values else None)
    weight = ones if weights is None else weights
    return replace(batch, y=targets, weight=weight, columns=columns)


def _columns_of(plan: Plan, rows: Any) -> ColumnValues | None:
    """The values of the columns of rows that are no frame, for alerts."""
    given: dict[str, Any] = {}
    if is_mappings(rows):
        dicts = dicts_of_rows(plan, rows)
        given = {name: [row.get(name) for row in dicts] for name in plan.features}
    elif plan.numeric:
        array = rows.toarray() if hasattr(rows, "tocsr") else np.asarray(rows)
        given = dict(zip(plan.numeric, array.T, strict=True))
    return values_of_columns(plan, given, ROWS) if given else None


def learn_in_memory(model: ModelData, rows: Any, y: Any, weight: Any) -> Any:
    """Learn rows after those learned before: see ``Model.learn``."""
    if isinstance(rows, DenseBatch | SparseBatch):
        return learn_foreign_rows(model, rows)
    if y is None:
        kind = type(rows).__name__
        raise UsageError(
            f"Model.learn({kind}) needs the labels: learn(rows, y), y with a value a row"
        )
    plan = plan_to_read(watched_alerts(model, is_new=True), model.plan)
    learn_more(model, labelled_batch(plan, rows, y, weight, model.names))
    return model


def margins_in_memory(model: ModelData, rows: Any) -> Floats:
    """Margins of rows of any kind, (n, learners). Of a stream one batch at a time is in memory."""
    if _is_stream(rows):
        none = np.empty((0, model.state.layout.learners))
        found = [margins_in_memory(model, one) for one in batches_of(rows, ROWS)]
        return np.concatenate([none, *found])
    margins = model.engine.predict(model.state, np.zeros(3), batch_of_rows(model.plan, rows))
    if not is_finite(margins):
        # A finite model can also overflow, of extreme values.
        model.refuse_non_finite(weights=True)
    return margins


def labels_at(model: ModelData, margins: Floats) -> NDArray[Any]:
    """Labels, or in regression values, of margins."""
    if not model.plan.classes:
        return means(model.engine.loss.mean, margins[:, 0])
    bad = np.flatnonzero(np.isnan(margins).any(axis=1))
    if len(bad):
        raise DataError(
            f"rows, row {bad[0]}: its margin is NaN, so it has no class: its values are too "
            "large for these weights"
        )
    labels = decode_labels(model.plan, np.arange(len(model.plan.classes))).to_pylist()
    found: NDArray[Any] = np.array(labels)[chosen(margins)]
    return found


def _note_names(names: Names, noted: Mapping[str, Mapping[int, set[bytes | None]]]) -> None:
    for column, by_place in noted.items():
        pairs = [(at, value) for at, values in by_place.items() for value in values]
        names.note(column, [at for at, _ in pairs], [value for _, value in pairs])
