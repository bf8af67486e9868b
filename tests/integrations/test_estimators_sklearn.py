"""The estimators among scikit-learn's own: pipelines, searches, calibration, copies; and models."""

from __future__ import annotations

import copy
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from estimating import Classifier, Regressor, bits, in_shards, lists, made, trained, uncompiled
from running import rows
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import UsageError


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


def test_in_a_pipeline() -> None:
    """Several epochs of three classes; raw units and standardised ones alike."""
    X, y = load_iris(return_X_y=True)
    model = Classifier(loss="softmax", max_iter=5, shuffle=True, random_state=0)
    for steps in ([model], [StandardScaler(), model]):
        scores = cross_val_score(make_pipeline(*steps), X, y, cv=3)
        assert scores.mean() > 0.9


def test_clones_and_copies() -> None:
    """A clone has the parameters alone; a copy learns on by itself."""
    X, y, weight = made(3)
    fitted = Classifier("adagrad", eta0=0.25, params={"l2": 0.5}).fit(X, y, weight)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "classes_")
    before, twin = bits(fitted), copy.deepcopy(fitted)
    assert bits(twin) == before
    twin.partial_fit(X, y)
    assert bits(fitted) == before
    assert bits(twin) != before
    assert (is_classifier(fitted), is_regressor(Regressor())) == (True, True)


@pytest.mark.parametrize("rule", ["nag", "arow", "dual_ascent"])
def test_a_pickle_is_description_and_arrays(rule: str) -> None:
    """No engine, rule or loop is named in it; states of every kind come back, with memory of
    their own."""
    X, y, _ = made(2)
    fitted = Classifier(rule).fit(X, y)
    saved = pickle.dumps(fitted)
    named = {arg for _, arg, _ in pickletools.genops(saved) if isinstance(arg, str)}
    ours = {name for name in named if name.startswith("streamomd")}
    assert ours == {
        "streamomd.integrations.sklearn.classifier",
        "streamomd.integrations.sklearn.pickling",
    }
    again = pickle.loads(saved)
    assert bits(again) == bits(fitted)
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))
    again.partial_fit(X, y)
    assert bits(again) == bits(fitted.partial_fit(X, y))


def test_weights_of_classes() -> None:
    """They multiply the rows' own; balanced are n / (classes · n of the class)."""
    X, y, weight = made(3)
    told = {0: 2.0, 1: 0.5, 2: 0.0}
    by_class = Classifier(class_weight=told).fit(X, y, weight)
    by_hand = Classifier().fit(X, y, weight * np.array([2.0, 0.5, 0.0])[y])
    assert bits(by_class) == bits(by_hand)
    pieces = Classifier(class_weight=told)
    for label in (2, 0, 1):
        pieces.partial_fit(X[y == label], y[y == label], [0, 1, 2], weight[y == label])
    order = np.concatenate([np.flatnonzero(y == label) for label in (2, 0, 1)])
    assert bits(pieces) == bits(
        Classifier(class_weight=told).fit(X[order], y[order], weight[order])
    )
    balanced = len(y) / (3 * np.bincount(y))
    assert bits(Classifier(class_weight="balanced").fit(X, y)) == bits(
        Classifier().fit(X, y, balanced[y])
    )


@pytest.mark.parametrize(("classes", "loss", "shape"), [
    (2, "logistic", (1, 4)), (2, "softmax", (1, 4)), (3, "hinge", (3, 4)), (3, "softmax", (3, 4)),
])  # fmt: skip
def test_weights_make_the_margins(classes: int, loss: str, shape: tuple[int, int]) -> None:
    """<coef_, x> + intercept_ is the margin; the largest one wins, of two classes if above 0."""
    X, y, _ = made(classes)
    for bias in (True, False):
        fitted = Classifier(loss=loss, fit_intercept=bias, max_iter=2).fit(X, y)
        assert (fitted.coef_.shape, fitted.intercept_.shape) == (shape, shape[:1])
        assert (fitted.intercept_ != 0).any() == bias
        margins = X @ fitted.coef_.T + fitted.intercept_
        told = fitted.decision_function(X)
        assert np.allclose(told, margins[:, 0] if classes == 2 else margins, rtol=1e-12)
        best = told > 0 if classes == 2 else told.argmax(axis=1)
        assert np.array_equal(fitted.predict(X), best.astype(int))
        if loss != "hinge":
            assert np.array_equal(fitted.predict_proba(X).argmax(axis=1), fitted.predict(X))
    number = Regressor(loss="poisson").fit(X, y)
    assert (number.coef_.shape, number.intercept_.shape) == ((4,), (1,))
    assert np.allclose(np.log(number.predict(X)), X @ number.coef_ + number.intercept_)


