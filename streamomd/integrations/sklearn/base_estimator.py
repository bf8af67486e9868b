"""The base class of the classifier and the regressor."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamomd.core.batch import Batch, Floats
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.finite import is_finite
from streamomd.integrations.sklearn.estimator_job import parameters_of, refuse_changed
from streamomd.integrations.sklearn.fit import (
    distinct,
    is_dask,
    learn_epochs,
    learn_more_rows,
    report_label_runs,
    start_model,
    train_collection,
)
from streamomd.integrations.sklearn.inputs import batch_of, is_framed, labelled, validate_input
from streamomd.integrations.sklearn.pickling import PickledModel
from streamomd.integrations.sklearn.targets import Targets, weights_of

if TYPE_CHECKING:
    from streamomd.training.model import Model


@functools.cache
def _names(kind: type[Estimator]) -> list[str]:
    names: list[str] = kind._get_param_names()  # from the signature on each call
    return names


def _parameters(estimator: Estimator) -> list[Any]:
    """Parameters passed to ``__init__`` or set later."""
    return [getattr(estimator, name) for name in _names(type(estimator))]


class Estimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Base of both estimators; see ``OMDClassifier`` for the parameters."""

    _classifies = False
    _held: PickledModel

    def __init__(
        self,
        rule: str | None = None,
        loss: str | None = None,
        *,
        eta0: float | None = None,
        params: dict[str, Any] | None = None,
        loss_params: dict[str, Any] | None = None,
        fit_intercept: bool = True,
        max_iter: int = 1,
        shuffle: bool = False,
        random_state: Any = None,
        dtype: str = "float64",
        bits: int = 18,
        warm_start: bool = False,
    ) -> None:
        self.rule = rule
        self.loss = loss
        self.eta0 = eta0
        self.params = params
        self.loss_params = loss_params
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.dtype = dtype
        self.bits = bits
        self.warm_start = warm_start

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """An estimator with a copy of the model; its predictions are those of the model.

        If columns have names, X is a frame with ``feature_names_in_``, in that order.
        Raises UsageError for a model of the other kind.
        """
        plan = model.plan
        if bool(plan.classes) != cls._classifies:
            other = "OMDRegressor" if cls._classifies else "OMDClassifier"
            raise UsageError(f"this model is for {other}: {cls.__name__} has no such predictions")
        made = cls(**parameters_of(model.spec))
        made.n_features_in_ = plan.size - int(plan.bias)
        if is_framed(plan):
            made.feature_names_in_ = np.array(plan.features, dtype=object)
            made.n_features_in_ = len(plan.features)
        made.n_iter_ = max(1, len(model.metrics.rows))
        made._set_model(PickledModel(model).copy(), np.array(plan.classes))
        return made

    def to_model(self) -> Model:
        """A copy of the model: its progressive loss, ``inspect``, ``predict`` of shards."""
        check_is_fitted(self)
        return self._held.copy().model

    @property
    def t_(self) -> int:
        """Rows learned so far, in all epochs."""
        return self._model.state.clock

    @property
    def coef_(self) -> Floats:
        """Weights, (1 or classes, coordinates); in regression (coordinates,). Computed on access.

        Coordinates are columns; for frames with text, those that ``to_model().inspect`` names.
        """
        return self._weights()[:, int(self._model.plan.bias) :]

    @property
    def intercept_(self) -> Floats:
        """The bias of each row of weights, (1 or classes,); 0 without one."""
        weights = self._weights()
        return weights[:, 0] if self._model.plan.bias else np.zeros(len(weights))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_held")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _model(self) -> Model:
        check_is_fitted(self)
        return self._held.model

    def _weights(self) -> Floats:
        """Weights (learners, coordinates), the bias first if there is one."""
        model = self._model
        return np.ascontiguousarray(model.engine.weights(model.state, 0, model.plan.size).T)

    @abstractmethod
    def _targets(self, y: Any, classes: Any, *, reset: bool) -> Targets:
        """Labels for the loss: numbers, classes, and class weights."""

    @abstractmethod
    def _classes_among(self, labels: NDArray[Any]) -> NDArray[Any]:
        """The classes of these labels; none in regression."""

    def _set_model(self, held: PickledModel, classes: NDArray[Any]) -> None:
        self._held = held

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Learn all rows ``max_iter`` times, from scratch or (warm_start) from the current
        state."""
        if is_dask(X):
            return self._fit_dask(X, y, sample_weight)
        reset = not (self.warm_start and hasattr(self, "_held"))
        held, classes, rows = self._prepare(X, y, sample_weight, None, reset=reset)
        orders = check_random_state(self.random_state) if self.shuffle else None
        learn_epochs(held.model, rows, self.max_iter, orders)
        if orders is None:
            report_label_runs(held.model, self.max_iter)
        self.n_iter_ = self.max_iter
        self._set_model(held, classes)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Learn rows once, after the previous ones."""
        if is_dask(X):
            raise UnsupportedError(
                "partial_fit takes rows in memory: call it with each computed partition "
                "in turn, or call fit, which reads a whole Dask collection"
            )
        reset = not hasattr(self, "_held")
        held, known, rows = self._prepare(X, y, sample_weight, classes, reset=reset)
        learn_more_rows(held.model, rows)
        self.n_iter_ = 1
        self._set_model(held, known)
        return self

    def _fit_dask(self, X: Any, y: Any, sample_weight: Any) -> Self:
        classes = self._classes_among(distinct(y) if self._classifies else np.empty(0))
        model = train_collection(self, X, y, sample_weight, classes)
        head = X._meta if hasattr(X, "columns") else np.empty((0, X.shape[1]))
        validate_data(self, head, reset=True, skip_check_array=True)
        self.n_iter_ = self.max_iter
        self._set_model(PickledModel(model), classes)
        return self

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, *, reset: bool
    ) -> tuple[PickledModel, NDArray[Any], Batch]:
        """The model to continue, its classes, and its rows."""
        if not reset and self._held.parameters != (parameters := repr(_parameters(self))):
            refuse_changed(self, self._held.model.spec)
            self._held.parameters = parameters
        read = validate_input(self, X, reset=reset)
        targets = self._targets(y, classes, reset=reset)
        check_consistent_length(read, targets.y)
        weight = weights_of(sample_weight, targets.y) * targets.weight
        known = targets.classes
        held = (
            PickledModel(start_model(self, read, y, known, targets.kind)) if reset else self._held
        )
        batch = batch_of(held.model.plan, read, held.model.names)
        return held, known, labelled(batch, targets.y, weight)

    def _margins(self, X: Any) -> Floats:
        """(rows, learners)."""
        model = self._model
        rows = batch_of(model.plan, validate_input(self, X, reset=False))
        margins = model.engine.predict(model.state, np.zeros(3), rows)
        if not is_finite(margins):  # a finite model can also overflow if X has extreme values
            model.refuse_non_finite(weights=True)
        return margins

    def _lazy(self, X: Any, column: str) -> Any:
        """A column of a Dask collection's predictions."""
        from streamomd.distributed.collections.predict_collection import predict_collection

        return predict_collection(self._model, X)[column]
