"""Convert X to batches: arrays directly, frames through Arrow.

These batches have no labels yet: y is 0, weight 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.utils.validation import validate_data

from streamomd.core.batch import Batch, DenseBatch, Floats, SparseBatch
from streamomd.core.errors import DataError, UsageError
from streamomd.features import Names, Plan, check_schema, encode
from streamomd.features.canonical import canonical
from streamomd.features.numeric import ANYTHING, expected, unfit
from streamomd.shards.memory.frames import batches, without_null_types
from streamomd.shards.memory.tables import arrow_of, names_of

WHERE = "X"
UNIT_BYTES = 4 << 20
KINDS = (np.float64, np.float32)


def validate_input(estimator: Any, X: Any, *, reset: bool) -> Any:
    """X as an Arrow table if it is a frame with named columns; else a matrix or CSR matrix.

    reset: for a new model, which gets these columns; else they must be those of the model.
    Raises UsageError, DataError, and what scikit-learn raises for arrays and names.
    """
    plan = None if reset else estimator._held.model.plan
    if not issparse(X) and names_of(X) and (plan is None or is_framed(plan)):
        table = arrow_of(X, WHERE)
        if not table.num_rows:
            raise DataError("X has no rows, expected 1 or more")
        return validate_data(estimator, table, reset=reset, skip_check_array=True)
    if plan is not None and not takes_arrays(plan):
        raise UsageError(
            f"X is a {type(X).__name__}, and some columns are hashed or lists, which are "
            f"matched by name: pass a frame with columns {', '.join(estimator.feature_names_in_)}"
        )
    if not reset and _is_plain(X, estimator):
        return X
    nulls = estimator.nulls if plan is None else plan.nulls
    finite: Any = True if issparse(X) or nulls in (None, "error") else "allow-nan"
    return validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=KINDS, order="C",
        ensure_all_finite=finite,
    )  # fmt: skip


def _is_plain(X: Any, estimator: Any) -> bool:
    """Whether a CSR matrix is certainly valid; scikit-learn's own check takes three times as
    long."""
    if not (isinstance(X, csr_matrix | csr_array) and X.dtype in KINDS and X.shape[0]):
        return False
    if X.shape[1] != estimator.n_features_in_ or hasattr(estimator, "feature_names_in_"):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.data.sum()))  # then all numbers are finite


def batch_of(plan: Plan, read: Any, names: Names | None = None) -> Batch:
    """The input as a batch for the engine; names: records hashed values."""
    frame = hasattr(read, "column_names")
    return batch_of_frame(plan, read, names) if frame else batch_of_array(plan, read)


def is_framed(plan: Plan) -> bool:
    """Whether rows of this plan need named columns instead of one array."""
    several = len(plan.vectors) + (plan.sparse is not None) > 1
    return bool(plan.numeric or plan.hashed or several)


def takes_arrays(plan: Plan) -> bool:
    """Whether column c of an array is coordinate c, or c + 1 with a bias."""
    return not is_framed(plan) or (plan.dense and not plan.vectors)


def batch_of_frame(plan: Plan, frame: Any, names: Names | None = None) -> Batch:
    """A frame with rows, or a table made of one, encoded as ``streamomd.train`` does its Parquet.

    Raises SchemaError for columns that are not the plan's, BadRowError for the first bad row.
    """
    families = {column.name: column.family for column in plan.types}
    table = without_null_types(arrow_of(frame, WHERE), families)
    check_schema(plan, table.schema, WHERE, labelled=False)
    units = batches(table.select([*plan.features]), 0, UNIT_BYTES)
    return _joined(
        [
            encode(plan, rows, shard=WHERE, row=row, labelled=False, names=names)
            for row, rows in units
        ]
    )


def batch_of_array(plan: Plan, X: Any) -> Batch:
    """A matrix or CSR matrix of finite float32 or float64, equal indices of a row summed.

    Raises DataError for numbers that the plan's slots cannot hold, or out of the rule's range.
    """
    blank = np.zeros(X.shape[0]), np.ones(X.shape[0])
    batch: Batch
    if issparse(X):
        places = X.indptr.astype(np.int64, copy=False), X.indices.astype(np.int32, copy=False)
        batch = SparseBatch(*canonical(*places, X.data), *blank)
    else:
        batch = DenseBatch(_without_missing(plan, np.ascontiguousarray(X)), *blank)
    if batch.values is X.data and plan.legal == ANYTHING:
        return batch  # scikit-learn has checked that they are finite
    values = batch.values.reshape(-1)
    values = values[~np.isnan(values)] if plan.means else values
    for reason, bad in unfit(values, plan.legal):
        if len(bad):
            wanted = f"a number that {plan.dtype} can hold"
            wanted = expected(plan.legal) if reason == "out_of_range" else wanted
            other = 'take dtype="float64"' if plan.dtype == "float32" else "choose another rule"
            found = values[bad[0]].item()
            raise DataError(f"X holds {found!r}, expected {wanted}: scale that column, or {other}")
    return batch


def _without_missing(plan: Plan, X: Floats) -> Floats:
    """NaN is 0 with nulls="zero"; with "mean" it stays, and the engine knows the mean."""
    if plan.means:
        return X.astype(np.float64, copy=False)
    return np.where(np.isnan(X), X.dtype.type(0), X) if plan.nulls == "zero" else X


def labelled(batch: Batch, y: Floats, weight: Floats) -> Batch:
    """The rows with their labels and importance weights."""
    return replace(batch, y=np.ascontiguousarray(y), weight=np.ascontiguousarray(weight))


def _joined(parts: Sequence[Batch]) -> Batch:
    """The rows of batches of one type, concatenated."""
    first = parts[0]
    if len(parts) == 1:
        return first
    values = np.concatenate([part.values for part in parts])
    y, weight = (np.concatenate([getattr(p, name) for p in parts]) for name in ("y", "weight"))
    if isinstance(first, DenseBatch):
        return DenseBatch(values, y, weight)
    rows = [part for part in parts if isinstance(part, SparseBatch)]
    counts = np.concatenate([np.diff(part.indptr) for part in rows])
    indptr = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return SparseBatch(indptr, np.concatenate([p.indices for p in rows]), values, y, weight)
