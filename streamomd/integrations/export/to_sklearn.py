"""scikit-learn: a fitted linear model with our weights, in memory or written by skops.

Its features are our coordinates without the bias, in order, as ``matrix_of`` computes them from
columns; only if all columns are numeric, without curves and trees, they are the columns. Weights
are dense: 8 bytes for each coordinate and learner, 2 MiB for 2^18.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamomd.core.errors import MissingExtraError, UnsupportedError
from streamomd.core.installed import needs_extra
from streamomd.integrations.export.contract import (
    Format,
    refuse_calibration,
    refuse_more_than_weights,
    weights_of,
)
from streamomd.training.model_data import ModelData


def to_sklearn(model: ModelData) -> Any:
    """A fitted SGDClassifier or SGDRegressor of the model's loss, with its weights.

    Softmax gives a LogisticRegression, pinball a QuantileRegressor. ``decision_function`` or
    ``predict`` returns the model's margins, ``predict_proba`` its probabilities; for two classes
    learned with softmax the margin is the difference of both.
    ``feature_names_in_`` is set if every column is numeric and the model has no curves or trees.

    Raises UnsupportedError (a loss that scikit-learn does not have, a rule whose predictions are
    not linear in the weights), MissingExtraError, TooLargeError (the dense weights), DivergedError
    (a weight that is not finite).
    """
    refuse_more_than_weights(model)
    refuse_calibration(model, "sklearn")
    fitted = _unfitted(model)
    weights, bias = weights_of(model), int(model.plan.bias)
    if model.engine.loss.coupled and len(weights) == 2:
        weights = weights[1:] - weights[:1]
    intercept = weights[:, 0].copy() if bias else np.zeros(len(weights))
    if model.plan.classes:
        fitted.coef_, fitted.intercept_ = weights[:, bias:], intercept
        fitted.classes_ = np.array(model.plan.classes)
    else:
        fitted.coef_ = weights[0, bias:]
        fitted.intercept_ = intercept if _is_sgd(fitted) else float(intercept[0])
    fitted.n_features_in_ = weights.shape[1] - bias
    fitted.n_iter_ = max(1, len(model.metrics.rows))
    if _is_sgd(fitted):
        fitted.t_ = float(model.metrics.total_rows + 1)
    plan = model.plan
    if plan.dense and not plan.vectors and not plan.indicators and not plan.made:
        fitted.feature_names_in_ = np.array(model.plan.numeric, dtype=object)
    return fitted


def matrix_of(model: ModelData, frame: Any) -> Any:
    """The rows of a frame or Arrow table as ``to_sklearn``'s estimator takes them.

    (rows, coordinates without the bias), a matrix where all columns are numbers and vectors, else a
    CSR array. A missing number is what ``Model.fill_values`` says. Raises SchemaError for other
    columns than the model's, BadRowError.
    """
    from scipy.sparse import csr_array

    from streamomd.core.batch import DenseBatch
    from streamomd.sources.memory.encoded_frames import batch_of_frame

    batch = model.engine.filled(model.state, batch_of_frame(model.plan, frame))
    if isinstance(batch, DenseBatch):
        return batch.values
    shape = len(batch), model.plan.size - int(model.plan.bias)
    return csr_array((batch.values, batch.indices, batch.indptr), shape=shape)


def _is_sgd(fitted: Any) -> bool:
    return hasattr(fitted, "power_t")


def _unfitted(model: ModelData) -> Any:
    """The unfitted estimator of this loss."""
    with needs_extra("scikit-learn is not installed", "sklearn"):
        from sklearn import linear_model
    job, classifies = model.spec.model, bool(model.plan.classes)
    losses = _losses(model.engine.loss_params)
    if job.loss == "softmax":
        return linear_model.LogisticRegression(fit_intercept=job.bias)
    if job.loss == "pinball" and not classifies:
        return linear_model.QuantileRegressor(
            quantile=job.loss_params["tau"], alpha=0.0, fit_intercept=job.bias
        )
    if job.loss not in losses:
        known = ", ".join((*losses, "softmax", "pinball (regression)"))
        raise UnsupportedError(
            f"scikit-learn has no linear model with loss {job.loss!r} with {job.loss_params}; it "
            f"has those of {known}. --as onnx and --as parquet support other losses"
        )
    kind = linear_model.SGDClassifier if classifies else linear_model.SGDRegressor
    return kind(**losses[job.loss], fit_intercept=job.bias, alpha=0.0)


def _losses(params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """SGDClassifier's and SGDRegressor's names of our losses."""
    known: dict[str, dict[str, Any]] = {
        "logistic": {"loss": "log_loss"},
        "hinge": {"loss": "hinge"},
        "squared_hinge": {"loss": "squared_hinge"},
        "square": {"loss": "squared_error"},
        "absolute": {"loss": "epsilon_insensitive", "epsilon": 0.0},
        "huber": {"loss": "huber", "epsilon": params.get("threshold")},
        "epsilon_insensitive": {"loss": "epsilon_insensitive", "epsilon": params.get("epsilon")},
    }
    if params.get("gamma") in (0.0, 1.0):
        known["gamma_hinge"] = {"loss": "hinge" if params["gamma"] else "perceptron"}
    return known


def write(model: ModelData, file: Any) -> dict[str, Any]:
    """Writes an estimator in skops' format, which can be loaded without executing code; returns its
    figures, see ``Format.write``."""
    try:
        from skops.io import dumps
    except ImportError:
        raise MissingExtraError(
            "a scikit-learn model is written by skops, which is not installed: "
            "pip install 'streamomd[skops]'; or streamomd.to_sklearn(model) in Python"
        ) from None
    fitted = to_sklearn(model)
    file.write(dumps(fitted))
    kind, shape = type(fitted).__name__, list(fitted.coef_.shape)
    return {"estimator": kind, "coef": shape, "mib": fitted.coef_.nbytes / 2**20}


FORMAT = Format(
    name="sklearn",
    what="a fitted SGDClassifier or SGDRegressor, by skops",
    extra="skops",
    to_read="model = skops.io.load({file!r})",
    write=write,
)
