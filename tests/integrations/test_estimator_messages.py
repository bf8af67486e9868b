"""Every error that an estimator can raise is in scikit-learn's words: X, y and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from estimating import Classifier, Regressor, made, uncompiled

from streamomd import OMDClassifier, OMDRegressor
from streamomd.core.errors import DivergedError, StreamomdError
from streamomd.integrations import sklearn as estimators

FOREIGN = re.compile(
    r"shard|\[(data|model|train)\]|job\.toml|\bjob\b|--|\b(data|model|train|checkpoint)\.\w|"
    r"streamomd (list|train|checkpoint|plan)|URL|\bcommit|Parquet|on_bad_row|large_string|"
    r"\bdouble\b|np\.(int64|float64)\(",
    re.I,
)
"""Words of files, jobs, the command line and Arrow."""
X, Y, WEIGHT = made(2)
N = len(Y)
MIXED = pd.DataFrame(X, columns=list("abcd")).assign(h=["u", "v"] * (N // 2))
DAYS = pd.date_range("2026-01-01", periods=N)
GAPS = np.where(X == 0, np.nan, X)


def one(column: Any, name: str = "l") -> pd.DataFrame:
    """The frame with this column."""
    return MIXED.assign(**{name: column})


WRONG_X: dict[str, Any] = {
    "None": None, "text": "abc", "a number": 5, "1-d": X[:, 0], "3-d": X[None], "no rows": X[:0],
    "no columns": X[:, :0], "words": np.array([["a"]] * N), "objects": np.array([[object()]] * N),
    "complex": X * 1j, "NaN": GAPS, "inf": np.where(X == 0, np.inf, X),
    "ragged": [[1], [1, 2]] * (N // 2), "a dict": {"a": 1}, "dicts": [{"a": 1}] * N,
    "sparse NaN": sp.csr_array(GAPS),
    "periods": one(DAYS.to_period("D")), "intervals": one(pd.interval_range(0, N)),
    "two types": one([1, "a"] * (N // 2)), "nothing": one([None] * N), "bytes": one(b"x"),
    "a null": one([np.nan] + [1.0] * (N - 1), "a"), "an inf": one([np.inf] * N, "a"),
    "2^60 + 1": one([2**60 + 1] * N, "a"), "2^80": one([2**80] * N, "a"),
    "half a surrogate": one(pd.Series(["\ud800"] * N, dtype=object), "h"), "1j": one(1j, "a"),
    "a column twice": pd.concat([MIXED, MIXED], axis=1), "object cells": one([object()] * N),
    "names of two types": pd.DataFrame(X, columns=["a", 1, 2, 3]), "an empty frame": MIXED[:0],
    "a frame without columns": MIXED[[]], "a series": MIXED["a"],
    "a null of polars": pl.DataFrame({"a": [None] + [1.0] * (N - 1)}),
    "nulls of Arrow": pa.table({"a": [None] * N}),
    "maps": pa.table({"a": pa.array([[("k", 1)]] * N, pa.map_(pa.string(), pa.int64()))}),
}  # fmt: skip
WRONG_Y: dict[str, Any] = {
    "None": None, "short": Y[:5], "2-d": np.c_[Y, Y], "NaN": np.where(Y == 0, np.nan, 1.0),
    "inf": np.where(Y == 0, np.inf, 1.0), "None among texts": np.array([None, "a"] * (N // 2)),
    "two types": np.array([1, "a"] * (N // 2), object), "objects": np.array([object()] * N),
    "dates": DAYS.to_numpy(), "empty": [], "a scalar": 1,
    "bytes": np.array([b"a", b"b"] * (N // 2)), "complex": Y * 1j,
    "ragged": [[1], [1, 2]] * (N // 2),
}  # fmt: skip
WRONG_WEIGHTS: dict[str, Any] = {
    "negative": -WEIGHT - 1, "short": WEIGHT[:3], "NaN": WEIGHT * np.nan, "inf": WEIGHT + np.inf,
    "texts": np.array(["a"] * N), "2-d": np.c_[WEIGHT, WEIGHT], "all 0": WEIGHT * 0,
}  # fmt: skip
LATER: dict[str, Any] = {
    "a column less": MIXED.drop(columns="a"), "two less": MIXED.drop(columns=["a", "h"]),
    "one more": MIXED.assign(z=1), "another order": MIXED[["h", "a", "b", "c", "d"]],
    "another name": MIXED.rename(columns={"a": "aa"}), "case": MIXED.rename(columns={"a": "A"}),
    "text for a number": one("x", "a"), "a number for text": one(1.0, "h"),
    "both": MIXED.assign(a="x", h=1), "a date for a number": one(DAYS, "a"),
    "a frame of polars": pl.DataFrame({"a": ["x"] * N}),
}  # fmt: skip
ROLES: tuple[dict[str, Any], ...] = (
    {"text": ["a"]}, {"dates": ["h"]}, {"text": ["zz"]}, {"categorical": ["zz"]}, {"dates": ["zz"]},
    {"ignore": ["zz"]}, {"text": ["h"], "categorical": ["h"]}, {"ignore": list("abcdh")},
    {"nulls": {"zz": "mean"}}, {"nulls": {"a": "men"}}, {"nulls": {"h": "mean"}}, {"nulls": 5},
    {"bits": 99}, {"bits": "x"}, {"text": [{"column": "h", "ngram": 2}]},
    {"text": [{"colum": "h"}]}, {"text": [{"column": "h", "ngrams": 0}]},
    {"class_weight": "balance"}, {"class_weight": {7: 1}}, {"class_weight": {0: -1}},
    {"class_weight": {0: np.nan}}, {"class_weight": [1]},
)  # fmt: skip
ARRAYS: tuple[dict[str, Any], ...] = (
    {"text": ["h"]}, {"nulls": {"a": "mean"}}, {"nulls": "indicator"}, {"dtype": "float16"},
    {"rule": "nagg"}, {"rule": 5}, {"loss": "hing"}, {"rule": "nag", "params": {"etta": 1}},
    {"rule": "nag", "params": {"l1": 1}}, {"rule": "nag", "params": {"eta": "a"}},
    {"rule": "nag", "params": [1]}, {"rule": "ftrl_proximal", "params": {"l1": -1}},
    {"rule": "nag", "eta0": np.nan}, {"eta0": 1, "params": {"eta": 1}, "rule": "nag"},
    {"fit_intercept": "x"}, {"rule": "auto", "fit_intercept": False}, {"eta0": 1.0},
    {"max_iter": 0}, {"max_iter": "a"}, {"max_iter": 1.5}, {"random_state": "x"}, {"tol": -1},
    {"rule": "auto", "params": {"block": -1}},
    {"rule": "vaw", "loss": "hinge"}, {"rule": "adagrad_da", "loss": "square"},
    {"loss": "pinball", "loss_params": {"tau": 2}}, {"loss_params": {"tua": 2}},
)  # fmt: skip


def fits() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of fit and partial_fit."""
    for name, x in WRONG_X.items():
        yield f"fit X: {name}", lambda x=x: Classifier().fit(x, Y)
    for name, y in WRONG_Y.items():
        yield f"fit y: {name}", lambda y=y: Classifier().fit(MIXED, y)
        yield f"regression y: {name}", lambda y=y: Regressor().fit(MIXED, y)
    for name, w in WRONG_WEIGHTS.items():
        yield f"weights: {name}", lambda w=w: Classifier().fit(X, Y, w)
    for given in ROLES:
        yield f"frame {given}", lambda given=given: OMDClassifier(**given).fit(MIXED, Y)
    for given in ARRAYS:
        yield f"array {given}", lambda given=given: OMDClassifier(**given).fit(X, Y)
    regression = ({"loss": "hinge"}, {"rule": "pa1"}, {"rule": "adagrad_da"}, {"loss": "poisson"})
    for given in regression:
        yield f"regression {given}", lambda given=given: OMDRegressor(**given).fit(X, -Y)
    yield "one class", lambda: Classifier().fit(X, Y * 0)
    yield "fractions", lambda: Classifier().fit(X, X[:, 0])
    large, small = pd.DataFrame({"a": [1e39, 1.0]}), [1e-310, 1e200]
    yield "beyond float32", lambda: Regressor(dtype="float32").fit([[1e39], [1.0]], [1.0, 2.0])
    yield "a frame beyond float32", lambda: Regressor(dtype="float32").fit(large, [1.0, 2.0])
    yield "beyond the range", lambda: Classifier("nag").fit([[v] for v in small], [0, 1])
    yield "a frame beyond", lambda: Classifier("nag").fit(pd.DataFrame({"a": small}), [0, 1])
    yield "diverged", lambda: Regressor("ogd", eta0=1e300).fit([[1e100]] * 9, [1.0] * 9)
    yield "a large matrix", lambda: Classifier("ons").fit(sp.csr_array((3, 10**6)), [0, 1, 0])
    yield "a class of a rule", lambda: estimators.FTRLClassifier(l1="x").fit(X, Y)


