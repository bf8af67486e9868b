"""Start from weights: a Parquet file of them, or a fitted linear model, as the first state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UsageError
from streamomd.core.urls import shown
from streamomd.training.model import Model
from streamomd.training.warm_start.weights import (
    Floats,
    StartWeights,
    places_of,
    slots_of,
    why_scales,
)

IN_MEMORY = "weights://"
"""What ``model.start`` begins with where the weights were an object: no file can be read again."""
_EXECUTABLE = (".pkl", ".pickle", ".joblib", ".skops")


def split_weights(flags: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Flags with a name in the place of a model that is given as ``start``, and that model."""
    start = flags.get("start")
    if start is None or isinstance(start, str):
        return dict(flags), None
    kind = type(start)
    return {**flags, "start": f"{IN_MEMORY}{kind.__module__}.{kind.__qualname__}"}, start


def start_from_weights(
    model: Model, storage_options: Mapping[str, Any] | None, given: Any = None
) -> None:
    """Set the weights of ``model.start``, a Parquet file, or of ``given``, a fitted linear model.

    Raises UsageError, DataError and UnsupportedError telling what does not fit, and what would.
    """
    # Few jobs start from weights.
    from streamomd.training.warm_start.from_file import read
    from streamomd.training.warm_start.weights import set_start_weights

    url = model.spec.model.start
    if given is not None:
        set_start_weights(model, [weights_in(model, given)])
    else:
        set_start_weights(model, read(model, url, storage_options))


def is_weights(url: str) -> bool:
    """Whether ``model.start`` names weights, and not a checkpoint.

    Raises UsageError for a file that would have to be executed to be read.
    """
    if url.endswith(_EXECUTABLE):
        raise UsageError(
            f"--start {shown(url)}: a pickle may run anything when it is read, and is never read "
            "here. Load it in Python, if you trust it, and pass the object: "
            "streamomd.train(…, start=model); or write its weights to Parquet"
        )
    return url.startswith(IN_MEMORY) or url.endswith(".parquet")


def weights_in(model: Model, fitted: Any) -> StartWeights:
    """``coef_`` and ``intercept_``, by ``feature_names_in_`` where it has names.

    Raises UsageError where it has other features, classes or learners than the job.
    """
    kind = type(fitted).__name__
    if not hasattr(fitted, "coef_"):
        raise UsageError(
            f"start is a {kind}, expected a checkpoint's URL, a Parquet file of weights, or a "
            "fitted linear model (coef_, intercept_)"
        )
    scales = slots_of(model)[1]
    if scales:
        raise UsageError(f"{kind} has weights; expected each{why_scales(model, scales)}")
    bias = int(model.plan.bias)
    weights = _by_class(model, fitted, kind)
    if not bias and weights[:, -1].any():
        raise UsageError(f"{kind} has an intercept, and the job no bias: set model.bias = true")
    places = _features(model, fitted, kind, weights.shape[1] - 1)
    if bias:
        return StartWeights(np.append(places, 0), weights.T, {}, kind)
    return StartWeights(places, weights[:, :-1].T, {}, kind)


def _by_class(model: Model, fitted: Any, kind: str) -> Floats:
    """(learners, features + 1), the intercept last, in the order of the job's classes."""
    coef = fitted.coef_.toarray() if hasattr(fitted.coef_, "toarray") else fitted.coef_
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    intercept = np.broadcast_to(np.ravel(getattr(fitted, "intercept_", 0.0)), len(coef))
    weights, learners = np.column_stack([coef, intercept]), model.engine.layout.learners
    if len(weights) != learners:
        raise UsageError(f"{kind} has weights of {len(coef)} learners, and the job {learners}")
    ours, theirs = list(model.plan.classes), np.asarray(getattr(fitted, "classes_", [])).tolist()
    if len(ours) != len(theirs) or any(one not in theirs for one in ours):
        raise UsageError(f"{kind} predicts {theirs or 'numbers'}, and the job {ours or 'numbers'}")
    if learners > 1:
        return np.asarray(weights[[theirs.index(one) for one in ours]])
    return weights if ours == theirs else -weights


def _features(model: Model, fitted: Any, kind: str, count: int) -> NDArray[np.int64]:
    names = getattr(fitted, "feature_names_in_", None)
    if names is not None:
        return places_of(model, [str(name) for name in names], kind)
    bias, size = int(model.plan.bias), model.plan.size
    if count != size - bias:
        raise UsageError(
            f"{kind} has {count} weights without names, and the job has {size - bias} coordinates "
            "in addition to the bias"
        )
    return np.arange(bias, size)
