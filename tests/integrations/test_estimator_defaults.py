"""What users of scikit-learn expect: defaults that are good, names, missing values, small pickles,
and scikit-learn's wrappers."""

from __future__ import annotations

import base64
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimating import Classifier, bits, made, uncompiled
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streamomd
from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import SchemaError, UsageError
from streamomd.integrations import sklearn as estimators
from streamomd.integrations.sklearn import pickling
from streamomd.integrations.sklearn.rule_classes import rule_class, rule_classes
from streamomd.rules import all_rules


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


SLOW = pytest.mark.slow
PICKLE = Path(__file__).parents[1] / "golden" / "estimator.pickle.b64"


@pytest.mark.parametrize(
    "load",
    [load_iris, pytest.param(load_wine, marks=SLOW), pytest.param(load_breast_cancer, marks=SLOW)],
)
@pytest.mark.slow
def test_defaults_classify_as_a_tuned_pipeline(load: Any) -> None:
    """Accuracy by 4-fold cross-validation, raw units: at most .02 below LogisticRegression's."""
    X, y = load(return_X_y=True)
    ours = cross_val_score(OMDClassifier(random_state=0), X, y, cv=4).mean()
    theirs = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression()), X, y, cv=4)
    assert ours > theirs.mean() - 0.02


@pytest.mark.slow
def test_defaults_regress_as_ridge() -> None:
    """R² by 4-fold cross-validation, of rows that are sorted by their target."""
    X, y = load_diabetes(return_X_y=True)
    order = np.argsort(y)
    fitted = OMDRegressor(random_state=0).fit(X[order], y[order])
    assert fitted.score(X, y) > Ridge(alpha=0.1).fit(X, y).score(X, y) - 0.02
    ours = cross_val_score(OMDRegressor(random_state=0), X, y, cv=4).mean()
    assert ours > cross_val_score(Ridge(alpha=0.1), X, y, cv=4).mean() - 0.02


def test_random_state_makes_it_repeatable() -> None:
    """The same seed, the same bits; another seed, others."""
    X, y, _ = made(2)
    one, other, third = (bits(OMDClassifier(random_state=k).fit(X, y)) for k in (0, 0, 1))
    assert one == other != third


def test_early_stopping_learns_all_rows() -> None:
    """Hold-out rows choose the number of epochs; the model has learned each row that often."""
    X, y, _ = made(2)
    X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    fitted = OMDClassifier(random_state=0, max_iter=9).fit(X, y)
    assert 1 <= fitted.n_iter_ <= 9
    assert fitted.t_ == len(y) * fitted.n_iter_
    assert OMDClassifier().fit(X[:50], y[:50]).n_iter_ == 3  # too few to hold out
    assert OMDClassifier(early_stopping=False).fit(X, y).n_iter_ == 1
    assert OMDClassifier(early_stopping=False, max_iter=4).fit(X, y).n_iter_ == 4


