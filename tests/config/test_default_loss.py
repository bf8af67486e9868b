"""The loss of a job that names none: the rule's own; of several classes the default rule's is
softmax."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamomd import OMDClassifier
from streamomd.config.spec import Spec
from streamomd.features import make_plan
from streamomd.integrations.sklearn.estimator_job import spec_of
from streamomd.training.model import Model

SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.int64())])
CASES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 2, "logistic"),
    ({}, 3, "softmax"),
    ({"rule": "auto"}, 3, "softmax"),
    ({"rule": "auto", "params": {"block": 9}}, 40, "softmax"),
    ({"loss": ""}, 3, "softmax"),
    ({"loss": "logistic"}, 3, "logistic"),
    ({"loss": "hinge"}, 3, "hinge"),
    ({"rule": "laplace"}, 3, "logistic"),
    ({"rule": "nag"}, 3, "logistic"),
    ({"bias": False}, 3, "logistic"),
]


@pytest.mark.parametrize("model, count, loss", CASES)
def test_a_model_has_the_loss_of_its_classes(model: dict[str, Any], count: int, loss: str) -> None:
    """Found or given; a saved job has it by name, so it stays, whatever the default becomes."""
    labels = list(range(count))
    for classes in ([], labels):
        table = {"data": {"label": "y"}, "model": {"task": "classify", **model, "classes": classes}}
        spec = Spec.parse(table)
        made = Model.new(spec, make_plan(spec.data, spec.model, SCHEMA, lambda: labels))
        assert made.spec.model.loss == made.engine.loss.name == loss
        assert made.state.layout.learners == (count if count > 2 else 1)
        saved = Spec.parse(made.spec.to_json())
        assert saved.model.names_loss
        assert saved.of_classes(3) == saved == made.spec
    assert spec.of_classes(3).of_classes(2) == spec.of_classes(3)


@pytest.mark.parametrize("given, count, loss", [
    ({}, 2, "logistic"), ({}, 3, "softmax"), ({"loss": "log_loss"}, 3, "logistic"),
    ({"rule": "nag"}, 3, "logistic"), ({"fit_intercept": False}, 3, "logistic"),
])  # fmt: skip
def test_so_does_an_estimator(given: dict[str, Any], count: int, loss: str) -> None:
    assert spec_of(OMDClassifier(**given), {}, range(count)).model.loss == loss


def test_regression_is_not_affected() -> None:
    spec = Spec.parse({"data": {"label": "y"}, "model": {"loss": "square"}})
    assert spec.of_classes(0) is spec
