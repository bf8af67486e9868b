"""The base class of the classifier and the regressor."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamomd.config.model_table import DEFAULT
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.finite import is_finite
from streamomd.core.wording import named_keywords, nearest, suggestion
from streamomd.integrations.sklearn.estimator_job import parameters_of, refuse_changed, worded
from streamomd.integrations.sklearn.fit import (
    check_stopping,
    chosen_epochs,
    distinct,
    is_dask,
    is_indicators,
    learn_epochs,
    learn_more_rows,
    report_label_runs,
    start_model,
    train_collection,
)
from streamomd.integrations.sklearn.inputs import (
    PreparedScores,
    Targets,
    batch_of,
    labelled,
    validate_input,
    weights_of,
)
from streamomd.integrations.sklearn.pickling import PickledModel
from streamomd.rules import ALIASES, all_rules, find_rule
from streamomd.sources.memory.encoded_frames import is_framed

if TYPE_CHECKING:
    from streamomd.training.model import Model


@functools.cache
def _names(kind: type[Estimator]) -> list[str]:
    names: list[str] = kind._get_param_names()  # from the signature on each call
    return names


def _is_rule(rule: Any) -> bool:
    """Whether there is such a rule: an invalid one is reported by ``fit``."""
    return rule is None or (isinstance(rule, str) and (rule in all_rules() or rule in ALIASES))


def _parameters(estimator: Estimator) -> list[Any]:
    """Parameters passed to ``__init__`` or set later."""
    return [getattr(estimator, name) for name in _names(type(estimator))]


class Estimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Base of both estimators; see ``OMDClassifier`` for the parameters."""

    _classifies = False
    _held: PickledModel
    rule: str | None

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
        dtype: str = "float64",
        bits: int = 18,
        nulls: Any = None,
        dates: Any = None,
        categorical: Any = None,
        text: Any = None,
        ignore: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.rule = rule
        self.loss = loss
        self.eta0 = eta0
        self.params = params
        self.loss_params = loss_params
        self.shapes = shapes
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.random_state = random_state
        self.dtype = dtype
        self.bits = bits
        self.nulls = nulls
        self.dates = dates
        self.categorical = categorical
        self.text = text
        self.ignore = ignore
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
        made = cls(**cls._parameters_of(model.spec))
        made.n_features_in_ = plan.size - int(plan.bias) - plan.made
        if is_framed(plan):
            made.feature_names_in_ = np.array(plan.features, dtype=object)
            made.n_features_in_ = len(plan.features)
        made.n_iter_ = max(1, len(model.metrics.rows))
        made._set_model(PickledModel(model).copy(), np.array(plan.classes))
        return made

    @classmethod
    def _parameters_of(cls, spec: Spec) -> dict[str, Any]:
        """The parameters of this class for the job."""
        found = parameters_of(spec)
        if "rule" in _names(cls):
            return found
        if spec.model.rule != cls.rule:
            raise UsageError(
                f"this model's rule is {spec.model.rule!r}: {cls.__name__} is for {cls.rule!r}"
            )
        common = {name: value for name, value in found.items() if name in _names(cls)}
        return {**common, **spec.model.params}

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

        Coordinates are columns; with curves, and for frames with text, those that
        ``to_model().inspect`` names.
        """
        return self._weights()[:, int(self._model.plan.bias) :]

    @property
    def intercept_(self) -> Floats:
        """The bias of each row of weights, (1 or classes,); 0 without one."""
        weights = self._weights()
        return weights[:, 0] if self._model.plan.bias else np.zeros(len(weights))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_held")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; one of an earlier version lacks later parameters."""
        signature = inspect.signature(type(self).__init__)
        for name in {*_names(type(self))} - {*state} - {"params"}:
            state = {**state, name: signature.parameters[name].default}
        super().__setstate__(state)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name, as scikit-learn has it; deep: and those of the rule, as
        ``rule__eta``."""
        found: dict[str, Any] = super().get_params(deep=deep)
        if deep and "rule" in found and _is_rule(self.rule):
            found |= {f"rule__{name}": value for name, value in self._rule_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Sets parameters, as scikit-learn has it, and returns the estimator; ``rule__eta=0.1``
        sets a parameter of the rule."""
        names_rule = "rule" in _names(type(self))
        if not names_rule:  # of a class of one rule they are its own
            params = {key.removeprefix("rule__"): value for key, value in params.items()}
        own = {key for key in params if key.startswith("rule__")} if names_rule else set()
        for name in (key.partition("__")[0] for key in params if key not in own):
            if name not in _names(type(self)):
                raise UsageError(
                    f"Invalid parameter {name!r} for estimator {self}; "
                    f"{suggestion(name, _names(type(self)))}"
                )
        super().set_params(**{key: value for key, value in params.items() if key not in own})
        known = self._rule_params() if own else {}
        for name in (key.removeprefix("rule__") for key in own):
            if name not in known:
                near = f" did you mean {similar!r}?" if (similar := nearest(name, known)) else ""
                raise UsageError(
                    f"rule {self.rule or DEFAULT!r} has no parameter {name!r};{near} it has: "
                    f"{', '.join(known)}"
                )
            value = params[f"rule__{name}"]
            if known[name] == value:  # also of set_params(**get_params())
                continue
            if name == "eta" and self.eta0 is not None:
                self.eta0 = value
            else:
                self.params = {**(self.params or {}), name: value}
        return self

    def _rule_params(self) -> dict[str, Any]:
        """The parameters of the rule: its own defaults, ``params`` and ``eta0``."""
        own = self.params if isinstance(self.params, Mapping) else {}
        known = {**find_rule(self.rule or DEFAULT).parse_params({}), **own}
        return known | ({"eta": self.eta0} if self.eta0 is not None and "eta" in known else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.nulls is not None and self.nulls != "error"
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

    @worded
    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Learn all rows, from scratch or (warm_start) from the current state."""
        check_stopping(self)
        if is_dask(X):
            return self._fit_dask(X, y, sample_weight)
        reset = not (self.warm_start and hasattr(self, "_held"))
        held, classes, rows = self._prepare(X, y, sample_weight, None, reset=reset)
        draw = check_random_state(self.random_state)
        epochs = chosen_epochs(self, lambda: held.copy().model, rows, draw)
        orders = draw if self.shuffle else None
        tries = not self.early_stopping and not self.warm_start  # whose rows may be others
        learn_epochs(held.model, rows, epochs, orders, tries=tries)
        if not self.shuffle:
            report_label_runs(held.model, epochs)
        self.n_iter_ = epochs if not tries else held.model.cursor.epoch
        held.model.spec = held.model.spec.of_epochs(epochs)
        self._set_model(held, classes)
        return self

    @worded
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
        self.n_iter_ = len(model.metrics.rows)
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
        if reset and is_indicators(self, read):
            read = csr_array(read)
        targets = self._targets(y, classes, reset=reset)
        check_consistent_length(read, targets.y)
        weight = weights_of(sample_weight, targets.y) * targets.weight
        known = targets.classes
        held = (
            PickledModel(start_model(self, read, getattr(y, "name", None), targets, weight))
            if reset
            else self._held
        )
        held.scores = PreparedScores()  # what it had is of the state before these rows
        plan = held.model.plan
        # Trees were grown on some of these rows; those of a later partial_fit are others.
        plan = plan.learning if reset or self.warm_start else plan
        batch = batch_of(plan, read, held.model.names)
        return held, known, labelled(batch, targets.y, weight)

    @worded
    def _margins(self, X: Any) -> Floats:
        """(rows, learners)."""
        model, prepared = self._model, self._held.scores
        columns = getattr(self, "feature_names_in_", None)
        if columns is not None and (found := prepared.margins(model, X, columns)) is not None:
            return found
        rows = batch_of(model.plan, validate_input(self, X, reset=False))
        margins = model.engine.predict(model.state, np.zeros(3), rows)
        if not is_finite(margins):  # a finite model can also overflow if X has extreme values
            model.refuse_non_finite(weights=True)
        if columns is not None:
            prepared.note(X)
        return margins

    def _lazy(self, X: Any, column: str) -> Any:
        """A column of a Dask collection's predictions."""
        from streamomd.distributed.collections.collection import predict_collection

        return predict_collection(self._model, X)[column]
