"""OMDRegressor: regression by online mirror descent with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError
from streamomd.core.urls import printable
from streamomd.core.wording import at_least
from streamomd.integrations.sklearn.base_estimator import Estimator
from streamomd.integrations.sklearn.estimator_job import loss_of
from streamomd.integrations.sklearn.fit import is_dask
from streamomd.integrations.sklearn.inputs import Targets, labels_of


class OMDRegressor(RegressorMixin, Estimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear model of a number, learned row by row in their order.

    The parameters are those of ``OMDClassifier`` without ``class_weight``; the default
    ``loss`` is "square". ``coef_`` (coordinates,) and ``intercept_`` (1,) are those of the margin;
    with loss "poisson" the prediction is its exponential.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn n rows, ``max_iter`` times; see ``OMDClassifier.fit``. y: finite numbers (n,)."""
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn n rows once, after those learned before."""
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> Any:
        """The prediction of each row, float64 (n,); for a Dask collection a lazy Series."""
        if is_dask(X):
            return self._lazy(X, "prediction")
        from streamomd.training.predict import mean_of

        return mean_of(self._model.engine, self._margins(X)[:, 0])

    @property
    def coef_(self) -> Floats:
        """Weights of the coordinates, (coordinates,); computed on access."""
        weights: Floats = super().coef_[0]
        return weights

    def _classes_among(self, labels: NDArray[Any]) -> NDArray[Any]:
        return np.empty(0)

    def _numbers(self, y: NDArray[Any]) -> Floats:
        try:
            return np.ascontiguousarray(y, dtype=np.float64)
        except (ValueError, TypeError):
            text = str(next((one for one in y if isinstance(one, str)), y.dtype))
            raise DataError(
                f"y holds {printable(repr(text)[:40])}, and a regressor learns numbers: convert y, "
                "or learn classes with OMDClassifier"
            ) from None

    def _targets(self, y: Any, classes: Any, *, reset: bool) -> Targets:
        numbers = self._numbers(labels_of(self, y))
        least = loss_of(self).least
        if least is not None and numbers.min(initial=least) < least:
            raise DataError(f"y holds {numbers.min()}, and the loss requires {at_least(least)}")
        return Targets(numbers, np.empty(0), np.ones(len(numbers)), numbers[:1])