def predictions() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of fitted estimators: of a frame with text, an array, a sparse matrix, and of none."""
    framed, array = Classifier().fit(MIXED, Y), Classifier().fit(X, Y)
    sparse = Classifier().fit(sp.csr_array(X), Y)
    for name, x in {**WRONG_X, **LATER}.items():
        yield f"framed: {name}", lambda x=x: framed.predict(x)
        yield f"array: {name}", lambda x=x: array.predict(x)
        yield f"sparse: {name}", lambda x=x: sparse.predict(x)
    for method in ("predict_proba", "decision_function", "partial_fit"):
        more = (Y,) if method == "partial_fit" else ()
        for name, x in LATER.items():
            yield f"{method} {name}", lambda x=x, m=method, more=more: getattr(framed, m)(x, *more)
    for name, y in WRONG_Y.items():
        yield f"later y: {name}", lambda y=y: array.partial_fit(X, y)
    yield "fewer columns", lambda: array.predict(X[:, :2])
    yield "fewer columns of a matrix", lambda: sparse.predict(sp.csr_array(X[:, :2]))
    yield "an array for a frame", lambda: framed.predict(X)
    yield "unknown label", lambda: array.partial_fit(X, Y + 1)
    yield "unknown text", lambda: array.partial_fit(X, np.array(["a", "b"])[Y])
    yield "other classes", lambda: array.partial_fit(X, Y, classes=[0, 1, 2])
    yield "no classes", lambda: Classifier().partial_fit(X, Y)
    yield "one class", lambda: Classifier().partial_fit(X, Y, classes=[0])
    yield "a label outside", lambda: Classifier().partial_fit(X, Y + 1, classes=[0, 1])
    yield "balanced", lambda: Classifier(class_weight="balanced").partial_fit(X, Y, [0, 1])
    for given in ({"rule": "ogd"}, {"dtype": "float32"}, {"bits": 5}, {"nulls": "mean"}):
        changed = Classifier("nag").partial_fit(MIXED, Y, [0, 1]).set_params(**given)
        yield f"changed {given}", lambda changed=changed: changed.partial_fit(MIXED, Y)
    looks = Regressor("nag_projected", params={"passes": 2})
    yield "passes", lambda: looks.partial_fit(X, X[:, 0])
    fresh = Classifier()
    for name in ("predict", "predict_proba", "decision_function"):
        yield f"unfitted {name}", lambda name=name: getattr(fresh, name)(X)
    for name in ("coef_", "intercept_", "t_"):
        yield f"unfitted {name}", lambda name=name: getattr(fresh, name)
    yield "unfitted to_model", lambda: fresh.to_model()
    yield "no probabilities", lambda: Classifier(loss="hinge").fit(X, Y).predict_proba(X)
    yield "another kind", lambda: OMDRegressor.from_model(array.to_model())
    yield "another rule", lambda: estimators.OGDClassifier.from_model(array.to_model())
    far = Classifier("ogd", eta0=100.0).fit([[1.0, -1.0], [-1.0, 1.0]] * 9, [0, 1] * 9)
    yield "overflow", lambda: far.predict([[1.7e308, 1.7e308]])
    yield "an unknown parameter", lambda: OMDClassifier().set_params(etta0=1)
    yield "an unknown argument", lambda: OMDClassifier(etta0=1)


@pytest.mark.filterwarnings("ignore")  # of numpy and pandas, for what is converted
@pytest.mark.parametrize("calls", [fits, predictions])
def test_messages(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name X, y and parameters; none speaks of files, jobs, options or types of Arrow."""
    uncompiled(monkeypatch)
    accepted, foreign, other = set(), {}, {}
    for name, call in calls():
        try:
            call()
        except (ValueError, TypeError, AttributeError, StreamomdError) as error:
            if FOREIGN.search(str(error)):
                foreign[name] = str(error)
        except Exception as error:
            other[name] = repr(error)
        else:
            accepted.add(name)
    assert (foreign, other, accepted) == ({}, {}, set())


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Classifier().fit(one([np.nan] * N, "a"), Y),
     "X, row 0, column 'a': found null, expected a number: drop the row, or fit with "
     'nulls="mean", "zero" or "indicator"'),
    (lambda: Classifier().fit(one([np.inf] * N, "a"), Y),
     "X, row 0, column 'a': found inf, expected a finite number: drop the row, or replace the "
     "value"),
    (lambda: Classifier().fit(MIXED, Y).predict(MIXED.assign(a="x", h=1.5)),
     "X: column 'a' is text, the model was trained on float64; column 'h' is float64, the model "
     "was trained on text: convert them to that type"),
    (lambda: Regressor("ogd", eta0=1e300).fit([[1e100]] * 9, [1.0] * 9),
     "the model diverged: a prediction is inf after rows 0 to 8 of the rows given. Fit again with "
     "a smaller eta0, or scale the columns of X (StandardScaler)"),
    (lambda: OMDRegressor("adagrad_da").fit(X, Y),
     "rule 'adagrad_da' needs a bound on the slope of the loss, and 'square' has none: give one "
     "(L=…, or params={'L': …}), larger than any slope the run will meet"),
    (lambda: Classifier().fit(MIXED, DAYS),
     "y is of type datetime64[us], expected numbers, text or booleans"),
    (lambda: OMDClassifier("nag").set_params(rule__etta=1),
     "rule 'nag' has no parameter 'etta'; did you mean 'eta'? it has: eta, implicit"),
    (lambda: estimators.NAGClassifier(eta0=1),
     "NAGClassifier() has no argument 'eta0'; did you mean 'eta'?"),
    (lambda: OMDRegressor().set_params(max_iters=1),
     "Invalid parameter 'max_iters' for estimator OMDRegressor(); did you mean 'max_iter'?"),
])  # fmt: skip
def test_messages_say_what_to_do(
    call: Callable[[], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole text."""
    uncompiled(monkeypatch)
    with pytest.raises((ValueError, TypeError, DivergedError)) as error:
        call()
    assert str(error.value) == message


@pytest.mark.parametrize(("frame", "y", "message"), [
    (one([np.nan] * N, "a"), Y,
     "X dask partition 0, row 0, column 'a': found null, expected a number; drop the row, or fit "
     'with nulls="mean", "zero" or "indicator"'),
    (one([1e39] * N, "a"), Y,
     "X dask partition 0, row 0, column 'a': found 1e+39, expected a number float32 can hold; "
     'scale the column, or pass dtype="float64"'),
    (one(DAYS), Y,
     "X: column 'l' is timestamp[us]: without a role it must be a number, a boolean, a string or a "
     "list of strings; name it in dates or pass it in ignore=[…]\nas parameters:\n"
     '  dates = ["l"]'),
    (MIXED, np.where(Y == 0, np.nan, 1.0),
     "X dask partition 0, row 0, column 'y': found null, expected a number; leave such rows out, "
     "or fix them"),
])  # fmt: skip
def test_messages_about_a_collection(frame: Any, y: Any, message: str) -> None:
    """The whole text: those of training, in these words too."""
    pytest.importorskip("dask")
    import dask.dataframe as dd

    X, labels = (dd.from_pandas(some, npartitions=2) for some in (frame, pd.Series(y, name="y")))
    kind = OMDRegressor if np.isnan(y).any() else OMDClassifier
    with pytest.raises(StreamomdError) as error:
        kind("nag", dtype="float32", max_iter=1).fit(X, labels)
    assert str(error.value) == message


def test_errors_of_estimators_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the text is an estimator's: code and key are those of a job."""
    uncompiled(monkeypatch)
    with pytest.raises(StreamomdError) as error:
        OMDClassifier(max_iter=0).fit(X, Y)
    message = error.value.message
    assert (message.code, message.key.name) == ("invalid_value", "train.epochs")
    assert str(message) == "max_iter = 0: expected a whole number of 1 or more"


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_model_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no predictions; the way out is a parameter and no option of a command."""
    uncompiled(monkeypatch)
    fitted = Classifier("ogd").fit(X, Y)
    fitted._held.model.state.table[:] = np.inf
    with pytest.raises(DivergedError, match=r"Fit again with a smaller eta0, or scale") as error:
        fitted.predict(X)
    assert not FOREIGN.search(str(error.value))