WRONG: tuple[dict[str, Any], ...] = (
    {"validation_fraction": 0.0}, {"validation_fraction": 1.0}, {"validation_fraction": "x"},
    {"n_iter_no_change": 0}, {"n_iter_no_change": 1.5}, {"tol": None}, {"tol": -1}, {"tol": np.nan},
    {"early_stopping": "yes"}, {"shuffle": "no"}, {"rule": "nagg"}, {"rule": 5},
    {"nulls": "maen"}, {"nulls": {"zz": "mean"}}, {"max_iter": 0}, {"max_iter": 2.5}, {"bits": 0},
    {"dtype": "f2"}, {"rule": "nag", "params": {"eta": -1}}, {"params": {"eta": 1.0}},
    {"rule": "auto", "fit_intercept": False}, {"text": 5}, {"dates": 5}, {"ignore": 5},
    {"categorical": 5}, {"categorical": ["zz"]}, {"ignore": ["n"], "categorical": ["n"]},
    {"ignore": ["n", "h"]}, {"loss": "hing"}, {"loss_params": {"tau": 1}},
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_parameters_that_cannot_be(wrong: dict[str, Any]) -> None:
    """They are refused when rows are known, by the estimator's names and not by those of a job."""
    X, y, _ = made(2)
    frame = pd.DataFrame({"n": X[:, 0], "h": ["a"] * len(y)})
    with pytest.raises((UsageError, SchemaError)) as error:
        OMDClassifier(**wrong).fit(frame, y)
    assert not re.search(r"shard|\b(data|model|train)\.\w|\[data\]|--\w", str(error.value))


def test_parameters_of_the_rule_by_name() -> None:
    """Nested names in a search, and the same parameters flat in the rule's own class."""
    X, y, _ = made(2)
    grid = {"rule__eta": [0.001, 1.0], "rule": ["nag"]}
    search = GridSearchCV(Classifier(), grid, cv=2).fit(X, y)
    eta = search.best_params_["rule__eta"]
    assert search.best_estimator_.to_model().spec.model.params["eta"] == eta
    flat = estimators.NAGClassifier(eta=eta, shuffle=False, early_stopping=False).fit(X, y)
    assert bits(flat) == bits(search.best_estimator_)
    search = GridSearchCV(
        estimators.NAGClassifier(random_state=0), {"eta": [0.001, 1.0]}, cv=2
    ).fit(X, y)
    assert search.best_params_["eta"] == 1.0
    with pytest.raises(UsageError, match="no parameter 'etta'"):
        OMDClassifier("nag").set_params(rule__etta=1.0)
    assert OMDClassifier("nag").get_params()["rule__implicit"] is not None
    assert estimators.NAGClassifier().set_params(rule__eta=0.5).get_params()["eta"] == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'etta'"):
        estimators.NAGClassifier().set_params(rule__etta=0.5)


@pytest.mark.parametrize("given", [{}, {"rule": "nag", "eta0": 0.25}, {"rule": "ftrl_proximal"}])
def test_parameters_can_be_set_to_what_they_are(given: dict[str, Any]) -> None:
    """The estimator is as before, also its eta, which has two names."""
    X, y, _ = made(2)
    one, other = Classifier(**given), Classifier(**given)
    other.set_params(**other.get_params())
    assert other.get_params() == one.get_params()
    assert bits(other.fit(X, y)) == bits(one.fit(X, y))
    if given.get("eta0"):
        assert one.set_params(rule__eta=0.5).eta0 == one.get_params()["rule__eta"] == 0.5


def test_an_estimator_of_a_model_has_its_parameters() -> None:
    """Those of columns and of the rule, and the number of epochs learned."""
    X, y, _ = made(2)
    frame = pd.DataFrame({
        "n": X[:, 0], "zip": np.arange(len(y)) % 3, "kind": pd.Categorical(np.arange(len(y)) % 2),
        "when": pd.date_range("2026-01-01", periods=len(y)), "words": "a b",
    })  # fmt: skip
    roles = {"categorical": "zip", "dates": "when", "text": ["words"], "nulls": "mean"}
    fitted = estimators.NAGClassifier(eta=0.25, max_iter=9, random_state=0, **roles).fit(frame, y)
    plan = fitted.to_model().plan
    assert plan.hashed == ("zip", "kind")  # a category of numbers is one next to others as well
    for kind in (estimators.NAGClassifier, OMDClassifier):
        again = kind.from_model(fitted.to_model())
        assert again.max_iter == fitted.n_iter_
        columns = frame[again.feature_names_in_]
        assert np.array_equal(again.predict(columns), fitted.predict(frame))
        assert clone(again).fit(columns, y).to_model().plan.size == plan.size
        before = again.t_  # another parameter than those of the columns does not matter
        assert again.set_params(random_state=1).partial_fit(columns, y).t_ == before + len(y)
        with pytest.raises(UsageError, match=r"dates was .* now: a state continues only"):
            again.set_params(dates=[]).partial_fit(columns, y)
    found = estimators.NAGClassifier(
        eta=0.25, max_iter=9, random_state=0, **{**roles, "dates": None}
    )
    assert np.array_equal(found.fit(frame, y).predict(frame), fitted.predict(frame))
    found.partial_fit(frame, y)
    with pytest.raises(UsageError, match="rule is 'nag': OGDClassifier is for 'ogd'"):
        estimators.OGDClassifier.from_model(fitted.to_model())


@pytest.mark.parametrize("name", [
    *(name for name, (rule, _) in rule_classes().items() if rule.name in ("arow", "adagrad")),
    "FTRLClassifier", "PARegressor" if "PARegressor" in rule_classes() else "PAClassifier",
])  # fmt: skip
def test_a_class_for_a_rule(name: str) -> None:
    """It is constructed, cloned, shown, pickled and fitted as any estimator."""
    kind = rule_class(name)
    X, y, _ = made(2 if name.endswith("Classifier") else 0)
    fitted = kind(random_state=0).fit(X, y)
    assert repr(kind()) == f"{name}()"
    again = pickle.loads(pickle.dumps(fitted))
    assert type(again) is kind
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert bits(clone(fitted).fit(X, y)) == bits(fitted)
    with pytest.raises(TypeError):
        kind(etta=1.0)


def test_every_rule_has_a_class() -> None:
    """By name, from streamomd as well; the parameters are those of the rule."""
    assert {rule.name for rule, _ in rule_classes().values()} == set(all_rules())
    for name, (rule, _) in rule_classes().items():
        kind = getattr(streamomd, name)
        assert kind is getattr(estimators, name)
        assert set(rule.parse_params({})) <= set(kind().get_params(deep=False))
    with pytest.raises(AttributeError):
        _ = estimators.NoSuchClassifier


def with_gaps(classes: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A frame with missing numbers, categories as numbers and dates."""
    X, y, _ = made(classes)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.iloc[::7, 0] = np.nan
    frame["zip"] = np.arange(len(frame)) % 5
    frame["when"] = pd.date_range("2026-01-01", periods=len(frame), freq="D")
    frame["id"] = np.arange(len(frame))
    return frame, y


@pytest.mark.parametrize("nulls", ["mean", "zero", "indicator", {"a": "mean"}])
@pytest.mark.sample(2)
def test_frames_with_missing_values(nulls: Any) -> None:
    """Roles are parameters; NaN of pandas is a missing value; predictions accept it, too."""
    frame, y = with_gaps(2)
    if nulls == "zero":
        frame = frame.convert_dtypes()
    fitted = OMDClassifier(
        nulls=nulls, categorical=["zip"], dates=["when"], ignore=["id"], random_state=0
    ).fit(frame, y)
    plan = fitted.to_model().plan
    assert plan.numeric == ("a", "b", "c", "d")
    assert plan.hashed == ("zip",)
    assert [date.column for date in plan.dates] == ["when"]
    assert len(fitted.predict(frame)) == len(frame)


@pytest.mark.parametrize("nulls", ["mean", "zero"])
def test_arrays_with_missing_values(nulls: str) -> None:
    """As the array that was filled; without ``nulls`` scikit-learn's own message."""
    X, y, _ = made(2)
    X[::5, 1] = np.nan
    kind = {"nulls": nulls, "shuffle": False, "early_stopping": False}
    found = OMDClassifier(**kind).fit(X, y)
    filled, total, count = X.copy(), 0.0, 0
    for row in filled:
        if np.isnan(row[1]):
            row[1] = total / count if count and nulls == "mean" else 0.0
        else:
            total, count = total + row[1], count + 1
    assert np.array_equal(found.coef_, Classifier().fit(filled, y).coef_)
    assert np.isfinite(found.decision_function(X)).all()
    with pytest.raises(ValueError, match="NaN"):
        OMDClassifier().fit(X, y)
    with pytest.raises(UsageError, match="pass a frame"):
        OMDClassifier(nulls="indicator").fit(X, y)


def sixteen_columns(rows: int) -> tuple[pd.DataFrame, pd.Series]:
    """Seven numbers and nine categories."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{at}": random.normal(size=rows) for at in range(7)})
    for at in range(9):
        frame[f"c{at}"] = random.choice([f"v{k}" for k in range(12)], rows)
    return frame, (frame["n0"] + random.normal(size=rows) > 0).astype(int)


@pytest.mark.parametrize("rule", ["auto", "nag", "arow_diag", "ftrl_proximal"])
@pytest.mark.sample(2)
@pytest.mark.slow
def test_pickles_are_small(rule: str) -> None:
    """16 columns, nine of them hashed to 2^18 coordinates: below 100 KB, and the same bits."""
    frame, y = sixteen_columns(60)
    fitted = Classifier(rule).fit(frame, y)
    saved = pickle.dumps(fitted)
    assert len(saved) < 100_000
    again = pickle.loads(saved)
    assert bits(again) == bits(fitted)
    assert bits(again.partial_fit(frame, y)) == bits(fitted.partial_fit(frame, y))


def test_the_golden_pickle_loads() -> None:
    """An estimator of 22 November predicts what it predicted then, and learns more rows."""
    fitted, X, scores = pickle.loads(base64.b64decode(PICKLE.read_text()))
    assert np.array_equal(fitted.decision_function(X), scores)
    fitted.partial_fit(X, scores > 0)


@pytest.mark.slow
def test_pickles_of_many_rows_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the matrices of the default rule, one for each class, and the metrics of 5,000 rows."""
    monkeypatch.undo()  # compiled
    frame, y = sixteen_columns(5000)
    thirds = pd.qcut(frame["n0"] + frame["n1"], 3, labels=False)
    for labels, most in ((y, 75_000), (thirds, 180_000)):
        fitted = OMDClassifier(random_state=0).fit(frame, labels)
        saved = pickle.dumps(fitted)
        assert len(saved) < most
        again = pickle.loads(saved)
        assert bits(again) == bits(fitted)
        assert np.array_equal(again.decision_function(frame), fitted.decision_function(frame))


FLOATS = np.array([0.0, -0.0, np.nan, np.inf, 1.0, 0.1, 1e300, 1e-310, 5e-324])

ALMOST = np.linalg.inv(np.add.outer(range(9), range(9)) ** 2 + np.diag(range(1, 10)))
ALMOST[3, 4], ALMOST[5, 2] = np.nextafter(ALMOST[4, 3], 9.0), -ALMOST[2, 5]


@pytest.mark.parametrize("array", [
    FLOATS, FLOATS[[0, 1, 4]], np.arange(9), np.array([-1, 2**40]), np.array([-1, 70_000]),
    np.add.outer(FLOATS[4:], FLOATS[4:]), np.stack([np.eye(3), np.ones((3, 3))]), np.empty(0),
    np.array([[0.0, 0.0], [-0.0, 1.0]]), np.array([[0.0, np.nan], [np.nan, 1.0]]),
    ALMOST, ALMOST.astype(np.float32), np.arange(9.0).reshape(3, 3), np.arange(18).reshape(2, 3, 3),
], ids=lambda array: f"{array.dtype}-{array.shape}-{array.nbytes}")  # fmt: skip
@pytest.mark.parametrize("start", [True, False])
def test_arrays_of_a_pickle_return_to_the_bit(array: np.ndarray, *, start: bool) -> None:
    """Whatever makes them small: signs of zeros, NaN and denormal numbers are still there."""
    first = np.zeros_like(array) if start else None
    again = pickling._array(pickling._saved(array, first), first)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()


def test_a_pickled_array_of_few_numbers_is_small() -> None:
    """Also where the start of a state has another shape, as copies of weights have."""
    array, first = np.zeros((9_000, 2)), np.empty((0, 2))
    array[7] = 0.1, -0.0
    saved = pickling._saved(array, first)
    assert len(pickle.dumps(saved)) < 1_000
    assert pickling._array(saved, first).tobytes() == array.tobytes()


def test_scikit_learns_wrappers() -> None:
    """Votes, selections, importances, curves."""
    X, y, _ = made(3)
    quick = {"random_state": 0, "max_iter": 1}
    votes = [("a", OMDClassifier(**quick)), ("b", estimators.NAGClassifier(max_iter=1))]
    assert VotingClassifier(votes, voting="soft").fit(X, y).score(X, y) > 0.5
    bagged = BaggingClassifier(OMDClassifier(**quick), n_estimators=3, random_state=0)
    assert bagged.fit(X, y).score(X, y) > 0.5
    assert RFE(OMDClassifier(**quick), n_features_to_select=2).fit(X, y).support_.sum() == 2
    chosen = SelectFromModel(OMDClassifier(**quick), max_features=2, threshold=-np.inf)
    assert chosen.fit_transform(X, y).shape == (90, 2)
    fitted = OMDClassifier(**quick).fit(X, y)
    assert permutation_importance(fitted, X, y, n_repeats=2).importances_mean.shape == (4,)
    sizes, *_ = learning_curve(OMDClassifier(**quick), X, y, cv=2, train_sizes=[0.5, 1.0])
    assert list(sizes) == [22, 45]
