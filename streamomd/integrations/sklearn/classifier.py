"""OMDClassifier: classification by online mirror descent with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UsageError
from streamomd.core.wording import named_keywords
from streamomd.integrations.sklearn.base_estimator import Estimator
from streamomd.integrations.sklearn.estimator_job import loss_of
from streamomd.integrations.sklearn.fit import is_dask
from streamomd.integrations.sklearn.inputs import Targets, labels_of, places_of, refuse_no_classes
from streamomd.integrations.sklearn.pickling import PickledModel


def _has_probabilities(estimator: Any) -> bool:
    return loss_of(estimator).probabilistic


class OMDClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear model of two or more classes, learned row by row.

    With ``shuffle=False, early_stopping=False``, ``fit`` is bit-identical to ``streamomd train`` on
    Parquet files of the same rows with ``max_iter`` epochs.

    rule: its name, of ``streamomd list rules``; a class per rule, such as ``NAGClassifier``, has
    the rule's parameters by name; None: "auto", or "nag" without an intercept. loss: a name, of
    ``streamomd list losses`` or scikit-learn's; None: the rule's own, or with rule "auto" and three
    classes or more softmax. eta0: the rule's eta; params: its other parameters, by name; both need
    a rule. loss_params: the loss's. None: their defaults. shapes: "columns" for curves of numbers
    as well, at knots that the first 8,192 rows decide, of ``partial_fit`` those of the first call;
    "all": also the margin of boosted trees, grown on the first 32,768 rows (needs the extra trees).
    fit_intercept: whether there is a bias.

    max_iter: the most epochs; None: 20, and 1 without early_stopping. early_stopping: the share
    validation_fraction of the rows is held out until n_iter_no_change epochs did not lower its
    least loss by the share tol; then all rows are learned for the best number of epochs (under 100
    rows: for 3). shuffle: a new order for each epoch, drawn from random_state.

    nulls: what missing numbers become, "error", "zero", "indicator", "mean", or a dict by column.
    dates, categorical, text, ignore: lists of a frame's columns with these roles; dates=None: all
    that are dates by their type, but in Dask collections. class_weight: as in scikit-learn; it
    multiplies the rows' weights. dtype: of the state, "float64" or "float32". bits: text is hashed
    to 2^bits coordinates. warm_start: ``fit`` continues.

    X: arrays (n, columns), as sparse matrices where most columns are rare one-hot ones and the
    others are about centred; scipy.sparse matrices; or frames (pandas, polars, Arrow, anything with
    Arrow's C stream), whose text and category columns are hashed as in shards and listed in
    ``feature_names_in_``. ``fit`` and ``predict`` also accept Dask collections.

    Three classes and more are learned jointly by default; one against all with another loss than
    "softmax", or another rule without a loss.

    >>> from streamomd import OMDClassifier
    >>> from streamomd.training.demo import stream
    >>> rows = stream(True)
    >>> model = OMDClassifier(random_state=0).fit(rows.values, rows.y)
    >>> round(model.score(rows.values, rows.y), 3), model.t_
    (0.938, 1000)
    """

    _classifies = True

    # scikit-learn reads the parameters from each class's own signature.
    @named_keywords
    def __init__(
        self,
        rule: str | None = None,
        loss: str | None = None,
        *,
        eta0: float | None = None,
        params: dict[str, Any] | None = None,
        loss_params: dict[str, Any] | None = None,
        shapes: str = "none",
        fit_intercept: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-2,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        shuffle: bool = True,
        random_state: Any = None,
        class_weight: Any = None,
        dtype: str = "float64",
        bits: int = 18,
        nulls: Any = None,
        dates: Any = None,
        categorical: Any = None,
        text: Any = None,
        ignore: Any = None,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            rule=rule,
            loss=loss,
            eta0=eta0,
            params=params,
            loss_params=loss_params,
            shapes=shapes,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            tol=tol,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            shuffle=shuffle,
            random_state=random_state,
            dtype=dtype,
            bits=bits,
            nulls=nulls,
            dates=dates,
            categorical=categorical,
            text=text,
            ignore=ignore,
            warm_start=warm_start,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn n rows ``max_iter`` times, from scratch unless ``warm_start``.

        y: labels (n,), text, numbers or booleans. sample_weight: importance (n,), 0 or more.
        Raises ValueError: UsageError for parameters, DataError for rows and labels, or what
        scikit-learn raises of arrays.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn n rows once, after those learned before.

        classes: all classes; required in the first call. Raises as ``fit`` does.
        """
        if self.class_weight == "balanced":
            raise UsageError(
                'class_weight="balanced" needs all labels in one batch: call fit, or pass the '
                "weights as a dict"
            )
        if classes is None and not hasattr(self, "_held"):
            raise UsageError("the first partial_fit needs all classes: classes=[…]")
        return self._partial_fit(X, y, sample_weight, classes)

    def decision_function(self, X: Any) -> Any:
        """Margins: float64 (n,) with two classes, above 0 for the second; else (n, classes).

        For a Dask collection a lazy Series.
        """
        if is_dask(X):
            return self._lazy(X, "score")
        margins = self._margins(X)
        if margins.shape[1] == 2:
            return margins[:, 1] - margins[:, 0]
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Any:
        """The class of each row, (n,); for a Dask collection a lazy Series.

        Raises DataError if a margin is NaN: the weights have overflowed.
        """
        if is_dask(X):
            return self._lazy(X, "prediction")
        from streamomd.training.scoring.link import chosen

        places = chosen(_sound(self._margins(X)))
        return self.classes_[places]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]  # as above
    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, classes); with losses "logistic" and "softmax" only.

        One-against-all: each class's share of their sum. For a Dask collection a lazy Series, of
        the second class or of lists.
        """
        if is_dask(X):
            return self._lazy(X, "probability")
        from streamomd.training.predict import probabilities

        model = self._model
        margins = _sound(self._margins(X))
        found = probabilities(model.engine, model.state, margins, model.calibration)
        return np.column_stack([1.0 - found, found]) if found.ndim == 1 else found

    def _weights(self) -> Floats:
        weights = super()._weights()
        return weights[1:] - weights[:1] if len(weights) == 2 else weights

    def _set_model(self, held: PickledModel, classes: NDArray[Any]) -> None:
        super()._set_model(held, classes)
        self.classes_ = classes

    def _classes_among(self, labels: NDArray[Any]) -> NDArray[Any]:
        if len(labels) < 2:
            raise DataError(f"y holds {len(labels)} class, expected two or more classes")
        return labels

    def _targets(self, y: Any, classes: Any, *, reset: bool) -> Targets:
        labels = labels_of(self, y)
        refuse_no_classes(labels)
        known = self._known(labels, classes, reset=reset)
        place = places_of(labels, known)
        numbers = np.where(place == 1, 1.0, -1.0) if len(known) == 2 else place.astype(np.float64)
        if self.class_weight is None:
            return Targets(numbers, known, np.ones(len(labels)), known)
        present = np.unique(labels)
        weights = np.ones(len(known))
        weights[places_of(present, known)] = compute_class_weight(
            self.class_weight, classes=present, y=labels
        )
        if not (weights >= 0.0).all():
            raise DataError(f"class_weight holds {weights.min()}, expected 0 or more")
        return Targets(numbers, known, weights[place], known)

    def _known(self, labels: NDArray[Any], classes: Any, *, reset: bool) -> NDArray[Any]:
        """All classes: those learned before, those passed, or those of the labels."""
        if not reset and np.array_equal(classes, self.classes_):
            return self.classes_
        named = None if classes is None else np.unique(column_or_1d(classes))
        if not reset:
            if named is not None and not np.array_equal(named, np.unique(self.classes_)):
                raise UsageError(
                    f"classes={named.tolist()}, and the model has {self.classes_.tolist()}: pass "
                    "them once, in the first call"
                )
            return self.classes_
        return self._classes_among(np.unique(labels) if named is None else named)


def _sound(margins: Floats) -> Floats:
    bad = np.flatnonzero(np.isnan(margins).any(axis=1))
    if len(bad):
        raise DataError(
            f"the margin of row {bad[0]} is NaN because the weights have overflowed: use a smaller "
            "eta0, or rescale X"
        )
    return margins
