"""scikit-learn's own estimators with our weights say what our model says."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from exporting import answers, model_of, table

from streamomd.core.errors import UnsupportedError
from streamomd.integrations.export import FORMATS, matrix_of, to_sklearn
from streamomd.losses import all_losses

pytest.importorskip("sklearn", reason="needs scikit-learn")

EVERYTHING = {"numeric": ["n", "f", "t"], "vectors": ["e"], "hashed": ["h", "k"], "bits": 6}
NONE = {
    "poisson": {},
    "gamma": {},
    "tweedie": {"power": 1.5},
    "log_square": {},
    "gamma_hinge": {"gamma": 0.5},
}
"""Losses, with parameters, that scikit-learn has no linear model of."""


@pytest.mark.parametrize("loss", all_losses())
@pytest.mark.parametrize("labels", ["two", "three", "numbers"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_loss_and_task(loss: str, labels: str, bias: bool) -> None:
    """decision_function, predict and predict_proba of every loss, or a refusal by name."""
    if labels == "numbers" and all_losses()[loss].classifies:
        pytest.skip("a loss of classes")
    if labels != "numbers" and all_losses()[loss].least:
        pytest.skip("a loss of numbers above 0")
    rows = table(labels=labels)
    if all_losses()[loss].least is not None:
        rows = rows.set_column(0, "y", pa.array(np.abs(np.arange(len(rows)))))
    described = {"loss": loss, "loss_params": NONE.get(loss, {}), "bias": bias}
    task = "regress" if labels == "numbers" else "classify"
    model = model_of(rows, data=EVERYTHING, model={**described, "task": task})
    if loss in NONE or (loss == "pinball" and task == "classify"):
        with pytest.raises(UnsupportedError, match=loss):
            to_sklearn(model)
        return
    fitted, ours, X = to_sklearn(model), answers(model, rows), matrix_of(model, rows)
    assert fitted.n_features_in_ == X.shape[1]
    assert fitted.predict(X).tolist() == pytest.approx(ours["prediction"].tolist(), abs=1e-12)
    if task == "regress":
        return
    margins, told = ours["score"], ours.get("probability")
    if loss == "softmax" and labels == "two":
        margins, told = margins[:, 1] - margins[:, 0], told[:, 1]
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(scores, margins, rtol=1e-12, atol=1e-12)
    if told is not None:
        likely = fitted.predict_proba(X)
        likely = likely[:, 1] if told.ndim == 1 else likely
        np.testing.assert_allclose(likely, told, rtol=1e-12, atol=1e-12)


def test_gamma_hinge_where_scikit_learn_has_it() -> None:
    """gamma 1 is its hinge, gamma 0 its perceptron loss."""
    rows = table()
    for gamma, name in ((1.0, "hinge"), (0.0, "perceptron")):
        told = {"loss": "gamma_hinge", "loss_params": {"gamma": gamma}}
        assert to_sklearn(model_of(rows, data=EVERYTHING, model=told)).loss == name


def test_columns_of_numbers_keep_their_names() -> None:
    """feature_names_in_ where every column is numeric, and nowhere else."""
    rows = table()
    numbers = {"numeric": ["n", "f"], "ignore": ["t", "h", "k", "e"]}
    assert to_sklearn(model_of(rows, data=numbers)).feature_names_in_.tolist() == ["n", "f"]
    assert not hasattr(to_sklearn(model_of(rows, data=EVERYTHING)), "feature_names_in_")


def test_a_rule_that_predicts_more_than_weights_is_refused() -> None:
    """These weights alone do not give the rule's predictions."""
    rows = table(labels="numbers")
    model = model_of(rows, data=EVERYTHING, model={"rule": "vaw", "loss": "square"})
    with pytest.raises(UnsupportedError, match="more than weights"):
        to_sklearn(model)


def test_skops_reads_it_without_trust_in_anything() -> None:
    """The file holds types that skops knows to be harmless, no others."""
    skops = pytest.importorskip("skops.io", reason="needs streamomd[skops]")
    rows = table()
    for loss in ("logistic", "hinge", "softmax"):
        model, file = model_of(rows, data=EVERYTHING, model={"loss": loss}), io.BytesIO()
        told = FORMATS["sklearn"].write(model, file)
        assert told["coef"] == [1, model.plan.size - 1]
        assert skops.get_untrusted_types(data=file.getvalue()) == []
        fitted = skops.loads(file.getvalue())
        X = matrix_of(model, rows)
        assert fitted.predict(X).tolist() == answers(model, rows)["prediction"].tolist()
