"""scikit-learn's own checks of estimators, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimating import Classifier, Regressor, made, uncompiled
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import (
    BadRowError,
    DataError,
    DivergedError,
    SchemaError,
    StreamomdError,
    UnsupportedError,
    UsageError,
)
from streamomd.integrations.sklearn import (
    EXPECTED_FAILED_CHECKS,
    NAGClassifier,
    VAWRegressor,
    expected_failed_checks,
)
from streamomd.integrations.sklearn.estimator_job import spec_of
from streamomd.integrations.sklearn.rule_classes import FAR, LEARNED, rule_class, rule_classes
from streamomd.rules import all_rules

pytestmark = pytest.mark.smoke

LONG = "check_class_weight_classifiers"
"""A thousand epochs, twice: compiled, in the long run."""


def checks(estimators: Iterable[Any]) -> Iterator[Any]:
    """Every check of each; those that cannot hold are expected to fail, with the reason."""
    for one in estimators:
        expected = expected_failed_checks(one)
        for param in estimator_checks_generator(one, expected_failed_checks=expected, mark="xfail"):
            values, marks = getattr(param, "values", param), getattr(param, "marks", ())
            name = values[1].func.__name__
            marks = (*marks, pytest.mark.slow) if name == LONG else marks
            more = "".join(f"-{key}={value}" for key, value in values[1].keywords.items())
            yield pytest.param(*values, marks=marks, id=f"{one}-{name}{more}")


def every() -> Iterator[Any]:
    """Every rule as a classifier, and as a regressor where it learns numbers."""
    for kind in (Classifier, Regressor):
        yield from (made for made in map(kind, all_rules()) if is_a_job(made))


def is_a_job(estimator: Any) -> bool:
    """Whether its defaults go together."""
    try:
        spec_of(estimator, {})
    except UsageError:
        return False
    return True


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if LONG not in request.node.name:
        uncompiled(monkeypatch, dear=not request.node.get_closest_marker("slow"))


DEFAULTS = [OMDClassifier(), OMDRegressor(), NAGClassifier(), VAWRegressor()]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        *checks(DEFAULTS[:2]),
        # Classes of one rule have no code of their own but their parameters.
        *(
            pytest.param(*one.values, marks=(*one.marks, pytest.mark.slow), id=one.id)
            for one in checks(DEFAULTS[2:])
        ),
    ],
)
@pytest.mark.sample(6)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    """Every one of them."""
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered")  # of steps in plain Python
def test_scikit_learns_checks_of_every_rule(estimator: Any, check: Callable[[Any], None]) -> None:
    """As above."""
    check(estimator)


def undecided() -> Iterator[Any]:
    """The checks that not every rule passes, of the class of each rule."""
    some = {LONG, *FAR, *LEARNED, *EXPECTED_FAILED_CHECKS}
    for param in checks(filter(is_a_job, (rule_class(name)() for name in rule_classes()))):
        if param.values[1].func.__name__ in some:
            yield param


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_what_each_class_cannot_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    """With the defaults, rows shuffled and early stopping: what is expected fails, and no other."""
    check(estimator)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cases of long tests are made in the long run only: to name 8,000 of them takes seconds."""
    cases = {
        test_scikit_learns_checks_of_every_rule: lambda: checks(every()),
        test_what_each_class_cannot_pass: undecided,
    }.get(metafunc.function)
    if cases is not None:
        metafunc.parametrize(("estimator", "check"), [*cases()])


def test_expected_failures_of_the_defaults() -> None:
    """The two that are declared, and no other; of rules that are sums none."""
    assert expected_failed_checks(OMDClassifier()) == EXPECTED_FAILED_CHECKS
    assert expected_failed_checks(OMDRegressor()) == EXPECTED_FAILED_CHECKS
    assert set(EXPECTED_FAILED_CHECKS) == {
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    }
    assert expected_failed_checks(VAWRegressor()) == {}


