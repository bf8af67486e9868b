"""What the rows of a Dask collection count for by their class: ``class_weight``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from streamomd.core.errors import DataError

Floats = NDArray[np.float64]


def weighted_by_class(class_weight: Any, y: Any, sample_weight: Any, labels: NDArray[Any]) -> Any:
    """The weights of the rows, a collection in the partitions of the labels.

    As in scikit-learn, "balanced" counts the labels of all rows: the collection is computed.
    labels: all there are, sorted.
    """
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    counts = label_counts(y, labels) if balanced else np.ones(len(labels), np.int64)
    weights = weights_of_labels(class_weight, labels, counts)
    if hasattr(y, "map"):  # a Series; a label that is missing is reported as a bad row
        table = dict(zip(labels.tolist(), weights.tolist(), strict=True))
        found = y.map(table, meta=(None, "float64")).astype("float64").fillna(1.0)
    else:
        found = y.map_blocks(_weights_of_block, labels, weights, dtype=np.float64)
    return found if sample_weight is None else found * sample_weight


def label_counts(y: Any, labels: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows of a Dask Series or array have each label."""
    if hasattr(y, "value_counts"):
        return np.asarray(y.value_counts().compute().reindex(labels), np.int64)
    counts: Any = np.unique(y, return_counts=True)[1]  # which NumPy leaves to Dask
    return np.asarray(counts.compute(), np.int64)


def weights_of_labels(class_weight: Any, labels: NDArray[Any], counts: NDArray[np.int64]) -> Floats:
    """What a row of each label counts for. Raises as scikit-learn does, and DataError below 0."""
    found: Floats = compute_class_weight(class_weight, classes=labels, y=labels)
    if isinstance(class_weight, str):  # as compute_class_weight, without the labels of all rows
        found = counts.sum() / (len(labels) * counts.astype(np.float64))
    if not (found >= 0.0).all():
        raise DataError(f"class_weight holds {found.min()}, expected 0 or more")
    return found


def _weights_of_block(block: Any, labels: NDArray[Any], weights: Floats) -> Floats:
    places = np.minimum(np.searchsorted(labels, block), len(labels) - 1)
    return np.where(labels[places] == block, weights[places], 1.0)
