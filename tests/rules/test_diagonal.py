"""The diagonal second-order learners: against full matrices, at extreme scales, certificates."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from helpers import Learner, sparse

from streamomd.core.errors import UsageError
from streamomd.rules import find_rule
from streamomd.rules.certificates.certificate import Claim, Run

THETA = ("sop_diag", "aggressive_second_order_diag")
OPTIONS: dict[str, list[dict]] = {
    "sop_diag": [{}, {"r": 0.2}, {"r": 5.0}],
    "aggressive_second_order_diag": [{}, {"r": 0.2}, {"r": 0.2, "scale": "arow"},
                                     {"r": 5.0, "scale": "arow"}],
    "arow_diag": [{}, {"r": 0.2}],
    "cw_diag": [{}, {"confidence": 0.9}, {"form": "variance"}, {"form": "variance", "a": 9.0}],
    "ons_diag": [{}, {"epsilon": 0.1, "gamma": 2.0}, {"ball": "l1", "radius": 0.5},
                 {"ball": "l2", "radius": 0.5}],
}  # fmt: skip
CASES = [(rule, params) for rule, options in OPTIONS.items() for params in options]


def full(rule: str, X: np.ndarray, y: np.ndarray, h: np.ndarray, params: dict) -> list[float]:
    """What the rule with a full matrix predicts: A and theta, or mu and Sigma, as printed."""
    d = X.shape[1]
    A, theta, mu, predicted = np.eye(d), np.zeros(d), np.zeros(d), []
    given = find_rule(rule).parse_params(params)
    if rule == "cw_diag":
        A, phi = np.eye(d) / given["a"], NormalDist().inv_cdf(given["confidence"])
    for x, label, times in zip(X, y, h, strict=True):
        if rule in THETA:
            ahead = A + np.outer(x, x) / given["r"]
            p = float(theta @ np.linalg.solve(ahead, x))
            if times > 0 and (label * p <= 0.0 if rule == "sop_diag" else label * p < 1.0):
                c = given["r"] if given.get("scale") == "arow" else 1.0
                times_in_A = 1.0 if rule == "sop_diag" else times
                A = A + times_in_A * np.outer(x, x) / given["r"]
                theta = theta + times * label * x / c
        else:
            p, v = float(mu @ x), np.linalg.solve(A, x)
            M, V = label * p, float(x @ v)
            if rule == "arow_diag" and M < 1.0 and times > 0:
                r = given["r"] / times
                mu, A = mu + (1.0 - M) * label * v / (V + r), A + np.outer(x, x) / r
            if rule == "cw_diag" and times > 0 and V > 0:
                if given["form"] == "stdev" and phi * math.sqrt(V) > M:
                    psi, zeta = 1 + phi**2 / 2, 1 + phi**2
                    root = math.sqrt(M**2 * phi**4 / 4 + V * phi**2 * zeta)
                    alpha = (-M * psi + root) / (V * zeta)
                    rho = (-alpha * V * phi + math.sqrt((alpha * V * phi) ** 2 + 4 * V)) / 2
                    mu, A = mu + alpha * label * v, A + alpha * phi / rho * np.outer(x, x)
                if given["form"] == "variance" and phi * V > M:
                    b = 1 + 2 * phi * M
                    alpha = (-b + math.sqrt(b**2 - 8 * phi * (M - phi * V))) / (4 * phi * V)
                    mu, A = mu + alpha * label * v, A + 2 * alpha * phi * np.outer(x, x)
        predicted.append(p)
    return predicted


def full_newton(X: np.ndarray, y: np.ndarray, epsilon: float, gamma: float) -> list[float]:
    """The online Newton step with the square loss."""
    A, w, predicted = epsilon * np.eye(X.shape[1]), np.zeros(X.shape[1]), []
    for x, label in zip(X, y, strict=True):
        predicted.append(float(w @ x))
        g = (predicted[-1] - label) * x
        A = A + np.outer(g, g)
        w = w - np.linalg.solve(A, g) / gamma
    return predicted


def one_hot(rng: np.random.Generator, n: int = 120, d: int = 6) -> tuple:
    """Rows of one feature each; noisy labels; importances."""
    X = np.zeros((n, d))
    at = rng.integers(0, d, n)
    X[np.arange(n), at] = rng.standard_normal(n) * 3.0 ** (at - 3)
    y = np.where(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return X, y, rng.choice([0.0, 0.5, 1.0, 3.0], n)


@pytest.mark.parametrize("rule, params", [case for case in CASES if "ball" not in case[1]])
def test_one_hot_rows_are_those_of_the_full_matrix(rule: str, params: dict) -> None:
    """A matrix that only ever gets multiples of e e' stays diagonal; balls are in the oracles."""
    for seed in range(5):
        X, y, h = one_hot(np.random.default_rng(seed))
        if rule == "ons_diag":
            given = find_rule(rule).parse_params(params)
            expected = full_newton(X, y, given["epsilon"], given["gamma"])
            learner = Learner(rule, "square", 6, params=params, compiled=False)
            margins = learner.learn(sparse(X, y))
        else:
            expected = full(rule, X, y, h, params)
            learner = Learner(rule, "hinge", 6, params=params, compiled=False)
            margins = learner.learn(sparse(X, y, h))
        np.testing.assert_allclose(margins[:, 0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule, params", CASES)
@pytest.mark.sample(3)
def test_extreme_scales_give_finite_numbers(rule: str, params: dict) -> None:
    """Features from 1e-12 to 1e12, alone and together, importances too, labels of no meaning."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 9)) * (rng.random((300, 9)) < 0.5)
        X *= 10.0 ** np.linspace(-12, 12, 9)
        y = np.where(rng.random(300) < 0.5, 1.0, -1.0)
        h = 10.0 ** rng.uniform(-12, 12, 300) if seed % 2 else np.ones(300)
        loss = "logistic" if rule == "ons_diag" else "hinge"
        learner = Learner(rule, loss, 9, params=params, compiled=False)
        assert np.isfinite(learner.learn(sparse(X, y, h))).all()
        assert np.isfinite(learner.state.cells).all()


def test_confidence_weighted_meets_its_condition() -> None:
    """After an update of a one-hot row, M = phi sqrt(V), or phi V."""
    for form in ("stdev", "variance"):
        X, y, _ = one_hot(np.random.default_rng(7))
        params = {"form": form, "confidence": 0.8}
        learner = Learner("cw_diag", "hinge", 6, params=params, compiled=False)
        phi, updates = NormalDist().inv_cdf(0.8), 0
        for x, label in zip(X, y, strict=True):
            before = learner.state.slot("S").copy()
            learner.learn(sparse([x], [label]))
            if (learner.state.slot("S") != before).any():
                M = label * float(learner.state.slot("mu")[:, 0] @ x)
                V = float(x @ (x / (1.0 + learner.state.slot("S")[:, 0])))
                wanted = phi * (math.sqrt(V) if form == "stdev" else V)
                np.testing.assert_allclose(M, wanted, rtol=1e-6)
                updates += 1
        assert updates > 20


def stream(rng: np.random.Generator) -> tuple:
    """Sparse rows, one feature rarer than the next, badly scaled or not, noisy, weighted or not."""
    n, d = int(rng.integers(20, 80)), int(rng.integers(2, 10))
    X = rng.standard_normal((n, d)) if rng.random() < 0.5 else np.ones((n, d))
    X *= rng.random((n, d)) < np.arange(1, d + 1) ** -rng.uniform(0.0, 1.5)
    if rng.random() < 0.4:
        X *= 10.0 ** rng.uniform(-4, 4, d)
    top = np.abs(X).max(axis=0)
    truth = rng.standard_normal(d) / np.where(top > 0.0, top, 1.0)
    y = np.where(X @ truth + rng.choice([0.0, 0.5]) * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    h = rng.choice([0.0, 0.3, 1.0, 2.0, 30.0], n) if rng.random() < 0.3 else np.ones(n)
    return X, y, h, truth


def claims(rule: str, params: dict, rows: tuple, u: np.ndarray, *, accounts: bool) -> list[Claim]:
    X, y, h, _ = rows
    plain = find_rule(rule)
    used = plain.certificate.accounted if accounts else plain
    assert used is not None
    learner = Learner(used, "hinge", X.shape[1], params=params, compiled=False)
    learner.learn(sparse(X, y, h))
    state = learner.state

    def hinge_u(gamma: float) -> float:
        return float(h @ np.maximum(gamma - y * (X @ u), 0.0))

    assert plain.certificate.claims is not None
    totals = {s.name: float(state.totals[0, at]) for at, s in enumerate(used.total_slots)}
    run = Run(
        own={slot.name: state.slot(slot.name)[:, 0] for slot in used.own_slots},
        shared={},
        totals=totals,
        w=learner.engine.weights(state, 0, X.shape[1])[:, 0],
        h=used.hyper_of(used.parse_params(params)),
        rows=len(y),
        loss=float(learner.sums[1]),
        mistakes=float(learner.sums[2]),
        u=u,
        loss_u=hinge_u(1.0),
        hinge_u=hinge_u,
        square_u=float(h @ (y - X @ u) ** 2),
        lipschitz=1.0,
    )
    if rule != "sop_diag" and totals["largest"] > 1.0 and not accounts:
        with pytest.raises(ValueError, match=r"importances of 1.*model\.certificate"):
            plain.certificate.claims(run)
        return []
    found = plain.certificate.claims(run)
    assert all(claim.measured >= run.mistakes - 1e-9 * h.sum() for claim in found)
    return found


@pytest.mark.parametrize("rule", THETA)
def test_equations_22_and_23_against_an_adversary(rule: str) -> None:
    """P0, section 6.3, from the rows alone: each label is the prediction with its sign changed, on
    scales that grow by up to 10^4. Equation 22 for both rules; the bound under (23) where, as with
    the Perceptron, only mistakes update."""
    for seed in range(8):
        rng = np.random.default_rng([seed, 23])
        n, d, r = 60, 5, float(rng.choice([0.2, 1.0, 5.0]))
        X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
        X *= 10.0 ** (rng.uniform(-2.0, 4.0, d) * np.linspace(0.0, 1.0, n)[:, None])
        learner = Learner(rule, "hinge", d, params={"r": r}, compiled=False)
        y, margins = np.ones(n), np.empty(n)
        for i in range(n):
            row = X[i : i + 1], y[i : i + 1]
            p = learner.engine.predict(learner.state, np.zeros(3), sparse(*row))[0, 0]
            y[i] = (-1.0 if p > 0.0 else 1.0) if rng.random() < 0.7 else y[i]
            margins[i] = learner.learn(sparse(*row))[0, 0]
        wrong, seen = y * margins <= 0.0, X.any(axis=1)
        taught = seen & (wrong if rule == "sop_diag" else y * margins < 1.0)
        right = int((taught & ~wrong).sum())
        squares = np.square(X[taught]).sum(axis=0)
        logs = math.fsum(np.log1p(squares / r))
        for u in (np.zeros(d), *(rng.standard_normal((10, d)) / np.abs(X).max(axis=0))):
            loss = math.fsum(np.maximum(1.0 - y[seen] * (X[seen] @ u), 0.0))
            first = math.sqrt(u @ u + (u * u) @ squares / r)
            bound = loss + first * math.sqrt(r * logs + 2.0 * right)
            assert taught.sum() <= bound * (1.0 + 1e-9)  # (22)
            if rule == "sop_diag" and u.any():
                square, X2 = float(u @ u), float(np.square(X[taught]).sum(axis=1).max())
                s = float((u * u) @ squares) / square
                top = math.sqrt(8.0) * square * (r + s) * X2**2 / (math.e * d * r * r)
                log = math.log(top + 2.0 * loss * X2 / (d * r) + 2.0)
                bound = loss + math.sqrt(square * (r + s) * d * log)
                assert wrong[seen].sum() <= bound * (1.0 + 1e-9)


def test_the_claims_are_ordered() -> None:
    """The sharper line is below (22); the one after (23) comes where no right prediction taught."""
    rows = stream(np.random.default_rng(3))
    for rule, count in (("sop_diag", 3), ("aggressive_second_order_diag", 2)):
        plain, sharper, *rest = claims(rule, {}, rows, rows[3], accounts=True)
        assert sharper.bound <= plain.bound
        assert len(rest) == count - 2
        assert [plain] == claims(rule, {}, rows, rows[3], accounts=False)
    weighted = *rows[:2], np.full(len(rows[1]), 2.0), rows[3]
    assert not claims("aggressive_second_order_diag", {}, weighted, rows[3], accounts=False)


@pytest.mark.parametrize("rule", THETA)
def test_rare_features_have_a_bound_of_their_own(rule: str) -> None:
    """Where each feature's first row teaches it for good, (23) bounds the mistakes."""
    X = 3.0 * np.eye(8)[np.random.default_rng(5).integers(0, 8, 400)]
    truth = np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    rows = X, np.sign(X @ truth), np.ones(400), truth
    rare = claims(rule, {"r": 10.0}, rows, truth, accounts=True)[2]
    assert "rare" in rare.name
    assert 8.0 == rare.measured <= rare.bound < 400.0


def test_where_no_bound_is_proven() -> None:
    for rule in ("arow_diag", "cw_diag", "ons_diag"):
        assert find_rule(rule).certificate.claims is None
        assert find_rule(rule).certificate.reason


def test_a_ball_needs_a_radius() -> None:
    with pytest.raises(UsageError, match="radius"):
        Learner("ons_diag", "square", 3, params={"ball": "l2"}, compiled=False)