def test_parameters_are_refused_by_name() -> None:
    """By fit and not before: which one, what came, what is known."""
    X, y, _ = made(2)
    for kind, told, message in (
        (OMDClassifier, {"rule": "nagg"}, "unknown rule 'nagg'; did you mean 'nag'"),
        (OMDClassifier, {"loss": "hing"}, "unknown loss 'hing'; did you mean 'hinge'"),
        (OMDClassifier, {"eta0": 1.0}, "sets eta, but no rule is named: rule auto"),
        (OMDClassifier, {"rule": "auto", "fit_intercept": False}, "'auto' needs the bias"),
        (
            OMDClassifier,
            {"rule": "nag", "eta0": -1},
            "eta = -1: expected a number above 0",
        ),
        (OMDClassifier, {"rule": "pa1", "eta0": 1.0}, "'pa1' has no parameter 'eta'; it has: C"),
        (OMDClassifier, {"eta0": 1.0, "params": {"eta": 2}}, "eta is given twice"),
        (OMDClassifier, {"params": [1]}, "expected a dict"),
        (OMDClassifier, {"max_iter": 0}, "max_iter = 0"),
        (OMDClassifier, {"dtype": "float16"}, "dtype = 'float16'"),
        (OMDRegressor, {"loss": "hinge"}, "use OMDClassifier"),
        (OMDRegressor, {"rule": "pa1"}, "rule 'pa1' learns with loss hinge; got 'square'"),
    ):
        with pytest.raises(UsageError, match=message.replace("(", r"\(")):
            kind(**told).fit(X, y)


def test_numbers_of_numpy_are_numbers() -> None:
    """As a grid of parameters has them."""
    X, y, _ = made(2)
    told = {"eta0": np.float32(0.5), "max_iter": np.int64(2), "fit_intercept": np.bool_(True)}
    given = Classifier("nag", **told)
    assert np.array_equal(
        given.fit(X, y).coef_, Classifier("nag", eta0=0.5, max_iter=2).fit(X, y).coef_
    )


def test_rows_are_refused_with_their_place() -> None:
    """Of arrays as scikit-learn does, of frames as shards are."""
    X, y, weight = made(2)
    frame = pd.DataFrame({"n": X[:, 0], "h": ["a"] * len(y)})
    fitted = Classifier().fit(frame, y)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, "Input X contains NaN", lambda: Classifier().fit([[np.nan]] * len(y), y)),
        (BadRowError, "X, row 3, column 'n': found null",
         lambda: fitted.predict(frame.assign(n=[*X[:3, 0], None, *X[4:, 0]]))),
        (UsageError, "pass a frame with columns n, h", lambda: fitted.predict(X[:, :2])),
        (ValueError, "same order", lambda: fitted.predict(frame[["h", "n"]])),
        (SchemaError, "column 'h' is float64", lambda: fitted.predict(frame.assign(h=1.0))),
        (DataError, "no rows", lambda: fitted.predict(frame.iloc[:0])),
        (DataError, "0 or more", lambda: fitted.fit(frame, y, -weight - 1)),
        (DataError, "1 class, expected two", lambda: Classifier().fit(X, y * 0)),
        (DataError, "float32 can hold", lambda: Regressor(dtype="float32").fit([[1e39]], [1.0])),
        (DataError, "0 or more", lambda: Regressor(loss="poisson").fit(X, y - 9.0)),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()


def test_continuing_needs_the_original_parameters() -> None:
    """The first call names the classes; later ones bring no others, and no other parameters."""
    X, y, _ = made(3)
    with pytest.raises(UsageError, match="needs all classes"):
        Classifier().partial_fit(X, y)
    begun = Classifier("nag").partial_fit(X[y < 2], y[y < 2], classes=[0, 1])
    with pytest.raises(DataError, match=r"y holds .*2.* in row \d+, expected one of the classes"):
        begun.partial_fit(X, y)
    with pytest.raises(UsageError, match="pass them once"):
        begun.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(UsageError, match="params was"):
        begun.set_params(eta0=0.125).partial_fit(X[y < 2], y[y < 2])
    with pytest.raises(UsageError, match="rule was 'nag' and is 'adagrad' now"):
        begun.set_params(rule="adagrad", warm_start=True).fit(X[y < 2], y[y < 2])
    with pytest.raises(UsageError, match="all labels in one batch"):
        Classifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(UnsupportedError, match="needs a pass over all rows before"):
        Regressor("nag_projected", params={"passes": 2}).partial_fit(X, y)


