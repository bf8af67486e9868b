"""Implicit steps: the exact solution along the row, for every rule that offers them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import Learner, dense
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules

EXACT = [name for name, loss in all_losses().items() if loss.along]
OFFER = [name for name, rule in all_rules().items() if rule.row.implicit]
X = np.random.default_rng(3).standard_normal((12, 4))


def taught(rule: str, loss: str, rows: np.ndarray, y: np.ndarray, h: np.ndarray, **params):
    learner = Learner(rule, loss, rows.shape[1], params=params, compiled=False)
    learner.learn(dense(rows, y, h))
    return learner


def flow(loss: str, p: float, y: float, change: float) -> float:
    """Where the margin ends that follows dp/ds = -R slope(p), R = -change / slope at the start."""
    told = find_loss(loss)
    rate = -change / told.slope(p, y, ())
    if loss == "hinge":
        return y * min(1.0, y * p + abs(change))
    found = solve_ivp(
        lambda s, m: [-rate * told.slope(float(m[0]), y, ())], (0, 1), [p],
        method="LSODA", rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    return float(found.y[0, -1])


def test_some_rules_offer_it() -> None:
    """The gradient rules do, and the losses are those with a closed form."""
    assert {"ogd", "adagrad", "ng", "nag", "snag"} <= set(OFFER)
    assert set(EXACT) == {"square", "hinge", "logistic"}


@pytest.mark.parametrize("loss", EXACT)
@pytest.mark.parametrize("rule", OFFER)
def test_a_step_ends_where_the_flow_ends(rule, loss) -> None:
    """The explicit step's change of the prediction, followed along the loss's own flow."""
    rng = np.random.default_rng(5)
    y = np.where(rng.random(12) < 0.5, -1.0, 1.0)
    for importance in (0.3, 3.0, 100.0):
        h = np.ones(12)
        h[-1] = importance
        before = taught(rule, loss, X[:-1], y[:-1], h[:-1], implicit=True)
        row = dense(X[-1:], y[-1:], h[-1:])
        weights = before.engine.weights(before.state, 0, 4)[:, 0]
        p = float(weights @ X[-1])
        if abs(find_loss(loss).slope(p, y[-1], ())) < 1e-6:
            continue
        ends = []
        for implicit in (False, True):
            learner = taught(rule, loss, X[:-1], y[:-1], h[:-1], implicit=True)
            params = {**learner.engine.params, "implicit": implicit}
            learner.engine = replace(learner.engine, params=params)
            learner.learn(row)
            learner.state.clock -= 1  # weights as of the row itself, whatever the schedule
            ends.append(float(learner.engine.weights(learner.state, 0, 4)[:, 0] @ X[-1]))
        explicit, implicit = ends
        change = explicit - p
        if change == 0.0 or not math.isfinite(change):
            continue
        assert implicit == pytest.approx(flow(loss, p, y[-1], change), rel=1e-5, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), times=st.integers(2, 6), loss=st.sampled_from(EXACT))
def test_a_row_of_importance_k_is_k_rows(seed, times, loss) -> None:
    """OGD with a constant step: importance k, or the row k times over, end in one w."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((1, 3)), np.array([1.0 if rng.random() < 0.5 else -1.0])
    params = {"schedule": "constant", "eta": 0.3, "implicit": True}
    heavy = taught("ogd", loss, x, y, np.array([float(times)]), **params)
    often = taught("ogd", loss, *(np.repeat(a, times, axis=0) for a in (x, y)),
                   np.ones(times), **params)  # fmt: skip
    one, other = (learner.engine.weights(learner.state, 0, 3) for learner in (heavy, often))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", sorted(set(all_losses()) - set(EXACT)))
def test_other_losses_are_refused(loss) -> None:
    """An implicit step of a loss without a closed form is refused, naming those that have one."""
    with pytest.raises(UsageError, match="implicit steps are exact for loss hinge, logistic, sq"):
        Spec.parse({"model": {"rule": "ogd", "loss": loss, "params": {"implicit": True}}})
