"""Learners with a full matrix: equalities, invariances, numerics, certificates."""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from helpers import Learner, dense, sparse

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.core.errors import TooLargeError
from streamomd.engine.layout import Layout
from streamomd.engine.loops.matrix import contract_into_ball
from streamomd.engine.state import State
from streamomd.rules import all_rules, find_rule

FULL = [name for name, rule in all_rules().items() if rule.storage.kind in ("matrix", "root")]


def rows(seed: int, d: int = 6, n: int = 80, *, classify: bool = True) -> tuple:
    """Correlated rows and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    X[rng.random((n, d)) < 0.2] = 0.0
    scores = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return X, np.where(scores > 0.0, 1.0, -1.0) if classify else scores


def learned(rule: str, loss: str, X, y, h=None, **params) -> tuple[Learner, np.ndarray]:
    """Uncompiled, so that many rules and options cost nothing."""
    classes = 2 if set(np.unique(y)) <= {-1.0, 1.0} else 1
    learner = Learner(rule, loss, X.shape[1], classes=classes, params=params, compiled=False)
    return learner, learner.learn(sparse(X, y, h))[:, 0]


def inverse(learner: Learner, start: float) -> np.ndarray:
    """A^-1 of what is stored."""
    stored = learner.state.extra["matrix"][0]
    upper = np.tril(stored, -1).T + np.eye(len(stored))
    return upper @ np.diag(np.diagonal(stored)) @ upper.T / start


@pytest.mark.parametrize("r", [0.2, 1.0, 7.0])
def test_arow_is_its_mirror_descent(r) -> None:
    """theta += y x / r and A += x x' / r where y m < 1, w = A^-1 theta, has AROW's margins."""
    X, y = rows(1)
    _, margins = learned("arow", "hinge", X, y, r=r)
    A, theta = np.eye(X.shape[1]), np.zeros(X.shape[1])
    for x, label, found in zip(X, y, margins, strict=True):
        m = np.linalg.solve(A, theta) @ x
        assert found == pytest.approx(m, rel=1e-9, abs=1e-9)
        if label * m < 1.0:
            A, theta = A + np.outer(x, x) / r, theta + label * x / r


@pytest.mark.parametrize("a", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("rule", ["rls", "vaw"])
def test_least_squares_solved_afresh(rule, a) -> None:
    """RLS is the ridge solution of all rows before, weights included; VAW that with x counted."""
    X, y = rows(2, classify=False)
    h = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], len(y))
    _, margins = learned(rule, "square", X, y, h, a=a)
    for t in range(len(y)):
        Z = np.vstack([X[:t] * np.sqrt(h[:t, None]), np.sqrt(a) * np.eye(X.shape[1])])
        right = np.concatenate([y[:t] * np.sqrt(h[:t]), np.zeros(X.shape[1])])
        if rule == "vaw":
            Z, right = np.vstack([Z, X[t]]), np.append(right, 0.0)
        w = np.linalg.lstsq(Z, right, rcond=None)[0]
        assert margins[t] == pytest.approx(X[t] @ w, rel=1e-8, abs=1e-9)


def test_vaw_does_not_mind_units_as_a_goes_to_zero() -> None:
    """Features times 2^-6 … 2^6: the same predictions up to about a; with a = 1 they differ."""
    X, y = rows(3, classify=False)
    scales = np.array([64.0, 0.25, -8.0, 1.0, 1.0 / 64.0, -0.5])
    apart = []
    for a in (1e-9, 1.0):
        margins = learned("vaw", "square", X, y, a=a)[1]
        scaled = learned("vaw", "square", X * scales, y, a=a)[1]
        apart.append(np.abs(margins - scaled).max() / np.abs(y).max())
    assert apart[0] < 1e-5 < 1e-3 < apart[1]


@pytest.mark.parametrize("rule, start", [("vaw", 0.3), ("rls", 5.0)])
def test_what_is_stored_is_the_inverse(rule, start) -> None:
    """U D U' is A^-1, and ln det A comes from D."""
    X, y = rows(4, classify=False)
    learner, _ = learned(rule, "square", X, y, a=start)
    A = start * np.eye(X.shape[1]) + X.T @ X
    np.testing.assert_allclose(inverse(learner, start), np.linalg.inv(A), rtol=1e-9, atol=1e-14)
    diagonal = np.diagonal(learner.state.extra["matrix"][0])
    assert -np.log(diagonal / start).sum() == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)


