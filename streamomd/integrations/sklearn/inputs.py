"""Convert X to batches; validate labels and sample weights; score small frames without Arrow.

These batches have no labels yet: y is 0, weight 1.

A frame of numbers becomes an array, and a prepared scorer reads the values of a few rows with
categories. All other frames, and those with a bad value, are converted, which names the errors.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from streamomd.core.batch import Batch, Floats
from streamomd.core.errors import DataError, StreamomdError, UsageError
from streamomd.core.finite import is_finite
from streamomd.features import Names, Plan
from streamomd.sources.memory.encoded_frames import (
    KINDS,
    batch_of_array,
    batch_of_frame,
    is_framed,
    takes_arrays,
)
from streamomd.sources.memory.frames import arrow_of, names_of
from streamomd.sources.memory.row_streams import is_row_stream, table_of_batches

if TYPE_CHECKING:
    from streamomd.training.model import Model
    from streamomd.training.scoring.scorer import Scorer


FEW = 128
"""Rows from which Arrow's columns are faster than values of Python."""
FIRST, COORDINATES = 8, 1 << 13
"""A scorer is made after ``FIRST`` small frames of a state, and one more per ``COORDINATES``.

One of 2^18 coordinates takes as long as 30 small frames take through Arrow and is of no use once
the model learns: predictions between calls of ``partial_fit`` must not wait for scorers."""
EXACT = 2.0**53
"""A whole number that an array has from here on may be another one, rounded."""
TEXTS = ("str", "object", "category")


class PreparedScores:
    """What predictions of one state have prepared. A state that learns needs a new object."""

    def __init__(self) -> None:
        self._types: list[Any] | None = None
        self._asked = 0
        self._scorer: Scorer | None = None

    def margins(self, model: Model, X: Any, columns: Any) -> Floats | None:
        """(rows, learners), or None for frames to convert. columns: their names, an array."""
        if not _is_pandas(X) or not len(X) or X.columns.tolist() != columns.tolist():
            return None
        if self._types is None or X.dtypes.tolist() != self._types:
            return None
        try:
            if kind := _array_type(model.plan, self._types, columns):
                values = X.to_numpy(kind)
                if not is_finite(values) or np.abs(values).max(initial=0.0) >= EXACT:
                    return None
                rows = batch_of_array(model.plan, values)
                predicted: Floats = model.engine.predict(model.state, np.zeros(3), rows)
            elif len(X) < FEW and (scorer := self._ready_scorer(model)):
                _, scores, _ = scorer.many(_mappings(X, self._types))
                predicted = np.reshape(scores, (len(X), -1))
            else:
                return None
        except (StreamomdError, TypeError, ValueError):
            return None  # the conversion finds it again, and names it
        return predicted if is_finite(predicted) else None

    def note(self, X: Any) -> None:
        """A frame whose margins were found through Arrow: its columns have the right types."""
        if _is_pandas(X):
            types = X.dtypes.tolist()
            self._types = types if all(map(_is_python_s, types)) else None

    def _ready_scorer(self, model: Model) -> Scorer | None:
        """The scorer, once it has been asked for often enough."""
        self._asked += 1
        if self._scorer is None and self._asked == FIRST + model.plan.size // COORDINATES:
            self._scorer = model.scorer()
        return self._scorer


def _is_pandas(X: Any) -> bool:
    pandas = sys.modules.get("pandas")  # a pandas frame implies that pandas is imported
    return pandas is not None and type(X) is pandas.DataFrame


def _is_python_s(kind: Any) -> bool:
    """Whether values of this type are Python's own in an array of objects."""
    numeric = isinstance(kind, np.dtype) and kind.kind in "biuf"
    return numeric or str(kind) in TEXTS


def _array_type(plan: Plan, types: list[Any], columns: Any) -> Any:
    """The type of the array whose column c is numeric column c of the plan; None without one."""
    if plan.size != len(columns) + int(plan.bias) or plan.numeric != tuple(columns):
        return None
    names = {*map(str, types)}
    if names <= {"int64", "float64"}:
        return np.float64
    return np.float32 if names == {"float32"} else None


def _mappings(X: Any, types: list[Any]) -> list[dict[str, Any]]:
    """The rows as mappings. Raises TypeError for a value of a column of texts that is none."""
    names = X.columns.tolist()
    rows = X.to_numpy(object).tolist()
    for at in (at for at, kind in enumerate(types) if str(kind) in TEXTS):
        for row in rows:
            row[at] = _text(row[at])
    return [dict(zip(names, row, strict=True)) for row in rows]


