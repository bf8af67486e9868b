"""First-order learners with a fixed regularizer: links, equalities, certificates, huge numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles_first_order
import pytest
from helpers import Learner, sparse

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.rules.certificates.certificate import Run
from streamomd.rules.common.links import (
    EG,
    L2,
    PNORM,
    WINNOW,
    complexity,
    curvature,
    legal,
    length,
    shares,
)
from streamomd.rules.contract import fields

LINKS = {"l2": L2, "winnow": WINNOW, "eg": EG, "pnorm": PNORM}
U, P = 3.0, 4.0


def conjugate(link: str, theta: np.ndarray) -> float:
    """f* as the table prints it."""
    match link:
        case "l2":
            return 0.5 * float(theta @ theta)
        case "winnow":
            return math.log(np.exp(theta).sum() / len(theta))
        case "eg":
            return U * math.log((np.exp(theta) + np.exp(-theta)).sum() / (2 * len(theta)))
    return 0.5 * float((np.abs(theta) ** P).sum() ** (2 / P))


def row_norm(link: str, x: np.ndarray) -> float:
    """The norm that a row's curvature is made of, gathered as the engine does."""
    parts = np.array([shares(LINKS[link], value, P) for value in x])
    return length(LINKS[link], (*parts[:, :3].sum(axis=0), parts[:, 3].max()), P)


def learner(rule: str, loss: str, d: int, *, accounted: bool = False, **params: Any) -> Learner:
    found = find_rule(rule)
    found = (found.certificate.accounted or found) if accounted else found
    return Learner(found, loss, d, params=params, compiled=False)


def theta_of(made: Learner) -> np.ndarray:
    return made.state.slot("theta")[:, 0]


def load_comparator(made: Learner) -> np.ndarray:
    return made.engine.weights(made.state, 0, made.state.layout.size)[:, 0]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("C", [0.1, 5.0])
