"""Adaptive FTRL without AdaGrad: argmins, equalities and sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles
import oracles_ftrl
import pytest
from ftrl_runs import drawn, learner, weights
from helpers import sparse
from oracles import Floats, value_and_slope
from scipy.optimize import minimize, minimize_scalar

from streamomd.core.errors import UsageError
from streamomd.rules.common import balls
from streamomd.rules.common.sets import lead, prox

RULES = tuple(oracles_ftrl.LEARNERS)
LOSSES = ("logistic", "hinge", "square", "absolute", "huber")
PHI = {"l1": 0.02, "l2": 0.1, "box": 0.3}


def argmin(theta: float, h: float, k: float, l1: float, l2: float, box: float) -> float:
    """Of h w^2 / 2 - theta w + k phi(w), by a solver that knows no closed form."""

    def value(w: float) -> float:
        return 0.5 * h * w * w - theta * w + k * (l1 * abs(w) + 0.5 * l2 * w * w)

    reach = box or 2.0 * abs(theta) / h
    found = minimize_scalar(value, bounds=(-reach, reach), options={"xatol": 1e-12})
    return min((-reach, 0.0, float(found.x), reach), key=value)


@pytest.mark.parametrize("seed", range(40))
def test_prox_is_the_argmin(seed: int) -> None:
    """Both closed forms, with and without each part of phi."""
    rng = np.random.default_rng(seed)
    theta, h, k = rng.normal(), rng.uniform(0.1, 3.0), float(rng.integers(0, 5))
    l1, l2, box = rng.uniform(0.0, 1.0, 3) * (rng.random(3) < 0.6)
    expected = argmin(theta, h, k, l1, l2, box)
    assert lead(theta, h, k, l1, l2, box) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert prox(theta / h, h, k, l1, l2, box) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert lead(theta, 0.0, k, l1, 0.0, box) == prox(theta, 0.0, k, l1, l2, box) == 0.0


DUALS: dict[str, Any] = {
    "da": lambda T, p: (math.sqrt(max(T, 1)) / p["eta"], T),
    "rda": lambda T, p: (p["gamma"] * math.sqrt(max(T, 1)), T),
    "composite": lambda T, p: (math.sqrt(T + 1), (T + 1) * p["eta"]),
}


@pytest.mark.parametrize("rule", DUALS)
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_the_gradient_of_the_conjugate(rule: str, seed: int) -> None:
    """grad f_T*(theta) is where <theta, w> - f_T(w) is largest."""
    stream = drawn(seed)
    phi = {} if rule == "da" else PHI
    run = learner(rule, "logistic", stream.X.shape[1], {**phi})
    run.learn(sparse(stream.X, stream.y))
    h, k = DUALS[rule](len(stream.y), run.engine.params)
    l1, l2, box = phi.get("l1", 0.0), phi.get("l2", 0.0), phi.get("box", 0.0)
    expected = [argmin(t, h, k, l1, l2, box) for t in run.state.slot("theta")[:, 0]]
    np.testing.assert_allclose(weights(run), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_centered_weights_are_the_gradient_of_the_conjugate(seed: int) -> None:
    """As above, each coordinate with its own curvature."""
    stream = drawn(seed)
    run = learner(
        "ftrl_centered", "logistic", stream.X.shape[1], {"radius": 0.5, "l1": 0.02, "l2": 0.1}
    )
    run.learn(sparse(stream.X, stream.y))
    G, T = run.state.slot("G")[:, 0], len(stream.y)
    h = np.sqrt(np.abs(stream.X).max(axis=0) ** 2 + G) / 0.5
    theta = run.state.slot("theta")[:, 0]
    expected = [
        argmin(t, c, T, 0.02, 0.1, 0.0) if c else 0.0 for t, c in zip(theta, h, strict=True)
    ]
    np.testing.assert_allclose(weights(run), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("charge", ["every", "once"])
@pytest.mark.parametrize("seed", range(3))
def test_proximal_weights_minimize_all_that_was_added(charge: str, seed: int) -> None:
    """w_{T+1} minimizes <sum g x, w> + k phi(w) + sum_s sigma_s (w - w_s)^2 / 2, term by term."""
    stream = drawn(seed)
    rows, d = 50, stream.X.shape[1]
    params = {"alpha": 0.5, "beta": 0.3, **PHI, "charge": charge}
    run = learner("ftrl_proximal", "logistic", d, params)
    gradients, sigmas, centers = [], [], []
    G, before = np.zeros(d), np.zeros(d)
    for x, y in zip(stream.X[:rows], stream.y, strict=False):
        w = weights(run)
        (p,) = run.learn(sparse(x[np.newaxis], [y]))[0]
        gradients.append(value_and_slope("logistic", p, y)[1] * x)
        G = G + gradients[-1] ** 2
        h = np.where(G > 0.0, (0.3 + np.sqrt(G)) / 0.5, 0.0)
        sigmas.append(h - before)
        centers.append(w)
        before = h
    found, k = weights(run), rows if charge == "every" else 1
    for i in range(d):
        slope, sigma = sum(g[i] for g in gradients), np.array([s[i] for s in sigmas])
        center = np.array([w[i] for w in centers])

        def value(w: float) -> float:
            phi = PHI["l1"] * abs(w) + 0.5 * PHI["l2"] * w * w
            return slope * w + k * phi + 0.5 * float(sigma @ (w - center) ** 2)  # noqa: B023

        best = minimize_scalar(value, bounds=(-0.3, 0.3), options={"xatol": 1e-12})
        expected = min((-0.3, 0.0, float(best.x), 0.3), key=value) if G[i] else 0.0
        assert found[i] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", ["dense", "sparse", "scales", "unseen", "weights"])
@pytest.mark.parametrize("radius", [0.0, 0.4])
@pytest.mark.sample(5)
def test_proximal_is_adaptive_gradient_descent(kind: str, radius: float) -> None:
    """P3 lemma 8: equal trajectories where nothing is projected or regularized."""
    told = {"eta": math.sqrt(2.0) * radius} if radius else {"eta": 0.3, "delta": 0.7}
    ours = {"radius": radius} if radius else {"alpha": 0.3, "beta": 0.7}
    for seed in range(5):
        stream = drawn(seed, kind)
        rows, d = sparse(stream.X, stream.y, stream.h), stream.X.shape[1]
        proximal, descent = (
            learner("ftrl_proximal", "logistic", d, ours),
            learner("adagrad", "logistic", d, told),
        )
        found, expected = proximal.learn(rows), descent.learn(rows)
        scale = np.abs(stream.X) @ np.abs(weights(descent))
        assert np.all(np.abs(found - expected)[:, 0] <= 1e-9 * (1.0 + scale.max()))


def test_proximal_and_descent_differ_in_a_box() -> None:
    """A box that binds makes two algorithms of them."""
    stream = drawn(1, "dense")
    rows, d = sparse(stream.X, stream.y), stream.X.shape[1]
    free = learner("ftrl_proximal", "logistic", d, {"alpha": 1.0}).learn(rows)
    bound = learner("ftrl_proximal", "logistic", d, {"alpha": 1.0, "box": 0.1}).learn(rows)
    assert np.abs(free - bound).max() > 0.01


SETS = {
    "box": (lambda w: 0.3 - np.abs(w), lambda v: np.clip(v, -0.3, 0.3)),
    "l2": (lambda w: 0.09 - w @ w, lambda v: v * min(1.0, 0.3 / np.linalg.norm(v))),
    "l1": (lambda w: 0.3 - np.abs(w).sum(), lambda v: oracles_ftrl.nearest_in_l1(v, 0.3)),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(5))
def test_lazy_projection_is_the_constrained_argmin(name: str, seed: int) -> None:
    """P3 lemma 1: the point of a set nearest to eta theta minimizes ||w||^2 / (2 eta) - <theta, w>
    in it.
    """
    rng = np.random.default_rng(seed)
    theta, eta = rng.normal(size=5), 0.4
    inside, projected = SETS[name]
    parts = name == "l1"  # w = p - n, where sum p + n is smooth

    def whole(w: Floats) -> Floats:
        return w[:5] - w[5:] if parts else w

    found = minimize(
        lambda w: whole(w) @ whole(w) / (2.0 * eta) - theta @ whole(w),
        np.zeros(10 if parts else 5),
        method="SLSQP",
        bounds=[(0.0, None)] * 10 if parts else None,
        constraints={"type": "ineq", "fun": (lambda w: 0.3 - w.sum()) if parts else inside},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(projected(eta * theta), whole(found.x), atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_rda_in_a_box_is_lazy_projection(seed: int) -> None:
    """With a box alone RDA clips what dual averaging with eta_T = 1 / beta_T has."""
    stream = drawn(seed)
    run = learner("rda", "logistic", stream.X.shape[1], {"gamma": 0.5, "box": 0.2})
    run.learn(sparse(stream.X, stream.y))
    free = run.state.slot("theta")[:, 0] / (0.5 * math.sqrt(len(stream.y)))
    np.testing.assert_allclose(weights(run), np.clip(free, -0.2, 0.2), rtol=1e-12)
    assert (np.abs(free) > 0.2).any()


@pytest.mark.parametrize("seed", range(4))
def test_rda_with_l1_is_the_argmin_of_a_solver(seed: int) -> None:
    """All coordinates at once, w = p - n with p, n >= 0, by L-BFGS-B."""
    stream = drawn(seed, "dense")
    d, T, l1 = stream.X.shape[1], len(stream.y), 0.015
    run = learner("rda", "logistic", d, {"gamma": 0.5, "l1": l1})
    run.learn(sparse(stream.X, stream.y))
    theta, beta = run.state.slot("theta")[:, 0], 0.5 * math.sqrt(T)

    def value(parts: Floats) -> tuple[float, Floats]:
        w = parts[:d] - parts[d:]
        slope = beta * w - theta
        total = 0.5 * beta * w @ w - theta @ w + T * l1 * parts.sum()
        return total, np.concatenate([slope, -slope]) + T * l1

    limits = [(0.0, None)] * (2 * d)
    told = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000}
    best = minimize(
        value, np.zeros(2 * d), jac=True, method="L-BFGS-B", bounds=limits, options=told
    ).x
    found = weights(run)
    np.testing.assert_allclose(found, best[:d] - best[d:], atol=1e-6)
    assert 0 < (found == 0.0).sum() < d


@pytest.mark.parametrize("ball, norm", [("box", np.inf), ("l2", 2), ("l1", 1)])
def test_ogd_stays_in_its_ball(ball: str, norm: float) -> None:
    """After every row; and the bound is met, not only kept."""
    stream = drawn(3, "dense")
    run = learner("ogd", "hinge", stream.X.shape[1], {"eta": 1.0, "ball": ball, "radius": 0.5})
    met = []
    for x, y in zip(stream.X, stream.y, strict=True):
        run.learn(sparse(x[np.newaxis], [y]))
        met.append(np.linalg.norm(weights(run), norm))
    assert max(met) <= 0.5 * (1.0 + 1e-11)
    assert max(met) == pytest.approx(0.5)


@pytest.mark.parametrize("rule", ["ogd", "da"])
def test_implicit_steps_follow_the_loss(rule: str) -> None:
    """Square loss: the margin of the row nears y by e^(-eta h ||x||^2), never past it."""
    x, y, h, eta = np.array([1.0, -2.0, 3.0]), 0.7, 50.0, 0.1
    params = {"eta": eta, "schedule": "constant", "implicit": True}
    run = learner(rule, "square", 3, params)
    run.learn(sparse(x[np.newaxis], [y], [h]))
    assert weights(run) @ x == pytest.approx(y - y * math.exp(-eta * h * (x @ x)), rel=1e-12)


def test_the_factor_of_the_l2_ball_never_runs_out() -> None:
    """Where each row throws the weights far out, c falls by 1e6 a row, and is multiplied in."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 6)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    params = {"eta": 1e6, "schedule": "constant", "ball": "l2", "radius": 1.0}
    run = learner("ogd", "absolute", 6, params)
    margins = run.learn(sparse(X, y))
    oracle = oracles_ftrl.OGD(6, **params)
    for t, (x, label) in enumerate(zip(X, y, strict=True), 1):
        p, scale = oracle.predict(t, x)
        assert margins[t - 1, 0] == pytest.approx(p, abs=1e-9 * max(scale, 1.0))
        slope = value_and_slope("absolute", p, label)[1]
        oracle.learn(oracles.Seen(t, x, label, 1.0, p, scale, slope))
    c = run.state.totals[0, [slot.name for slot in run.state.layout.rule.total_slots].index("c")]
    assert oracle.c < 1e-200 < balls.SMALL * 1e-12 < c


@pytest.mark.parametrize(
    "rule, params",
    [("composite", {"schedule": "strong"}), ("ogd", {"ball": "l2"}), ("ogd", {"ball": "box"})],
)
def test_parameters_that_miss_another_are_refused(rule: str, params: dict[str, Any]) -> None:
    """A ball needs a radius, the strong schedule an L2 term."""
    with pytest.raises(UsageError, match="above 0"):
        learner(rule, "logistic", 3, params)
