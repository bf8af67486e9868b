"""Validate labels and sample weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UsageError


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
    if _is_plain(y):
        return np.asarray(y)
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if labels.dtype.kind in "mMV":
        raise DataError(f"y is of type {labels.dtype}, expected numbers, text or booleans")
    assert_all_finite(labels, input_name="y", estimator_name=type(estimator).__name__)
    return labels


def refuse_no_classes(y: NDArray[Any]) -> None:
    """Raise ValueError for labels that are not classes."""
    if not _is_plain(y):
        check_classification_targets(y)


def _is_plain(y: Any) -> bool:
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