def test_overflow_is_reported() -> None:
    """Where weights overflow fit raises; where a margin alone does, no class is guessed."""
    with pytest.raises(DivergedError, match="the model diverged"):
        Regressor("ogd", eta0=1e300).fit([[1e100]] * 9, [1.0] * 9)
    with pytest.raises(DivergedError, match="the model diverged"):
        Classifier("ogd", "square", eta0=1e300).fit([[1e100], [-1e100]] * 9, [0, 1] * 9)
    sound = Classifier("ogd", eta0=100.0).fit([[1.0, -1.0], [-1.0, 1.0]] * 9, [0, 1] * 9)
    with pytest.raises(DataError, match="margin of row 0 is NaN"):
        sound.predict([[1.7e308, 1.7e308]])


def test_probabilities_are_there_where_the_loss_has_them() -> None:
    """As SGDClassifier: an AttributeError with other losses, also before fit."""
    for loss, there in (("log_loss", True), ("softmax", True), (None, True), ("hinge", False)):
        assert hasattr(Classifier(loss=loss), "predict_proba") == there
    assert not hasattr(Classifier("pa1"), "predict_proba")
    assert not hasattr(Classifier(loss="nothing"), "predict_proba")
    assert not hasattr(Regressor(), "decision_function")


def test_importing_them_costs_no_numba() -> None:
    """Nor do their attributes before ``fit``."""
    code = "import sys, streamomd; streamomd.OMDClassifier(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_scikit_learn_the_extra_is_named() -> None:
    """Only when they are asked for."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import streamomd, streamomd.cli\n"
        "try: streamomd.OMDClassifier\n"
        "except ImportError as error: sys.exit(f'{type(error).__name__}: {error}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("MissingExtraError: ")
    assert "pip install 'streamomd[sklearn]'" in done.stderr


def test_errors_are_value_errors() -> None:
    """What scikit-learn's meta-estimators expect of a failed fit."""
    assert issubclass(UsageError, ValueError)
    assert issubclass(DataError, ValueError)
    assert issubclass(UsageError, StreamomdError)


def test_labels_in_long_runs_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """Sorted labels and few epochs in the given order: a note with what to do, and none else."""
    x = np.random.default_rng(0).normal(size=(150, 2))
    y = np.repeat([0, 1, 2], 50)
    Classifier("ogd").fit(x, y)
    noted = capfd.readouterr().err
    assert "labels come in long runs (2 changes in 150 rows" in noted
    assert "Pass shuffle=True, or learn several epochs (max_iter=3)" in noted
    Classifier("ogd", shuffle=True, random_state=0).fit(x, y)
    Classifier("ogd", max_iter=3).fit(x, y)
    Classifier("ogd").fit(x, np.tile([0, 1, 2], 50))
    Classifier("ogd").fit(x[:90], y[:90])
    Classifier("ogd").fit(x, np.arange(150) >= 140)  # of rare labels, runs can be chance
    Regressor("ogd").fit(x, y.astype(float))
    assert "long runs" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", [str, object])
def test_texts_are_no_targets_of_a_regressor(kind: type) -> None:
    """The error shows one, and names the classifier."""
    y = np.array(["a", "b"] * 5, dtype=kind)
    with pytest.raises(ValueError, match=r"y holds .a., and a regressor learns.*OMDClassifier"):
        OMDRegressor().fit(np.zeros((10, 1)), y)