def _text(value: Any) -> str | None:
    if type(value) is str:
        return value
    if value is None or (type(value) is float and value != value):  # noqa: PLR0124
        return None
    raise TypeError(value)


WHERE = "X"


def validate_input(estimator: Any, X: Any, *, reset: bool) -> Any:
    """X as an Arrow table if it is a frame with named columns; else a matrix or CSR matrix.

    reset: for a new model, which gets these columns; else they must be those of the model.
    Raises UsageError, DataError, and what scikit-learn raises for arrays and names.
    """
    plan = None if reset else estimator._held.model.plan
    if not hasattr(X, "shape") and is_row_stream(X):  # scikit-learn's checks need all rows
        X = table_of_batches(X, WHERE)
    if not issparse(X) and (names := names_of(X)) and (plan is None or is_framed(plan)):
        table = arrow_of(X, WHERE)
        if not table.num_rows:
            raise DataError("X has no rows, expected 1 or more")
        # The fields of structs are no columns of X.
        stored = table.select(names) if table.num_columns > len(names) else table
        validate_data(estimator, stored, reset=reset, skip_check_array=True)
        return table
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
    """Whether a matrix is certainly valid; scikit-learn's own check takes three times as long."""
    if not isinstance(X, csr_matrix | csr_array | np.ndarray) or X.dtype not in KINDS:
        return False
    if X.shape[1:] != (estimator.n_features_in_,) or not X.shape[0]:
        return False
    if hasattr(estimator, "feature_names_in_"):
        return False
    if isinstance(X, np.ndarray) and type(X) is not np.ndarray:
        return False
    values: Any = X if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))  # then all numbers are finite


def batch_of(plan: Plan, read: Any, names: Names | None = None) -> Batch:
    """The input as a batch for the engine; names: records hashed values."""
    if hasattr(read, "column_names"):
        return batch_of_frame(plan, read, names)
    is_sparse = plan.sparse is not None and isinstance(read, np.ndarray)
    return batch_of_array(plan, csr_array(read) if is_sparse else read)


def labelled(batch: Batch, y: Floats, weight: Floats) -> Batch:
    """The rows with their labels and importance weights."""
    return replace(batch, y=np.ascontiguousarray(y), weight=np.ascontiguousarray(weight))


class Targets(NamedTuple):
    """Labels for the engine: y (n,), classes (none in regression), weights (n,).

    kind: some original labels, for their type.
    """

    y: Floats
    classes: NDArray[Any]
    weight: Floats
    kind: NDArray[Any]


def labels_of(estimator: Any, y: Any) -> NDArray[Any]:
    """y (n,), unchanged: one column, finite."""
    if y is None:
        name = type(estimator).__name__
        raise UsageError(f"{name} requires y to be passed, but the target y is None")
    if _is_plain_target(y):
        return np.asarray(y)
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if labels.dtype.kind in "mMV":
        raise DataError(f"y is of type {labels.dtype}, expected numbers, text or booleans")
    assert_all_finite(labels, input_name="y", estimator_name=type(estimator).__name__)
    return labels


def refuse_no_classes(y: NDArray[Any]) -> None:
    """Raise ValueError for labels that are not classes."""
    if not _is_plain_target(y):
        check_classification_targets(y)


def _is_plain_target(y: Any) -> bool:
    """Whether labels are certainly valid; scikit-learn's own check takes 40 µs."""
    return type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biu"


def weights_of(sample_weight: Any, y: Floats) -> Floats:
    """A weight for each row, 1 by default."""
    if sample_weight is None:
        return np.ones(len(y))
    weights: Floats = _check_sample_weight(sample_weight, y, dtype=np.float64)
    if (weights < 0.0).any():
        raise DataError(f"sample_weight holds {weights.min()}, expected 0 or more")
    return weights


def places_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Each label's index in the classes. Raises DataError for an unknown label."""
    places: NDArray[np.int64]
    if len(classes) == 2:
        places = (labels == classes[1]).astype(np.int64)
    else:
        order = np.argsort(classes)
        near = np.searchsorted(classes, labels, sorter=order)
        places = order[np.minimum(near, len(classes) - 1)]
    strange = np.flatnonzero(classes[places] != labels)
    if len(strange):
        value = labels[strange].tolist()[0]
        raise DataError(
            f"y holds {value!r} in row {strange[0]}, expected one of the classes "
            f"{classes.tolist()}: pass all of them to the first partial_fit: classes=…"
        )
    return places