@pytest.mark.sample(4)
def test_weights_are_the_slope_of_the_conjugate(link: str, C: float) -> None:
    """w_i is (f*(theta + e_i) - f*(theta - e_i)) / 2 e, and the live figure is the dual value."""
    for seed in range(5):
        stream = streams.make(np.random.default_rng(seed), "sparse")
        made = learner("dual_step", "hinge", stream.X.shape[1], link=link, C=C, U=U, p=P)
        made.learn(sparse(stream.X, stream.y))
        theta, w = theta_of(made), load_comparator(made)
        for i in range(len(theta)):
            e = np.zeros(len(theta))
            e[i] = 1e-5
            numeric = (conjugate(link, theta + e) - conjugate(link, theta - e)) / 2e-5
            assert w[i] == pytest.approx(numeric, rel=1e-5, abs=1e-5 * np.abs(w).max())
        rule = find_rule("dual_step")
        totals = rule.state.totals(*made.state.totals[0, : len(fields(rule.state.totals))].tolist())
        live = rule.certificate.live(totals, made.state.clock, rule.hyper_of(made.engine.params))
        assert live == pytest.approx(totals.steps - conjugate(link, theta), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("link", LINKS)
def test_complexity_is_the_conjugate_of_the_conjugate(link: str) -> None:
    """f(w) + f*(theta) = <w, theta> at w = grad f*(theta), and nowhere is it less."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        theta, other = rng.standard_normal((2, 7))
        w = np.array([
            (conjugate(link, theta + e) - conjugate(link, theta - e)) / 2e-6
            for e in 1e-6 * np.eye(7)
        ])  # fmt: skip
        f = complexity(LINKS[link], legal(LINKS[link], U).nearest(w), U, P)
        assert f + conjugate(link, theta) == pytest.approx(w @ theta, rel=1e-6, abs=1e-6)
        assert f + conjugate(link, other) >= w @ other - 1e-6


@pytest.mark.parametrize("link", LINKS)
def test_curvature_is_above_the_hessian(link: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        theta, x = rng.standard_normal((2, 6)) * rng.uniform(0.1, 3.0)
        second = conjugate(link, theta + 1e-4 * x) + conjugate(link, theta - 1e-4 * x)
        second = (second - 2 * conjugate(link, theta)) / 1e-8
        kappa = curvature(LINKS[link], row_norm(link, x), U, P)
        assert second <= kappa * (1 + 1e-4) + 1e-5


def test_p_norm_2_is_the_perceptron() -> None:
    for seed in range(20):
        stream = streams.make(np.random.default_rng(seed), "sparse")
        d, rows = stream.X.shape[1], sparse(stream.X, stream.y)
        one = learner("perceptron", "hinge", d, C=0.7)
        other = learner("pnorm", "hinge", d, C=0.7, p=2.0)
        np.testing.assert_allclose(one.learn(rows), other.learn(rows), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(theta_of(one), theta_of(other))


@pytest.mark.slow
def test_dual_step_with_l2_is_pa1() -> None:
    for seed in range(20):
        stream = streams.make(np.random.default_rng(seed), "weights")
        d, rows = stream.X.shape[1], sparse(stream.X, stream.y, stream.h)
        one = learner("pa1", "hinge", d, C=0.7)
        other = learner("dual_step", "hinge", d, C=0.7)
        np.testing.assert_allclose(one.learn(rows), other.learn(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_pa_is_pa1_without_a_cap_and_pa2_with_a_large_one() -> None:
    for seed in range(20):
        stream = streams.make(np.random.default_rng(seed), "dense")
        d, rows = stream.X.shape[1], sparse(stream.X, stream.y)
        margins = learner("pa", "hinge", d).learn(rows)
        for rule in ("pa1", "pa2"):
            other = learner(rule, "hinge", d, C=1e15).learn(rows)
            np.testing.assert_allclose(margins, other, rtol=1e-9, atol=1e-9)


def test_pnorm_lms_does_not_see_one_scale_of_all_features() -> None:
    stream = streams.make(np.random.default_rng(0), "sparse", "real")
    d = stream.X.shape[1]
    one = learner("pnorm_lms", "square", d).learn(sparse(stream.X, stream.y))
    for scale in (1e-12, 3.0, 1e12):
        other = learner("pnorm_lms", "square", d).learn(sparse(stream.X * scale, stream.y))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "rule, loss, params",
    [
        ("eg", "hinge", {"C": 1.0}), ("winnow", "hinge", {"C": 1.0}),
        ("eg", "absolute", {"eta": 1.0}), ("winnow", "absolute", {"eta": 1.0}),
        ("pnorm", "hinge", {"p": 30.0}), ("pnorm", "hinge", {"p": 30.5}),
        ("aggressive", "hinge", {"p": 30.0}), ("pnorm_lms", "square", {"p": 30.0}),
        *(("dual_step", "hinge", {"link": link, "p": 30.0}) for link in LINKS),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e5, 1e12])
def test_huge_and_tiny_numbers_stay_numbers(
    rule: str, loss: str, params: dict, scale: float
) -> None:
    """Weights that the oracle has too, whatever the size of theta."""
    kind = "sparse"
    stream = streams.make(np.random.default_rng(3), kind, "binary")
    X = stream.X * scale
    made = learner(rule, loss, X.shape[1], **params)
    margins = made.learn(sparse(X, stream.y))
    assert np.isfinite(margins).all()
    assert np.isfinite(made.state.totals).all()
    theta, w = theta_of(made), load_comparator(made)
    assert np.isfinite(w).all()
    link = params.get("link", rule if rule in LINKS else "pnorm")
    oracle = {
        "l2": lambda: theta,
        "winnow": lambda: oracles_first_order.winnow_link(theta),
        "eg": lambda: oracles_first_order.eg_link(theta, 10.0),
        "pnorm": lambda: oracles_first_order.pnorm_link(theta, params["p"]),
    }[link]()
    if rule == "pnorm_lms":
        X_t = max(oracles_first_order.length(x, params["p"]) for x in X)
        oracle = oracle / (params["p"] - 1.0) / X_t**2
    np.testing.assert_allclose(w, oracle, rtol=1e-9, atol=1e-12 * np.abs(oracle).max())


@pytest.mark.parametrize("link", ["winnow", "eg", "pnorm"])
def test_float32_bears_large_theta(link: str) -> None:
    """e^theta and theta^(p-1) are beyond float32 long before theta is."""
    stream = streams.make(np.random.default_rng(4), "dense", "binary")
    d, params = stream.X.shape[1], {"link": link, "p": 30.0, "C": 1e6, "gamma": 1e6}
    one, other = (
        Learner("dual_step", "hinge", d, params=params, compiled=False, dtype=dtype)
        for dtype in ("float64", "float32")
    )
    for made in (one, other):
        with np.errstate(over="ignore"):  # until the row has ended
            margins = made.learn(sparse(stream.X * 30.0, stream.y))
        assert np.isfinite(margins).all()
        assert np.isfinite(made.state.cells).all()
        assert np.isfinite(made.state.totals).all()
    assert np.abs(theta_of(one)).max() > 100.0


def run_of(made: Learner, stream: streams.Stream, loss: str, u: np.ndarray) -> Run:
    """A run as a certificate is told of it, by hand."""
    rule, state = made.state.layout.rule, made.state
    h = rule.hyper_of(made.engine.params)
    own = {slot.name: state.slot(slot.name)[:, 0] for slot in rule.own_slots}
    shared = {slot.name: state.slot(slot.name) for slot in rule.shared_slots}
    totals = {
        slot.name: float(value)
        for slot, value in zip(rule.total_slots, state.totals[0], strict=True)
    }
    p = stream.X @ u
    value = find_loss(loss).value
    return Run(
        own=own,
        shared=shared,
        totals=totals,
        w=load_comparator(made),
        h=h,
        rows=len(p),
        loss=float(made.sums[1]),
        mistakes=float(made.sums[2]),
        u=u,
        loss_u=math.fsum(
            k * value(m, y, ()) for k, m, y in zip(stream.h, p, stream.y, strict=True)
        ),
        hinge_u=lambda gamma: float(stream.h @ np.maximum(0.0, gamma - stream.y * p)),
        square_u=float(stream.h @ (stream.y - p) ** 2),
        lipschitz=math.nan,
    )


def test_corollary_2_as_printed_is_false() -> None:
    """x = 10, .01, .01, .01, y = 1, u = 0: one mistake. The bound as printed is below 1."""
    X = np.array([[10.0], [0.01], [0.01], [0.01]])
    stream = streams.Stream(X, np.ones(4), np.ones(4), X != 0.0, 2)
    made = learner("aggressive", "hinge", 1)
    made.learn(sparse(X, stream.y))
    sharp, simple = find_rule("aggressive").certificate.claims(
        run_of(made, stream, "hinge", np.zeros(1))
    )
    e, c = (made.state.totals[0, 7 + i] for i in (0, 1))
    printed = 4.0 + (c - e) - e
    assert sharp.measured == 1.0
    assert printed < 1.0
    assert sharp.bound >= 1.0
    assert simple.bound >= 1.0