@pytest.mark.parametrize("rule, times", [("rls", 2), ("vaw", 2), ("arow", 1), ("sop", 1)])
@pytest.mark.parametrize("seed", range(3))
def test_features_of_all_sizes(rule, times, seed) -> None:
    """Scales from 1e-12 to 1e12, rows twice where no branch is near: 12 digits are right."""
    loss = find_rule(rule).losses.default
    rng = np.random.default_rng(seed)
    X, y = rows(seed, 9, 60, classify=loss == "hinge")
    X = np.repeat(X * 10.0 ** rng.uniform(-12.0, 12.0, 9), times, axis=0)
    y = np.repeat(y, times)
    learner, margins = learned(rule, loss, X, y)
    trace = oracles.run(rule, loss, X, y, np.ones(len(y)), {})
    assert np.all(np.diagonal(learner.state.extra["matrix"][0]) > 0.0)
    assert np.all(np.abs(margins - trace.margins[:, 0]) <= 1e-12 * trace.scale[:, 0])


def test_the_nearest_point_of_a_ball() -> None:
    """Of length R, and the pull towards w, in the norm of P^-1, is along itself."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 12):
        U = np.triu(rng.standard_normal((d, d)), 1) / d + np.eye(d)
        D = 10.0 ** rng.uniform(-2.0, 1.0, d)
        P, w = 2.0 * U @ np.diag(D) @ U.T, 3.0 * rng.standard_normal(d)
        u = w.copy()
        assert contract_into_ball((np.tril(U.T, -1) + np.diag(D))[None], 0, u, 2.0, 0.5)
        assert np.linalg.norm(u) == pytest.approx(0.5, rel=1e-12)
        mu = ((w - u) @ (P @ u)) / ((P @ u) @ (P @ u))
        assert mu > 0.0
        np.testing.assert_allclose(w - u, mu * (P @ u), rtol=1e-9, atol=1e-12)
        assert not contract_into_ball(P[None], 0, np.full(d, 0.1 / d), 1.0, 0.5)


@pytest.mark.parametrize("update", ["mirror", "dual"])
def test_a_rotation_changes_nothing_in_adagrad_full(update) -> None:
    """Rows turned by an orthogonal matrix: the same predictions."""
    X, y = rows(5)
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((X.shape[1], X.shape[1])))[0]
    params = {"delta": 0.3, "update": update, "l2": 0.01}
    plain = learned("adagrad_full", "logistic", X, y, **params)[1]
    turned = learned("adagrad_full", "logistic", X @ Q, y, **params)[1]
    np.testing.assert_allclose(plain, turned, rtol=1e-9, atol=1e-10)


def test_adagrad_full_is_the_diagonal_one_where_features_come_alone() -> None:
    """One feature a row: S is diagonal."""
    rng = np.random.default_rng(6)
    X = np.eye(5)[rng.integers(0, 5, 80)] * rng.standard_normal((80, 1))
    y = np.where(rng.random(80) < 0.7, np.sign(X.sum(axis=1)), 1.0)
    params = {"eta": 0.4, "delta": 0.2}
    full = learned("adagrad_full", "logistic", X, y, **params)[1]
    np.testing.assert_allclose(full, learned("adagrad", "logistic", X, y, **params)[1], rtol=1e-12)


def test_adagrad_full_in_the_ball_of_section_1_2_errs_once_in_each_direction() -> None:
    """P4, section 1.2: the columns of a rotation in turn, signed at random, in the ball of radius
    sqrt(d): losses of d in all, of OGD with steps 1 / sqrt(t) in that ball more than 1.5 d. (The
    step and the ball are longer by 1e-9, so that rounding puts no margin below 1.)"""
    rng, d = np.random.default_rng(8), 6
    V = np.linalg.qr(rng.standard_normal((d, d)))[0]
    signs = rng.choice([-1.0, 1.0], 40 * d)
    X, ball = (
        np.tile(V.T, (40, 1)) * signs[:, None],
        {"ball": "l2", "radius": math.sqrt(d) * (1.0 + 1e-9)},
    )

    def loss(rule: str, **params) -> float:
        margins = learned(rule, "hinge", X, signs, **params, **ball)[1]
        return float(np.maximum(1.0 - signs * margins, 0.0).sum())

    for update in ("mirror", "dual"):
        found = loss("adagrad_full", update=update, eta=1.0 + 1e-9, delta=1e-12)
        assert found == pytest.approx(d, rel=1e-9)
    assert loss("ogd", eta=1.0) > 1.5 * d


@pytest.mark.parametrize("kind", ["dense", "sparse", "repeats", "unseen", "weights"])
@pytest.mark.parametrize(
    "params",
    [{}, {"update": "dual"}, {"l1": 0.02}, {"every": 3}, {"ball": "l2", "radius": 0.5}],
    ids=str,
)
@pytest.mark.sample(6)
def test_adagrad_full_of_gradients_that_do_not_span(kind, params) -> None:
    """delta = 0: the pseudo-inverse, as by singular values of all gradients."""
    made = streams.make(np.random.default_rng(4), kind, "binary")
    X, y, h = made.X[:60, :7], made.y[:60], made.h[:60]
    trace = oracles.run("adagrad_full", "logistic", X, y, h, params)
    margins = learned("adagrad_full", "logistic", X, y, h, **params)[1]
    assert np.all(np.abs(margins - trace.margins[:, 0]) <= 1e-9 * trace.scale[:, 0])


OPTIONS = [
    ("ons", {"ball": "l2", "radius": 0.3, "implicit": True}),
    ("cw", {"form": "variance"}),
    ("aggressive_second_order", {"scale": "arow", "r": 0.4}),
    ("adagrad_full", {"l1": 0.02, "box": 0.3, "implicit": True}),
    ("adagrad_full", {"update": "dual", "every": 3}),
    ("adagrad_full", {"delta": 0.1, "ball": "l2", "radius": 0.3}),
]


QUICK = ("cw", "aggressive_second_order")


@pytest.mark.parametrize(
    "rule, params",
    [pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.slow) for case in OPTIONS],
)
@pytest.mark.sample(2)
def test_options_compiled_are_uncompiled(rule, params) -> None:
    """Also with several learners, a bias, importances and float32 slots; to the bit."""
    made = streams.make(np.random.default_rng(7), "weights", "classes")
    X, y, h = np.ascontiguousarray(made.X[:60, :5]), made.y[:60], made.h[:60]
    loss = find_rule(rule).losses.default
    ends = set()
    for compiled in (True, False):
        told = {"classes": 3, "bias": True, "dtype": "float32", "params": params}
        learner = Learner(rule, loss, 6, compiled=compiled, **told)
        margins = learner.learn(dense(X, y, h)).tobytes()
        ends.add((margins, learner.bits(), learner.state.extra["matrix"].tobytes()))
    assert len(ends) == 1


@pytest.mark.parametrize("rule", FULL)
def test_a_state_with_a_matrix(rule) -> None:
    """Its bytes are counted, its parts are small, and too many coordinates are refused in words."""
    found = find_rule(rule)
    layout = Layout(found, 64, 2, "float64")
    state = State.start(layout)
    assert state.nbytes == layout.nbytes + state.totals.nbytes
    assert state.extra["matrix"].shape == layout.matrix
    with pytest.raises(TooLargeError, match=r"GiB.*_diag"):
        State.start(Layout(found, 2**31 - 1, 100, "float64"))
    assert found.largest(found.parse_params({})) == (1024 if rule == "adagrad_full" else 4096)
    assert found.largest(found.parse_params({"limit": 9000})) == 9000
