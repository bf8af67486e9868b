"""scikit-learn estimators: a classifier and a regressor over the same engine as
``streamomd.train``."""

from typing import Any

from streamomd.core.errors import MissingExtraError

try:
    from sklearn.utils.validation import validate_data as _  # noqa: F401 (is it there?)
except ImportError as error:
    raise MissingExtraError(
        f"OMDClassifier and OMDRegressor need scikit-learn 1.6 or later ({error}): "
        "pip install 'streamomd[sklearn]'"
    ) from None

from streamomd.integrations.sklearn.classifier import OMDClassifier
from streamomd.integrations.sklearn.regressor import OMDRegressor
from streamomd.integrations.sklearn.rule_classes import (
    EQUAL_WEIGHTS,
    WEIGHTS,
    expected_failed_checks,
    rule_class,
)

__all__ = [
    "EXPECTED_FAILED_CHECKS", "OMDClassifier", "OMDRegressor", "expected_failed_checks",
    "to_estimator",
]  # fmt: skip

EXPECTED_FAILED_CHECKS = dict.fromkeys(EQUAL_WEIGHTS, WEIGHTS)
"""The checks that ``OMDClassifier()`` and ``OMDRegressor()``, with the default rule, cannot pass.
scikit-learn declares the same checks of its SGDClassifier."""


def __getattr__(name: str) -> Any:
    return rule_class(name)


def to_estimator(model: Any) -> OMDClassifier | OMDRegressor:
    """A copy of a model as an estimator: a classifier if the model has classes."""
    kind = OMDClassifier if model.plan.classes else OMDRegressor
    return kind.from_model(model)