def test_from_a_model_and_back(tmp_path: Path) -> None:
    """What was trained on shards predicts as it does there, learns on, and is a model again."""
    table = rows(90).drop_columns(["i", "v"])
    run = trained(in_shards(tmp_path / "data", table), {}, weight="w", bits=6)
    estimator = run.to_estimator()
    assert type(estimator) is OMDClassifier
    assert list(estimator.feature_names_in_) == ["n", "k", "h", "c"]
    files = run.predict(str(tmp_path / "data"), str(tmp_path / "out"))
    told = pa.concat_tables([pq.read_table(file) for file in files])
    features = table.select(["n", "k", "h", "c"])
    assert estimator.predict(features).tolist() == told["prediction"].to_pylist()
    assert estimator.predict_proba(features)[:, 1].tolist() == told["probability"].to_pylist()
    model = estimator.to_model()
    assert model.state_sha256 == run.state_sha256
    assert (model.spec, model.plan) == (run.spec, run.plan)
    estimator.partial_fit(features, table["y"].to_numpy())
    assert run.state_sha256 == model.state_sha256 != bits(estimator)
    again = clone(estimator).set_params(max_iter=2).fit(features, table["y"].to_numpy(), table["w"])
    assert bits(again) == run.state_sha256


def test_a_model_of_vectors_takes_arrays(tmp_path: Path) -> None:
    """Its columns are coordinates; classes may be in any order; the other kind is refused."""
    X, y, _ = made(2)
    words = np.array(["yes", "no"])[y]
    shards = in_shards(tmp_path / "data", {"X": lists(X), "y": words})
    run = trained(shards, {"classes": ["yes", "no"]}, vectors=["X"])
    estimator = run.to_estimator()
    assert (estimator.n_features_in_, list(estimator.classes_)) == (4, ["yes", "no"])
    direct = Classifier(max_iter=2).fit(X, y)
    assert bits(direct) == run.state_sha256
    assert np.array_equal(estimator.predict(X), np.array(["yes", "no"])[direct.predict(X)])
    assert bits(estimator.partial_fit(X, words)) == bits(direct.partial_fit(X, y))
    with pytest.raises(UsageError, match="is for OMDClassifier"):
        OMDRegressor.from_model(run)


def test_an_estimators_model_predicts_shards(tmp_path: Path) -> None:
    """What was fitted on arrays reads shards with a column of vectors."""
    X, y, _ = made(0)
    model = Regressor().fit(X, y).to_model()
    shards = in_shards(tmp_path / "data", {"X": lists(X), "y": y})
    told = pa.concat_tables(map(pq.read_table, model.predict(shards, str(tmp_path / "out"))))
    assert told["prediction"].to_pylist() == Regressor().fit(X, y).predict(X).tolist()
    assert model.evaluate(shards, quiet=True)["rmse"] > 0


@pytest.mark.slow
def test_another_process_takes_a_pickle(tmp_path: Path) -> None:
    """Compiled loops and all: what it predicts is what was predicted here."""
    X, y, _ = made(2)
    fitted = Classifier().fit(X, y)
    (tmp_path / "model").write_bytes(pickle.dumps((fitted, X)))
    code = (
        "import pickle, sys\n"
        "model, X = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(model.decision_function(X).tobytes().hex())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == fitted.decision_function(X).tobytes().hex()
