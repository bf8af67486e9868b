"""Weights of a fitted linear model: scikit-learn's, or whatever has ``coef_`` as it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UsageError
from streamomd.training.model import Model
from streamomd.training.warm_start.weights import (
    Floats,
    StartWeights,
    places_of,
    slots_of,
    why_scales,
)


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
