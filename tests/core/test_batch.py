"""Batches made by hand: legal ones pass, others are refused before the engine walks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import dense, sparse

from streamomd.core.batch import check, taken
from streamomd.core.errors import DataError

pytestmark = pytest.mark.smoke

X = np.array([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 4.0]])
Y = [1.0, -1.0, 1.0]
GOOD = sparse(X, Y)


def test_legal_batches_pass() -> None:
    """Sparse rows with an empty one, dense rows, and slices of both are legal."""
    for batch in (GOOD, dense(X, Y), GOOD.rows(1, 3), dense(X, Y).rows(0, 1), GOOD.rows(1, 1)):
        check(batch, 5, bias=True)


@pytest.mark.parametrize(
    "batch, words",
    [
        (replace(GOOD, indices=GOOD.indices + np.int32(1)), "indices go from"),
        (replace(GOOD, indices=GOOD.indices - np.int32(1)), "indices go from"),
        (replace(GOOD, indices=GOOD.indices[::-1].copy()), "do not ascend"),
        (replace(GOOD, indices=GOOD.indices.astype(np.int64)), "int64"),
        (replace(GOOD, indptr=GOOD.indptr + 1), "indptr"),
        (replace(GOOD, indptr=GOOD.indptr[:-1]), "indptr"),
        (replace(GOOD, values=GOOD.values[:-1]), "values"),
        (replace(GOOD, values=np.full(4, np.nan)), "not finite"),
        (replace(GOOD, weight=np.array([1.0, np.inf, 1.0])), "not finite"),
        (replace(GOOD, y=np.ones(2)), "shape"),
        (dense(X[:, :3], Y), "shape"),
        (replace(dense(X, Y), values=X.astype(np.int64)), "int64"),
    ],
)
def test_others_are_refused(batch, words) -> None:
    """The message says what was expected and what is wrong."""
    with pytest.raises(DataError, match=words):
        check(batch, 5, bias=True)


@pytest.mark.parametrize("batch", [GOOD, dense(X, Y)], ids=["sparse", "dense"])
def test_rows_are_a_slice(batch) -> None:
    """``rows`` cuts every part alike, and counts from 0 again."""
    cut = batch.rows(1, 3)
    assert (len(cut), cut.y.tolist(), cut.weight.tolist()) == (2, [-1.0, 1.0], [1.0, 1.0])
    assert cut.nbytes < batch.nbytes


@pytest.mark.parametrize("kind", [sparse, dense])
def test_rows_are_taken_in_any_order(kind: Any) -> None:
    """Some rows, in another order and one of them twice: each is as it was."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(9, 4)) * (draw.random((9, 4)) < 0.5)
    X[4] = 0.0
    y, weight = draw.normal(size=9), draw.random(9)
    order = np.array([8, 4, 0, 4, 3])
    some, expected = taken(kind(X, y, weight), order), kind(X[order], y[order], weight[order])
    for name in some.__dataclass_fields__:
        if name not in ("skipped", "time", "columns"):
            found, wanted = getattr(some, name), getattr(expected, name)
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)
    timed = replace(kind(X, y, weight), time=np.arange(9))
    assert np.array_equal(taken(timed, order).time, order)
    assert len(taken(some, np.empty(0, np.int64))) == 0
