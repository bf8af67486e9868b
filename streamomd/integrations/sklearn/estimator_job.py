"""From an estimator's parameters to a job, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from streamomd.config.model_table import DEFAULT
from streamomd.config.spec import Spec
from streamomd.core.errors import DivergedError, StreamomdError, UsageError
from streamomd.core.message import Reader
from streamomd.losses import Loss, find_loss
from streamomd.rules import find_rule

MOST_EPOCHS = 20
COMPARED = ("rule", "loss", "params", "loss_params", "shapes", "bias", "dtype")
COLUMNS = ("bits", "nulls", "dates", "text")
"""Parameters of columns that a state depends on, as keys of ``Spec.data``."""
DIVERGED = "Fit again with a smaller eta0, or scale the columns of X (StandardScaler)"
OTHER_NAMES = {
    "train.epochs": "max_iter",
    "model.bias": "fit_intercept",
    "data.hashed": "categorical",
}
"""Parameters whose names are scikit-learn's, by key of a job."""
TABLES = ("model.params.", "model.loss_params.", "model.", "data.")
P = ParamSpec("P")
T = TypeVar("T")


def parameter_of(key: str) -> str:
    """An estimator's name for a key of a job.

    >>> parameter_of("train.epochs"), parameter_of("model.params.eta"), parameter_of("data.bits")
    ('max_iter', 'eta', 'bits')
    """
    table = next((one for one in TABLES if key.startswith(one)), "")
    return OTHER_NAMES.get(key, key.removeprefix(table))


ESTIMATOR = Reader("estimator", parameter_of)


def worded(function: Callable[P, T]) -> Callable[P, T]:
    """The method, whose errors speak of X, y and parameters."""

    @functools.wraps(function)
    def call(*given: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*given, **keywords)
        except StreamomdError as error:
            message = error.message.read_by(ESTIMATOR)
            if isinstance(error, DivergedError) and message.remedy != DIVERGED:
                form = "{found}. {remedy}"
                message = replace(message, form=form, found=error.message, remedy=DIVERGED)
            error.args = (message, *error.args[1:])
            raise

    return call


def plain(value: Any) -> Any:
    """A numpy number, as in a parameter grid, as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def loss_of(estimator: Any) -> Loss:
    """The estimator's loss: the given one; else the rule's default, or square in regression."""
    if estimator.loss is not None:
        return find_loss(estimator.loss)
    if not isinstance(estimator.rule, str | None):
        raise UsageError(f"rule={estimator.rule!r}: expected the name of a rule, or None")
    rule = find_rule(estimator.rule or DEFAULT)
    if estimator._classifies:
        return find_loss(rule.losses.default)
    return find_loss("square")


def epochs_of(estimator: Any) -> Any:
    """The most epochs of a fit: ``max_iter``, or by default 20, and 1 without early stopping."""
    if estimator.max_iter is not None:
        return plain(estimator.max_iter)
    return MOST_EPOCHS if estimator.early_stopping else 1


def spec_of(
    estimator: Any,
    data: Mapping[str, Any],
    classes: Any = (),
    *,
    epochs: Any = None,
    report: Callable[[str], object] | None = None,
) -> Spec:
    """The ``streamomd.train`` job of ``fit``. Raises UsageError for invalid parameters.

    report: as in ``Spec.parse``. epochs: instead of the estimator's.
    """
    params = {name: plain(value) for name, value in _table(estimator, "params").items()}
    if estimator.eta0 is not None:
        if "eta" in params:
            raise UsageError(f"eta is given twice: eta0={estimator.eta0!r} and params={params!r}")
        params["eta"] = plain(estimator.eta0)
    loss = loss_of(estimator)
    free = estimator.loss is None and estimator._classifies
    if loss.classifies and not estimator._classifies:
        raise UsageError(f"loss {loss.name!r} is for classification: use OMDClassifier")
    goal = {name: plain(value) for name, value in _table(estimator, "loss_params").items()}
    model = {
        **({} if estimator.rule is None else {"rule": estimator.rule}),
        "loss": "" if free else loss.name,
        "params": params,
        "loss_params": goal,
        "task": "classify" if estimator._classifies else "regress",
        "classes": [plain(label) for label in classes],
        "shapes": estimator.shapes,
        "bias": plain(estimator.fit_intercept),
        "dtype": estimator.dtype,
    }
    columns = {"bits": plain(estimator.bits), **_columns(estimator), **data}
    train = {"epochs": plain(epochs or epochs_of(estimator))}
    spec = Spec.parse(
        {"data": columns, "model": model, "train": train, "checkpoint": {"url": "none"}},
        report=report,
    )
    return spec.of_classes(len(classes))


def refuse_changed(estimator: Any, saved: Spec) -> None:
    """Raise UsageError if parameters differ from those of the state to continue."""
    found = {"dates": list(saved.data.dates)} if estimator.dates is None else {}
    ours = spec_of(estimator, found, saved.model.classes)
    pairs: list[tuple[str, Any, Any]] = [(name, ours.model, saved.model) for name in COMPARED]
    pairs += [(name, ours.data, saved.data) for name in COLUMNS]
    for name, now, then in pairs:
        here, there = getattr(now, name), getattr(then, name)
        if here != there:
            raise UsageError(
                f"{name} was {there!r} and is {here!r} now: a state continues only with its "
                "original parameters; to change them call fit with warm_start=False"
            )


def parameters_of(spec: Spec) -> dict[str, Any]:
    """The estimator's parameters for this job."""
    model, params = spec.model, dict(spec.model.params)
    eta = params.pop("eta", None)
    return {
        "rule": model.rule,
        "loss": model.loss,
        "eta0": eta,
        "params": params or None,
        "loss_params": model.loss_params or None,
        "shapes": model.shapes,
        "fit_intercept": model.bias,
        "max_iter": spec.train.epochs,
        "early_stopping": False,
        "shuffle": False,
        "dtype": model.dtype,
        "bits": spec.data.bits,
        "nulls": None if spec.data.nulls == "error" else spec.data.nulls,
        "dates": list(spec.data.dates) or None,
        "categorical": list(spec.data.hashed) or None,
        "text": [text.model_dump() for text in spec.data.text] or None,
    }


def named_columns(estimator: Any, name: str) -> list[Any]:
    """The columns that a parameter names: of None none, of a string that column."""
    given = getattr(estimator, name)
    if given is None or isinstance(given, str):
        return [] if given is None else [given]
    try:
        return list(given)
    except TypeError:
        raise UsageError(f"{name}={given!r}: expected a list of columns") from None


def _columns(estimator: Any) -> dict[str, Any]:
    """The keys of [data] that the parameters set."""
    found = {name: getattr(estimator, name) for name in ("nulls", "dates", "text", "ignore")}
    return {name: value for name, value in found.items() if value is not None}


def _table(estimator: Any, name: str) -> Mapping[str, Any]:
    given = getattr(estimator, name) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{name}={given!r}: expected a dict of parameters, or None")
    return given
