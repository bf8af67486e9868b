"""The first rows of log losses are solved again: what the solve finds, when, and what it leaves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from auto import Auto, curvatures, sigmoid, softmax
from lazy_loops import LAZY
from standardized import Rows, Run, made

from streamomd.engine import block_state as stored
from streamomd.engine.loops.block_solve import LAST, is_due
from streamomd.engine.loops.rebase import AT

CLASSES = {"logistic": 1, "softmax": 3}


def stored_rows(run: Run) -> int:
    return len(run.state.extra["y"])


def test_solves_are_twice_an_octave() -> None:
    """32, 48, 64, 96, …, 12,288, 16,384."""
    due = [t for t in range(40_000) if is_due(float(t))]
    assert due == sorted([32 << k for k in range(10)] + [48 << k for k in range(9)])


@pytest.mark.parametrize("loss", CLASSES)
def test_a_solve_ends_where_the_gradient_is_zero(loss: str) -> None:
    """At row 96: sum of h (goal - p) z = prior w over the 95 rows before it, which are stored; A is
    the curvature there, and P the inverse of A + prior."""
    rows = made(loss, 96, d=0)
    run = Run("laplace", loss, 4, 0, compiled=False)
    run.learn(rows.some(slice(95)))
    run.learn(Rows(rows.X[95:], rows.S[95:], rows.y[95:], 1e-300 * rows.h[95:]))
    reference, w = run.state.extra["reference"], run.state.extra["vectors"][:, 0]
    Z = np.c_[np.ones(95), (rows.X[:95] - reference[2, 1:5]) / reference[3, 1:5]]
    margins, h = Z @ w[:, :5].T, rows.h[:95]
    totals = run.state.totals[0]
    prior = np.r_[totals[AT["lam_bias"]], np.full(4, totals[AT["lam"]])]
    for k in range(CLASSES[loss]):
        if loss == "logistic":
            p, goal = np.array([sigmoid(m) for m in margins[:, 0]]), rows.y[:95] > 0.0
        else:
            p, goal = np.array([softmax(m)[k] for m in margins]), rows.y[:95] == k
        gradient = Z.T @ (h * (goal - p)) - prior * w[k, :5]
        assert np.abs(gradient).max() < 1e-3 * h.sum()
        a = p * (1.0 - p)
        if loss == "softmax":
            a = np.array([curvatures(softmax(m))[k] for m in margins])
        A = Z.T @ ((h * a)[:, np.newaxis] * Z)
        np.testing.assert_allclose(run.state.extra["A"][k], A, rtol=1e-3, atol=1e-3)
        P = run.state.extra["P"][k]
        np.testing.assert_allclose(P @ (A + np.diag(prior)), np.eye(5), atol=1e-3)


@pytest.mark.parametrize("loss", ["logistic", pytest.param("softmax", marks=pytest.mark.slow)])
def test_rows_are_stored_until_the_last_solve(loss: str) -> None:
    """All rows of importance above 0, before row 16,384; none after it. However the rows are cut;
    with the oracle's predictions of the first ones."""
    rows = made(loss, 16_900)
    rows = Rows(rows.X, rows.S, rows.y, np.where(np.arange(16_900) % 50 == 7, 0.0, rows.h))
    one, cut = (Run("auto", loss, 4, 6, compiled=LAZY) for _ in range(2))
    shown = one.learn(rows)[:2300]
    assert stored_rows(one) == 0
    cuts = [0, 31, 64, 700, 16_700, 16_701, 16_900]
    counts = []
    for low, high in itertools.pairwise(cuts):
        cut.learn(rows.some(slice(low, high)))
        counts.append(stored_rows(cut))
    known = [np.count_nonzero(rows.h[:at]) for at in cuts[1:5]]
    assert counts == [*known, *counts[4:]]
    assert known[-1] < LAST
    assert counts[-1] == 0
    assert cut.state.totals.tobytes() == one.state.totals.tobytes()
    assert cut.state.extra["P"].tobytes() == one.state.extra["P"].tobytes()
    oracle = Auto(loss, 4, CLASSES[loss])
    first = rows.some(slice(2300))
    expected = np.array([oracle.learn(x, sparse, y, h) for x, sparse, y, h in first])
    assert np.abs(shown - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("ends", ["pass", "part", "values", "outside"])
def test_what_ends_storing(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second pass over the rows, a part of a round, too many values, and most of them outside of
    the block, at the next solve: none is stored later."""
    rows = made("logistic", 400)
    if ends == "outside":
        rows = replace(rows, S=np.abs(rows.S) + 1.0, X=np.zeros_like(rows.X))
    run = Run("laplace", "logistic", 4, 6, compiled=False, block=7 if ends == "outside" else 64)
    run.learn(rows.some(slice(100)))
    if ends == "outside":
        assert stored_rows(run) == 0  # 4 of 6 values, at row 32
        return
    assert stored_rows(run) == 100
    part = ends == "part"
    if ends == "pass":
        run.engine.begin_pass(run.state)
    elif ends == "values":
        monkeypatch.setattr(stored, "MOST", 500)
    run.engine.learn(run.state, run.sums, rows.some(slice(100, 200)).batch(), part=part)
    assert stored_rows(run) == 0
    run.learn(rows.some(slice(200, 400)))
    assert stored_rows(run) == 0


@pytest.mark.parametrize("rule, loss", [("auto", "square"), ("adagrad_standardized", "logistic")])
def test_what_stores_no_rows(rule: str, loss: str) -> None:
    """The square loss is solved exactly by its steps; AdaGrad has nothing to solve."""
    run = Run(rule, loss, 4, 6, compiled=False)
    run.learn(made(loss, 100))
    assert len(run.state.extra.get("y", ())) == 0
