"""Searches, pipelines and scikit-learn's wrappers find parameters by name and the estimators in
place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimating import bits, made, uncompiled
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor, StackingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (it defines the next one)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_validate,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import UsageError
from streamomd.integrations import sklearn as estimators
from streamomd.integrations.sklearn.rule_classes import rule_class, rule_classes
from streamomd.rules import all_rules

X, Y, WEIGHT = made(2)
ONCE = {"random_state": 0, "max_iter": 1}
FTRL = estimators.FTRLClassifier


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


SEARCHES: dict[str, tuple[Any, dict[str, Any]]] = {
    "nested": (OMDClassifier("ftrl_proximal", **ONCE), {"rule__l1": [0.0, 1e4]}),
    "flat": (FTRL(**ONCE), {"l1": [0.0, 1e4]}),
    "nested in a pipeline": (
        make_pipeline(StandardScaler(), OMDClassifier("ftrl_proximal", **ONCE)),
        {"omdclassifier__rule__l1": [0.0, 1e4]},
    ),
    "flat in a pipeline": (
        make_pipeline(StandardScaler(), FTRL(**ONCE)), {"ftrlclassifier__l1": [0.0, 1e4]},
    ),
    "nested in a wrapper": (
        OneVsRestClassifier(OMDClassifier("ftrl_proximal", **ONCE)),
        {"estimator__rule__l1": [0.0, 1e4]},
    ),
    "several rules": (
        OMDClassifier(**ONCE), [{"rule": ["ftrl_proximal"], "rule__l1": [0.0, 1e4]},
                                {"rule": ["winnow"]}],
    ),
    "with other parameters": (FTRL(**ONCE), {"l1": [0.0], "max_iter": [1, 2], "loss": ["hinge"]}),
}  # fmt: skip


@pytest.mark.parametrize("case", SEARCHES)
@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV])
@pytest.mark.sample(3)
def test_searches_tune_parameters_of_the_rule(case: str, search: Any) -> None:
    """A strength that sets all weights to 0 loses; the best estimator has the other one."""
    estimator, grid = SEARCHES[case]
    more = {"n_iter": 2, "random_state": 0} if search is RandomizedSearchCV else {}
    found = search(estimator, grid, cv=2, error_score="raise", **more)
    found.fit(X, Y)
    assert found.score(X, Y) > 0.6
    values = {key: value for key, value in found.best_params_.items() if key.endswith("l1")}
    assert set(values.values()) <= {0.0}


def test_parameters_are_drawn_from_distributions() -> None:
    """numpy's numbers of a distribution are numbers of the rule."""
    from scipy.stats import loguniform

    grid = {"rule__eta": loguniform(1e-3, 10.0)}
    search = RandomizedSearchCV(OMDClassifier("nag", **ONCE), grid, n_iter=4, cv=2, random_state=0)
    best = search.fit(X, Y).best_estimator_
    assert best.to_model().spec.model.params["eta"] == search.best_params_["rule__eta"]


@pytest.mark.parametrize("name", sorted(rule_classes()))
def test_each_parameter_of_each_class_can_be_set(name: str) -> None:
    """Also to what it is; a clone has it, and its repr names what differs from the default."""
    kind = rule_class(name)
    for key, value in kind().get_params().items():
        assert clone(kind().set_params(**{key: value})).get_params() == kind().get_params()
        other = clone(kind().set_params(**{key: "other"}))
        assert other.get_params() == {**kind().get_params(), key: "other"}
        assert repr(other) == f"{name}({key}='other')"


@pytest.mark.parametrize("rule", sorted(all_rules()))
def test_parameters_of_the_rule_are_nested_ones(rule: str) -> None:
    """Each name of the rule, and setting it fits with it."""
    own = all_rules()[rule].parse_params({})
    nested = {k: v for k, v in OMDClassifier(rule).get_params().items() if k.startswith("rule__")}
    assert nested == {f"rule__{key}": value for key, value in own.items()}
    for key in own:
        changed = OMDClassifier(rule).set_params(**{f"rule__{key}": "other"})
        assert clone(changed).get_params()[f"rule__{key}"] == "other"


