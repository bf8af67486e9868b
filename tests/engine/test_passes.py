"""Later passes over the same rows of learners on standardised inputs are their oracle, too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from lazy_loops import LAZY
from standardized import LOSSES, Rows, Run, made
from test_block import FORMS, assert_same, pair, some_unlearned

from streamomd.engine import layout as layout_module
from streamomd.engine.loops import rebase
from streamomd.engine.loops.rebase import AT
from streamomd.engine.loops.reference import M2, MU, C
from streamomd.rules.common.standardized import LEAD

PASSES = 3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(6)
def test_passes_are_their_oracle(form: str, loss: str) -> None:
    """Predictions, state and weights after each pass, with a slot and coordinates outside."""
    rows = some_unlearned(made(loss, 120, seed=3))
    run, oracle, _, _ = pair(form, loss, rows, 7)
    scale = float(rows.y.std()) if loss == "square" else 1.0
    lam = []
    for _ in range(1, PASSES + 2):  # the last one forgets
        run.engine.begin_pass(run.state)
        oracle.begin_pass()
        assert_same(run, oracle)
        expected = np.array([oracle.learn(*row) for row in rows])
        assert np.abs(run.learn(rows) - expected).max() <= 1e-9 * scale
        assert_same(run, oracle, rtol=1e-8)
        assert run.total("horizon")[0] == oracle.horizon == pytest.approx(rows.h.sum())
        lam.append(run.total("lam")[0])
    if run.state.layout.rule.storage.second:
        assert PASSES < oracle.passes_held() < PASSES + 0.25
        assert (len(set(lam)) == 1) == (loss == "softmax")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_a_small_scale_is_multiplied_out(loss: str, dtype: str) -> None:
    """What hundreds of passes leave of the scale of S, predictions stay."""
    rows = made(loss, 60, seed=4)
    one, other = (Run("auto", loss, 4, 6, block=6, dtype=dtype) for _ in range(2))
    for run in (one, other):
        run.learn(rows)
        run.engine.begin_pass(run.state)
    assert other.total("scale")[0] > 1e-3
    tiny = 2.0**-70
    other.total("scale")[:] *= tiny
    other.state.slot("S")[...] /= tiny
    near: Any = {"rtol": 0, "atol": (1e-5 if dtype == "float32" else 1e-12) * float(rows.y.std())}
    np.testing.assert_allclose(other.learn(rows), one.learn(rows), **near)
    assert other.total("scale")[0] > 1e-3
    np.testing.assert_allclose(other.predict(rows), one.predict(rows), **near)


def test_adagrad_rests_after_the_first_pass() -> None:
    """B alone predicts, with the predictions of the rule laplace."""
    rows = made("logistic", 120, seed=5)
    mixed, alone = Run("auto", "logistic", 4, 6, block=7), Run("laplace", "logistic", 4, 6, block=7)
    for run in (mixed, alone):
        run.learn(rows)
        run.engine.begin_pass(run.state)
    before = [mixed.state.slot(name).copy() for name in ("g", "H")]
    found, expected = mixed.learn(rows), alone.learn(rows)
    assert mixed.total("lead")[0] == -LEAD
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    for name, there in zip(("g", "H"), before, strict=True):
        assert np.array_equal(mixed.state.slot(name)[5:], there[5:]), name


@pytest.mark.parametrize("p, K, d", [(131, 64, 2), (70, 140, 80)])
def test_predictions_stay_when_groups_change_their_centres(
    p: int, K: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of every group move by half a standard deviation, the prior is next to nothing: the
    bias takes over the centres of the other groups, or predictions move by as much.

    As a test of the sign: minus what is due would double the error of doing nothing.
    """
    monkeypatch.setattr(layout_module, "WIDE", 128)
    draw = np.random.default_rng(7)
    rows = made("square", 500, p=p, d=d, seed=6)
    Z = draw.normal(size=rows.X.shape)
    y = Z @ np.r_[np.zeros(63), np.abs(draw.normal(size=p - 63))] + 0.1 * draw.normal(size=500)
    rows = Rows(Z + 3.0, rows.S, y, np.ones(500))
    given: Any = {"prefer": "whole", "block": K, "prior": 1e-8, "prior_bias": 1e-8}
    run = Run("auto", "square", p, d, compiled=LAZY, **given)
    run.learn(rows)
    reference, totals = run.state.extra["reference"], run.state.totals[0]
    assert run.state.extra["A"].shape[2] == 64
    before = run.predict(rows)[:, 0]
    moved = 0.5 * np.sqrt(reference[M2, 1 : 1 + p] / totals[AT["n"]])
    reference[MU, 1 : 1 + p] += moved
    totals[AT["next"]] = totals[AT["t"]]
    mean, change = float(totals[AT["y_mean"]]), run.engine._rebase(math.inf)
    *arrays, numeric = run.engine._matrices(run.state)
    stored = run.state.cells, run.state.totals.reshape(-1), *arrays
    change(*stored, run.engine.kind, *rebase.scratch(arrays[-1], 64))
    np.testing.assert_allclose(reference[C, 1 : 1 + p], reference[MU, 1 : 1 + p], rtol=1e-12)
    assert numeric == p
    assert totals[AT["c_y"]] == mean
    w = run.state.extra["vectors"][0, 0]
    taken_over = abs(0.5 * w[64 : 1 + p].sum())
    assert taken_over > 0.3 * rows.y.std()
    shift = run.predict(rows)[:, 0] - before
    assert np.abs(shift).max() < 0.02 * taken_over


def test_the_prior_rises_where_columns_explain_nothing() -> None:
    """Of two classes, from 1,000 rows on: as the oracle, above the prior and never above ten."""
    rows = made("logistic", 1400, seed=8)
    rows = Rows(rows.X, rows.S, np.random.default_rng(9).choice([-1.0, 1.0], 1400), rows.h)
    run, oracle, _, _ = pair("whole", "logistic", rows, 7)
    assert 1.0 < run.total("lam")[0] <= 10.0
    run.engine.begin_pass(run.state)
    oracle.begin_pass()
    expected = np.array([oracle.learn(*row) for row in rows])
    assert np.abs(run.learn(rows) - expected).max() <= 1e-9
    assert_same(run, oracle, rtol=1e-8)


def test_passes_of_the_square_loss_end_at_ridge_regression() -> None:
    """With the prior of one pass; without its pull they would end at weights without a prior."""
    rng, n, d = np.random.default_rng(10), 150, 30
    at = rng.integers(d, size=n)
    S = np.zeros((n, d))
    S[np.arange(n), at] = 1.0
    y = rng.normal(size=d)[at] + 2.0 * rng.normal(size=n)
    rows = Rows(np.zeros((n, 0)), S, y, np.ones(n))
    run = Run("laplace", "square", 0, d, block=1, compiled=LAZY)
    for at_pass in range(40):
        if at_pass:
            run.engine.begin_pass(run.state)
        run.learn(rows)
    found = run.weights()[:, 0]
    bias, w = found[0], found[1:]
    ridge = S.T @ (y - bias) / (S.sum(axis=0) + 3.0)
    free = S.T @ (y - bias) / S.sum(axis=0)
    assert np.linalg.norm(w - ridge) < 0.2 * np.linalg.norm(free - ridge)
