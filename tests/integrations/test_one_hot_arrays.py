"""Arrays of one-hot columns are learned as the sparse matrices that they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from estimating import uncompiled
from scipy.sparse import csr_array

from streamomd import OMDClassifier, OMDRegressor

N, NUMBERS = 200, 2


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)


def rows(*, level: float = 0.0) -> tuple[Any, Any]:
    """Two numbers around a level, and a column of 30 categories, one-hot."""
    rng = np.random.default_rng(3)
    X = np.zeros((N, NUMBERS + 30))
    X[:, :NUMBERS] = rng.normal(level, 1.0, (N, NUMBERS))
    X[np.arange(N), NUMBERS + rng.integers(0, 30, N)] = 1.0
    X = np.column_stack([X, rng.random(N) < 0.9])  # a frequent one is no hindrance
    return X, X @ rng.normal(size=X.shape[1])


@pytest.mark.parametrize("made", [OMDClassifier, OMDRegressor])
def test_one_hot_columns_are_those_of_a_sparse_matrix(made: Any) -> None:
    X, y = rows()
    y = y if made is OMDRegressor else y > 0.0
    whole, sparse = (made(max_iter=1, random_state=0).fit(some, y) for some in (X, csr_array(X)))
    np.testing.assert_array_equal(whole.coef_, sparse.coef_)
    for some in (X, csr_array(X), X[:1]):
        np.testing.assert_array_equal(whole.predict(some), sparse.predict(some))
    for model, some in ((whole, X), (sparse, csr_array(X))):
        model.partial_fit(some, y)
    np.testing.assert_array_equal(whole.coef_, sparse.coef_)


@pytest.mark.parametrize("why", ["level", "often", "other", "late", "few", "shapes"])
def test_other_arrays_are_columns_of_numbers(why: str) -> None:
    """Numbers far from 0, frequent ones, counts, also after the first rows, few rows, curves."""
    X, y = rows(level=5.0 if why == "level" else 0.0)
    X[:, NUMBERS:] += X[:, NUMBERS:] * (why == "other")
    if why == "often":
        X[:, NUMBERS:] = 1.0 - X[:, NUMBERS:]
    if why == "late":
        X[150:, NUMBERS:] *= 2.0
    if why == "few":
        X, y = X[:90], y[:90]
    model = OMDRegressor(max_iter=1, shapes="columns" if why == "shapes" else "none").fit(X, y)
    assert model.to_model().plan.sparse is None