def test_unknown_parameters_have_near_names() -> None:
    """Of the estimator, of the rule, of a class of a rule, of the constructors."""
    for call, near in (
        (lambda: OMDClassifier().set_params(max_itr=3), "did you mean 'max_iter'?"),
        (lambda: OMDClassifier("ftrl").set_params(rule__l_1=3), "did you mean 'l1'?"),
        (lambda: FTRL().set_params(L1=3), "did you mean 'l1'?"),
        (lambda: FTRL().set_params(rule__lambda1=3), "known: "),
        (lambda: make_pipeline(FTRL()).set_params(ftrlclassifier__bta=3), "did you mean 'beta'?"),
    ):
        with pytest.raises(UsageError, match=near.replace("?", r"\?")):
            call()
    for call, near in (
        (lambda: OMDClassifier(max_itr=3), "did you mean 'max_iter'?"),
        (lambda: OMDRegressor(class_weight=3), "OMDRegressor() has no argument"),
        (lambda: OMDClassifier(average=True), "no argument 'average'"),
        (lambda: FTRL(L1=3), "did you mean 'l1'?"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert near in str(error.value)


def people() -> pd.DataFrame:
    """Numbers with gaps, a code and a text."""
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.iloc[::7, 0] = np.nan
    return frame.assign(zip=np.arange(len(frame)) % 5, job=np.array(["cook", "nurse"])[Y])


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_behind_column_transformers(output: str) -> None:
    """Arrays and frames of both libraries between; searched through the pipeline."""
    steps = ColumnTransformer(
        [("zip", OneHotEncoder(sparse_output=False), ["zip"]), ("rest", "passthrough", ["b", "c"])]
    ).set_output(transform=output)
    pipeline = make_pipeline(steps, OMDClassifier("nag", **ONCE))
    search = GridSearchCV(pipeline, {"omdclassifier__rule__eta": [0.1, 1.0]}, cv=2)
    assert search.fit(people(), Y).score(people(), Y) > 0.5
    assert search.predict(people()[:1]).shape == (1,)


def test_a_sparse_transformer() -> None:
    """Its matrix, too."""
    steps = make_column_transformer((OneHotEncoder(), ["zip", "job"]), sparse_threshold=1.0)
    assert make_pipeline(steps, OMDClassifier(**ONCE)).fit(people(), Y).score(people(), Y) > 0.9


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("given", [{"rule": "pa1"}, {}, {"rule": "nag", "loss": "hinge"}])
def test_calibration(method: str, given: dict[str, Any]) -> None:
    """Of margins, weights and frames; probabilities sum to 1."""
    frame = people().drop(columns="a")
    for rows, weight in ((X, WEIGHT + 1), (frame, None)):
        found = CalibratedClassifierCV(OMDClassifier(**given, **ONCE), method=method, cv=2)
        likely = found.fit(rows, Y, sample_weight=weight).predict_proba(rows)
        assert np.allclose(likely.sum(axis=1), 1.0)
        assert (likely.argmax(axis=1) == Y).mean() > 0.7


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("classes", [2, 3])
def test_cross_val_predict(method: str, classes: int) -> None:
    """Each row by a model of other rows, as fitting them yourself gives."""
    x, y, _ = made(classes)
    halves = np.arange(45), np.arange(45, 90)
    found = cross_val_predict(OMDClassifier(**ONCE), x, y, cv=[halves, halves[::-1]], method=method)
    first = OMDClassifier(**ONCE).fit(x[:45], y[:45])
    assert np.array_equal(found[45:], getattr(first, method)(x[45:]))


def test_cross_validate_returns_estimators() -> None:
    """Several scores, from pickles of other processes' estimators."""
    scores = ["accuracy", "neg_log_loss", "roc_auc"]
    found = cross_validate(OMDClassifier(**ONCE), X, Y, cv=2, scoring=scores, return_estimator=True)
    assert all(np.isfinite(found[f"test_{name}"]).all() for name in scores)
    assert bits(found["estimator"][0]) != bits(found["estimator"][1])


MANY = np.column_stack([Y, 1 - Y, X[:, 0] > 0])
NUMBERS = np.column_stack([X[:, 0], X[:, 1] * 2.0])
WRAPPED: dict[str, tuple[Any, Any]] = {
    "several outputs": (MultiOutputRegressor(OMDRegressor(**ONCE)), NUMBERS),
    "a chain of numbers": (RegressorChain(OMDRegressor(**ONCE)), NUMBERS),
    "several labels, one against rest": (OneVsRestClassifier(OMDClassifier(**ONCE)), MANY),
    "several outputs of classes": (MultiOutputClassifier(OMDClassifier(**ONCE)), MANY),
    "a chain of classes": (ClassifierChain(OMDClassifier(**ONCE)), MANY),
    "one against rest": (OneVsRestClassifier(FTRL(**ONCE)), Y + (X[:, 0] > 1)),
    "one against one": (OneVsOneClassifier(OMDClassifier(**ONCE)), Y + (X[:, 0] > 1)),
    "codes": (OutputCodeClassifier(OMDClassifier(**ONCE), random_state=0), Y + (X[:, 0] > 1)),
    "stacked": (StackingClassifier([("a", OMDClassifier(**ONCE)), ("b", FTRL(**ONCE))],
                                   LogisticRegression(), cv=2), Y),
    "boosted": (AdaBoostClassifier(OMDClassifier(**ONCE), n_estimators=3, random_state=0), Y),
    "bagged": (BaggingRegressor(OMDRegressor(**ONCE), n_estimators=3, random_state=0), X[:, 0]),
    "a target in logarithms": (
        TransformedTargetRegressor(OMDRegressor(**ONCE), func=np.log1p, inverse_func=np.expm1),
        np.abs(X[:, 0]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRAPPED)
def test_wrappers(case: str) -> None:
    """Several outputs, labels and classes; better than a constant."""
    estimator, targets = WRAPPED[case]
    fitted = clone(estimator).fit(X, targets)
    found = fitted.predict(X)
    assert found.shape == np.shape(targets)
    numbers = np.asarray(targets, float)
    if numbers.dtype == np.asarray(targets).dtype:
        assert np.square(found - numbers).sum() < np.square(numbers - numbers.mean(axis=0)).sum()
    else:
        assert (found == targets).mean() > 0.6
