"""Last-k dual ascent: k = 1 is PA-I, two rows are solved exactly, all rows are the SVM."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import Learner, dense, sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.core.errors import TooLargeError
from streamomd.rules import dual_ascent
from streamomd.rules.contract import Row


def rows(seed: int, kind: str = "sparse") -> streams.Stream:
    return streams.make(np.random.default_rng(seed), kind, "binary")


@pytest.mark.parametrize("kind", streams.KINDS)
def test_one_row_is_pa1(kind) -> None:
    """k = 1 has PA-I's margins and weights."""
    told = rows(3, kind)
    one, other = (
        Learner(rule, "hinge", told.X.shape[1], params=params, compiled=False)
        for rule, params in (("dual_ascent", {"k": 1, "C": 0.3}), ("pa1", {"C": 0.3}))
    )
    batch = sparse(told.X, told.y, told.h)
    np.testing.assert_allclose(one.learn(batch), other.learn(batch), rtol=1e-12, atol=1e-300)


@settings(max_examples=200, deadline=None)
@given(
    numbers=st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    cross=st.floats(-1, 1),
    caps=st.tuples(st.floats(0, 2), st.floats(0, 2)),
)
def test_a_pair_is_solved_exactly(numbers, cross, caps) -> None:
    """No point of a fine grid over the square has a larger dual value."""
    p, q, a, b = numbers
    aa, bb = a * a, b * b
    ab = cross * abs(a * b)
    h = dual_ascent.Hyper(C=1.0)
    old = Row(1.0 - p, 1.0, caps[0], 0.0, 0.0, (aa, 0.0), ())
    new = Row(1.0 - q, 1.0, caps[1], 0.0, 0.0, (bb, 0.0), ())
    _, (first, second), totals = dual_ascent.pair(old, new, ab, dual_ascent.Totals(), h)
    assert -1e-12 <= first.a <= caps[0] + 1e-12
    assert -1e-12 <= second.a <= caps[1] + 1e-12
    A, B = np.meshgrid(np.linspace(0, caps[0], 101), np.linspace(0, caps[1], 101))
    values = p * A + q * B - 0.5 * (aa * A**2 + 2 * ab * A * B + bb * B**2)
    assert values.max() - 1e-9 <= totals.D


@pytest.mark.slow
def test_all_rows_are_the_svm() -> None:
    """The online SVM ends at the maximum of the dual of all rows, found by a solver."""
    told = rows(7, "dense")
    X, y = told.X[:60], told.y[:60]
    learner = Learner(
        "online_svm", "hinge", X.shape[1], params={"C": 0.7, "tolerance": 1e-9}, compiled=False
    )
    learner.learn(sparse(X, y))
    Z = y[:, None] * X
    K = Z @ Z.T
    found = minimize(
        lambda a: 0.5 * a @ K @ a - a.sum(), np.zeros(60), jac=lambda a: K @ a - 1.0,
        method="L-BFGS-B", bounds=[(0, 0.7)] * 60, options={"maxiter": 10_000, "ftol": 1e-15},
    )  # fmt: skip
    assert learner.state.totals[0, 0] == pytest.approx(-found.fun, rel=1e-6)
    np.testing.assert_allclose(learner.state.slot("theta")[:, 0], found.x @ Z, atol=1e-3)


@pytest.mark.parametrize("link", ["winnow", "eg", "pnorm"])
def test_links_reach_the_maximum_of_the_dual(link) -> None:
    """P2, eq. 31 with f* of each link: after the last row the dual of all rows is at its maximum,
    found by a solver."""
    rng = np.random.default_rng(9)
    X = rng.standard_normal((12, 4))
    y = np.where(X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.standard_normal(12) > 0.0, 1.0, -1.0)
    params = {"link": link, "k": 12, "C": 0.4, "U": 2.0, "p": 3.0, "tolerance": 1e-9}
    learner = Learner("dual_ascent", "hinge", 4, params=params, compiled=False)
    learner.learn(sparse(X, y))
    Z = y[:, None] * X

    def conjugate(theta: np.ndarray) -> float:
        if link == "winnow":
            return float(np.log(np.exp(theta).sum() / 4))
        if link == "eg":
            return float(2.0 * np.log((np.exp(theta) + np.exp(-theta)).sum() / 8))
        return float(np.linalg.norm(theta, 3.0) ** 2 / 2)

    found = minimize(
        lambda a: conjugate(a @ Z) - a.sum(), np.full(12, 0.2), method="L-BFGS-B",
        bounds=[(0, 0.4)] * 12, options={"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    alphas = dict(zip((s.name for s in learner.state.layout.rule.total_slots),
                      learner.state.totals[0], strict=True))["alphas"]  # fmt: skip
    value = alphas - conjugate(learner.state.slot("theta")[:, 0])
    assert value == pytest.approx(-found.fun, rel=1e-7)
    assert value >= -found.fun - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("link", ["winnow", "eg", "pnorm"])
def test_links_compiled_are_uncompiled(link) -> None:
    """Also with several learners, a bias, importances and float32 slots; to the bit."""
    made = streams.make(np.random.default_rng(7), "weights", "classes")
    X, y, h = np.ascontiguousarray(made.X[:60, :5]), made.y[:60], made.h[:60]
    told = {"params": {"link": link, "k": 3, "C": 0.5, "tolerance": 1e-6}, "dtype": "float32"}
    ends = set()
    for compiled in (True, False):
        learner = Learner(
            "dual_ascent", "hinge", 6, classes=3, bias=True, compiled=compiled, **told
        )
        ends.add((learner.learn(dense(X, y, h)).tobytes(), learner.bits()))
    assert len(ends) == 1


@pytest.mark.parametrize(
    "rule, params",
    [
        ("dual_ascent", {"k": 4}),
        ("dual_ascent", {"k": 4, "link": "pnorm", "C": 0.1, "tolerance": 1e-4}),
        ("online_svm", {"tolerance": 0.1}),
    ],
)
def test_what_is_kept_survives_cuts_and_saving(rule, params) -> None:
    """Kept rows go through parts and back; a run cut there ends in the same bits."""
    told = rows(5)
    d, half = told.X.shape[1] + 1, len(told.X) // 2
    batch = sparse(told.X, told.y)
    whole, cut, fresh = (
        Learner(rule, "hinge", d, params=params, bias=True, compiled=False) for _ in range(3)
    )
    whole.learn(batch)
    cut.learn(batch.rows(0, half))
    for low, high, arrays in cut.state.parts():
        fresh.state.fill(low, high, {name: array.copy() for name, array in arrays.items()})
    fresh.sums[:] = cut.sums
    fresh.learn(dense(told.X[half:], told.y[half:]))
    assert fresh.bits() == whole.bits()
    for name, array in whole.state.extra.items():
        assert np.array_equal(array, fresh.state.extra[name])


def test_too_many_rows_are_refused() -> None:
    """The online SVM says at which number of rows it gives up."""
    told = rows(5)
    learner = Learner("online_svm", "hinge", told.X.shape[1], params={"most": 10}, compiled=False)
    with pytest.raises(TooLargeError, match=r"stores every row, at most 10 .*dual_ascent"):
        learner.learn(sparse(told.X, told.y))
