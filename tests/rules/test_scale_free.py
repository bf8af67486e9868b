"""AdaGrad and the scale-free rules: certificates, invariances, lazy shrinkage, projections."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles
import pytest
from helpers import Learner, legal, sparse
from oracles_adagrad import NEAREST

from streamomd.core.errors import UsageError
from streamomd.losses import find_loss
from streamomd.rules import all_rules, find_rule
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.sets import shrunk
from streamomd.rules.contract import Rule

oracles.families()
SCALE_FREE: dict[str, list[dict[str, Any]]] = {
    name: [{}] for name, rule in all_rules().items() if rule.row.range.float64.least > 0.0
}
"""Rules that name a least feature value: only then do units not matter."""
SCALE_FREE |= {
    "nag_projected": [{}, {"C": 4.0}, {"norm": "l2"}],
    "si_pnorm": [{}, {"eta": 5.0}],
    "si_adagrad": [{}, {"eta": 5.0}],
}
CERTIFIED: dict[str, list[dict[str, Any]]] = {
    "adagrad": [
        {},
        {"delta": 1.5},
        {"l1": 0.02},
        {"l2": 0.1, "delta": 0.1},
        {"l1": 0.01, "l2": 0.1, "box": 0.5},
        {"box": 0.5, "eta": 0.5 * math.sqrt(2.0)},
        {"ball": "l1", "radius": 1.0},
        {"ball": "l2", "radius": 0.7},
    ],
    "adagrad_da": [
        {},
        {"delta": 3.0},
        {"l1": 0.02},
        {"l2": 0.1, "delta": 0.1},
        {"l1": 0.01, "l2": 0.1, "box": 0.5},
        {"ball": "l1", "radius": 1.0, "delta": 2.0},
        {"ball": "l2", "radius": 0.7, "delta": 2.0},
    ],
    "nag_projected": [{}, {"C": 4.0}, {"C": 0.3}, {"norm": "l2"}, {"norm": "lq"}, {"passes": 2}],
    "si_pnorm": [{}, {"eta": 3.0}, {"eta": 0.3}, {"L": 2.0}],
    "si_adagrad": [{}, {"eta": 3.0}, {"eta": 0.3}, {"L": 2.0}],
}


def rows(rng: np.random.Generator, binary: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some 40 sparse rows of a few badly scaled features, and a planted truth with much noise."""
    n, d = int(rng.integers(20, 50)), int(rng.integers(2, 9))
    Z = rng.standard_normal((n, d)) * (rng.random((n, d)) < rng.uniform(0.3, 1.0))
    truth = rng.standard_normal(d) * rng.choice([0.0, 1.0, 2.0], d)
    y = Z @ truth + rng.uniform(0.0, 1.0) * rng.standard_normal(n)
    scales = 10.0 ** (rng.uniform(-2.0, 2.0, d) * rng.choice([0.0, 1.0]))
    return Z * scales, (np.where(y > 0.0, 1.0, -1.0) if binary else y), truth / scales


def finished(learner: Learner, rule: Rule, params: dict, X: Any, y: Any, u: Any) -> Run:
    """What a certificate is told of an uncompiled run, for comparator u."""
    state, loss = learner.state, learner.engine.loss
    own = {slot.name: state.slot(slot.name)[:, 0].astype(float) for slot in rule.own_slots}
    shared = {s.name: state.slot(s.name).reshape(-1).astype(float) for s in rule.shared_slots}
    names = [slot.name for slot in rule.total_slots]
    totals = dict(zip(names, state.totals[0].tolist(), strict=True))
    h = rule.hyper_of(params)
    u = (
        rule.certificate.feasible({**own, **shared}, h).nearest(u)
        if rule.certificate.feasible
        else u
    )
    goal = loss.numbers({})
    suffered = math.fsum(loss.value(p, a, goal) for p, a in zip(X @ u, y, strict=True))
    assert loss.lipschitz is None or np.isfinite(loss.lipschitz(goal))
    w = learner.engine.weights(state, 0, X.shape[1])[:, 0]
    told = (len(X), learner.sums[1], learner.sums[2], u, suffered)
    return Run(own, shared, totals, w, h, *told, lambda gamma: math.nan, math.nan, math.nan)


def claims(name: str, seed: int, params: dict) -> list[Claim]:
    """The certificate's claims on a random stream, for four comparators."""
    rng = np.random.default_rng([seed, *name.encode()])
    free = name in ("adagrad", "nag_projected")
    loss = str(rng.choice(["logistic", "hinge", "absolute", "square" if free else "huber"]))
    X, y, truth = rows(rng, loss in ("logistic", "hinge"))
    found = find_rule(name)
    rule = found.certificate.accounted or found
    params = legal(rule, find_loss(loss), params)
    learner = Learner(rule, loss, X.shape[1], params=params, compiled=False)
    batch = sparse(X, y)
    if rule.looks(params):
        learner.engine.look(learner.state, batch)
    learner.learn(batch)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    told: list[Claim] = []
    for u in (np.zeros_like(truth), truth, 3.0 * truth, best):
        run = finished(learner, rule, params, X, y, u)
        assert rule.certificate.claims is not None
        told += rule.certificate.claims(run)
    return told


@pytest.mark.parametrize(
    "name, params", [("adagrad", {"implicit": True}), ("adagrad_da", {"implicit": True}),
                     ("adagrad", {"ball": "l1", "radius": 1.0, "project_every": 2})],
)  # fmt: skip
def test_no_certificate_beyond_the_theorem(name: str, params: dict) -> None:
    """What the theorem does not speak of is refused, with the reason."""
    with pytest.raises(ValueError, match=r"theorem 5|projected|delta"):
        claims(name, 2, params)


def units(rng: np.random.Generator, X: Any, least: float, most: float) -> list[np.ndarray]:
    """Powers of 2 that bring each feature to the top of a range, to its bottom, or to either."""
    size = np.abs(X)
    smallest = np.where(size > 0.0, size, np.inf).min(axis=0)
    top = np.floor(np.log2(most / np.maximum(size.max(axis=0), 1e-9)))
    bottom = np.ceil(np.log2(least / np.where(np.isfinite(smallest), smallest, 1.0)))
    picks = (top, bottom, np.where(rng.random(X.shape[1]) < 0.5, top, bottom))
    return [np.ldexp(rng.choice([-1.0, 1.0], X.shape[1]), pick.astype(int)) for pick in picks]


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SCALE_FREE)
@pytest.mark.sample(6)
def test_units_do_not_matter_up_to_the_ends_of_the_range(name: str, dtype: str, loss: str) -> None:
    """Features at either end of the range are predicted as those near 1, bit for bit."""
    limits = find_rule(name).row.range.of(dtype)
    for seed, params in enumerate(SCALE_FREE[name] * 4):
        rng = np.random.default_rng([seed, *name.encode()])
        X, y, _ = rows(rng, True)
        X = np.where(X == 0.0, 0.0, np.copysign(np.clip(np.abs(X), 0.1, 10.0), X))
        numbers = legal(find_rule(name), find_loss(loss), params)
        first, *others = (
            Learner(name, loss, X.shape[1], params=numbers, dtype=dtype, compiled=False).learn(
                sparse(X * c, y)
            )
            for c in (np.ones(X.shape[1]), *units(rng, X, *limits))
        )
        for margins in others:
            assert np.array_equal(margins, first), (params, seed)


def test_the_papers_scale_free_rules_name_a_least_value() -> None:
    """The tests above have them all."""
    assert {*SCALE_FREE} >= {"ng", "nag", "snag", "nag_projected", "si_pnorm", "si_adagrad"}


def round_by_round(w: float, k: int, rate: float, l1: float, l2: float) -> float:
    """k rounds one after the other, with more digits."""
    v, pull, more = np.longdouble(abs(w)), np.longdouble(rate) * l1, 1 + np.longdouble(rate) * l2
    for _ in range(k):
        v = (v - pull) / more
        if v <= 0.0:
            return 0.0
    return float(v) * math.copysign(1.0, w)


@pytest.mark.parametrize("l1, l2", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 1e-9), (1e-9, 1.0)])
def test_missed_rounds_are_exact(l1: float, l2: float) -> None:
    """Closed form = loop, for up to a million rounds."""
    rng = np.random.default_rng(5)
    counts = [0, 1, 2, 7, 100, *rng.integers(0, 20_000, 20).tolist(), 1_000_000]
    for k in counts:
        w = float(rng.standard_normal() * 10.0 ** rng.uniform(-3.0, 3.0))
        rate = abs(w) / max(k, 1) * rng.uniform(0.01, 0.7) / max(l1, abs(w) * l2)
        expected = round_by_round(w, k, rate, l1, l2)
        assert shrunk(w, float(k), rate, l1, l2) == pytest.approx(expected, rel=1e-12, abs=0.0)


def test_shrinkage_never_overflows() -> None:
    """Rates and weights at the ends of what a double holds."""
    for rate in (0.0, 1e-300, 1e300, math.inf):
        for l1, l2 in ((1.0, 0.0), (0.0, 1.0), (1e-300, 1e300), (1e300, 1e-300), (1.0, 1.0)):
            for k in (1.0, 1e9):
                w = shrunk(-2.0, k, rate, l1, l2)
                assert -2.0 <= w <= 0.0


@pytest.mark.parametrize("params", [{}, {"l1": 0.02}, {"l2": 0.1}, {"l1": 0.02, "l2": 0.1}])
def test_the_simplest_form_of_adagrad_is_adagrad(params: dict[str, Any]) -> None:
    """Rounds made up for at each touch, or twice at those that learn: one rounding apart."""
    rule = find_rule("adagrad")
    free = rule.reduced_for(rule.parse_params(params))
    assert free.constraint is None
    assert rule.reduced_for(rule.parse_params({"ball": "l1"})) is rule
    X, y, _ = rows(np.random.default_rng(3), True)
    margins = [
        Learner(form, "hinge", X.shape[1], params=params, compiled=False).learn(sparse(X, y))
        for form in (free, rule)
    ]
    np.testing.assert_allclose(*margins, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_projections_are_the_closed_form(norm: str) -> None:
    """The engine's multiplier lands where sorting (L1) or root finding (L2) does."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        X, y, _ = rows(rng, True)
        params = {"ball": norm, "radius": float(rng.uniform(0.01, 2.0)), "project_every": len(X)}
        kept = Learner("adagrad", "logistic", X.shape[1], params=params, compiled=False)
        free = Learner("adagrad", "logistic", X.shape[1], compiled=False)
        kept.learn(sparse(X, y))
        free.learn(sparse(X, y))
        v, H = free.state.slot("w")[:, 0], np.sqrt(free.state.slot("G")[:, 0])
        expected = NEAREST[norm](v, H, np.ones_like(v), params["radius"])
        np.testing.assert_allclose(kept.state.slot("w")[:, 0], expected, rtol=1e-9, atol=1e-12)


def objective(name: str, learner: Learner, h: Any, w: Any) -> float:
    """<theta, w> - f_t(w) with t the next row; f_t as the rule's docstring has it."""
    slot = {s.name: learner.state.slot(s.name).reshape(-1) for s, _ in
            learner.state.layout.columns()}  # fmt: skip
    names = [s.name for s in learner.state.layout.rule.total_slots]
    total = dict(zip(names, learner.state.totals[0], strict=True))
    if name == "adagrad_da":
        H = (h.delta if h.delta else h.L * slot["b"]) + np.sqrt(slot["G"])
        phi = learner.state.clock * np.sum(h.l1 * np.abs(w) + h.l2 * w * w / 2.0)
        if h.box and np.any(np.abs(w) > h.box):
            return -math.inf
        size = np.abs(w).sum() if h.ball == 1.0 else math.sqrt(float(w @ w))
        if h.ball and size > h.radius * (1.0 + 1e-9):
            return -math.inf
        return float(slot["theta"] @ w - np.sum(H * w * w) / (2.0 * h.eta) - phi)
    span = np.abs(w) * slot["b"]
    if name == "si_adagrad":
        pace = np.sqrt(h.L**2 + slot["Q"])
        return float(slot["theta"] @ w - math.sqrt(len(w)) / 2.0 * np.sum(span**2 * pace))
    q, beta = total["p"] / (total["p"] - 1.0), total["ahead"]
    return float(slot["theta"] @ w - beta / 2.0 * np.sum(span**q) ** (2.0 / q))


@pytest.mark.parametrize("name", ["adagrad_da", "si_adagrad", "si_pnorm"])
def test_the_weight_is_the_gradient_of_the_conjugate(name: str) -> None:
    """grad f*(theta) is where <theta, w> - f(w) is largest: no step from it goes up."""
    rng = np.random.default_rng(11)
    for params in CERTIFIED[name] * 4:
        X, y, _ = rows(rng, True)
        numbers = legal(find_rule(name), find_loss("logistic"), params)
        learner = Learner(name, "logistic", X.shape[1], params=numbers, compiled=False)
        learner.learn(sparse(X, y))
        w = learner.engine.weights(learner.state, 0, X.shape[1])[:, 0]
        h = find_rule(name).hyper_of(numbers)
        top = objective(name, learner, h, w)
        size = np.abs(w) + 1.0 / np.abs(X).max(axis=0, initial=1e-9)
        for length in (1e-2, 1e-4, 1e-6):
            for _ in range(20):
                other = w + length * size * rng.standard_normal(len(w))
                found = objective(name, learner, h, other)
                assert found <= top + 1e-12 * (1.0 + abs(top)), (params, length)


def test_seen_scales_make_the_transductive_form() -> None:
    """With every scale known beforehand nothing is clipped afterwards: s stays."""
    X, y, _ = rows(np.random.default_rng(3), True)
    learner = Learner("nag_projected", "logistic", X.shape[1], params={"passes": 2}, compiled=False)
    learner.engine.look(learner.state, sparse(X, y))
    before = learner.state.slot("s").copy()
    learner.learn(sparse(X, y))
    assert np.array_equal(before.reshape(-1), np.abs(X).max(axis=0))
    assert np.array_equal(before, learner.state.slot("s"))


def adversary(seed: int, params: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose scales grow by up to 10^4 on the way, and labels that are each row's prediction
    with the sign changed: X, y, the margins, and the hinge loss's gradients (rows, coordinates)."""
    rng = np.random.default_rng([seed, 36])
    n, d = 60, 4
    X = rng.uniform(0.5, 1.0, (n, d)) * rng.choice([-1.0, 1.0], (n, d))
    X *= 10.0 ** (rng.uniform(-2.0, 4.0, d) * np.linspace(0.0, 1.0, n)[:, None])
    learner = Learner("nag_projected", "hinge", d, params=params, compiled=False)
    y = np.ones(n)
    learner.look(sparse(X, y))
    margins = np.empty(n)
    for i in range(n):
        row = X[i : i + 1], y[i : i + 1]
        y[i] = (
            -1.0
            if learner.engine.predict(learner.state, np.zeros(3), sparse(*row))[0, 0] > 0
            else 1
        )
        margins[i] = learner.learn(sparse(*row))[0, 0]
    return X, y, margins, np.where(y * margins < 1.0, -y, 0.0)[:, None] * X


def corners(rng: np.random.Generator, s: np.ndarray, C: float, q: float) -> list[np.ndarray]:
    """Members of sum (s_i abs(u_i))^q <= C^q: 0, its axes, random directions."""
    axes = [sign * C * np.eye(len(s))[i] / s for i in range(len(s)) for sign in (-1.0, 1.0)]
    drawn = rng.standard_normal((20, len(s)))
    return [0.0 * s, *axes, *(C * one / (np.linalg.norm(one, q) * s) for one in drawn)]


def regret(X: Any, y: Any, margins: Any, u: np.ndarray) -> float:
    losses = np.maximum(1.0 - y * margins, 0.0) - np.maximum(1.0 - y * (X @ u), 0.0)
    return math.fsum(losses)


@pytest.mark.parametrize(
    "params, q", [({"norm": "l1"}, 1.0), ({"norm": "l2"}, 2.0), ({"norm": "lq", "p": 3.0}, 1.5)]
)
def test_theorem_1_of_p1_against_an_adversary(params: dict, q: float) -> None:
    """Transductive, any p: regret <= 2 sqrt(2) C sum_i sqrt(sum of g_i^2) / max abs(x_i)."""
    for seed in range(4):
        for C in (0.5, 5.0):
            X, y, margins, g = adversary(seed, {**params, "C": C, "passes": 2})
            s = np.abs(X).max(axis=0)
            bound = 2.0 * math.sqrt(2.0) * C * math.fsum(np.linalg.norm(g, axis=0) / s)
            for u in corners(np.random.default_rng(seed), s, C, q):
                assert regret(X, y, margins, u) <= bound * (1.0 + 1e-9)


def test_corollary_1_of_p1_against_an_adversary() -> None:
    """Streaming: the regret is at most that of the first tau rows, at most tau (C + 1) where
    predictions are clipped, and theorem 2's sum with the scales of these rows for the first."""
    for seed in range(4):
        for tau in (1, 5, 30):
            C = 2.0
            X, y, margins, g = adversary(seed, {"C": C})
            s, first = np.abs(X).max(axis=0), np.abs(X[:tau]).max(axis=0)
            growth = s / first
            factor = (1.0 + 6.0 * growth + growth**2) / (2.0 * math.sqrt(2.0))
            rest = C * math.fsum(np.linalg.norm(g, axis=0) / s * factor)
            for u in corners(np.random.default_rng(seed), s, C, 1.0):
                early = regret(X[:tau], y[:tau], margins[:tau], u)
                assert early <= tau * (2.0 * C + 1.0)
                assert regret(X, y, margins, u) <= early + rest * (1.0 + 1e-9)


@pytest.mark.slow
def test_corollary_1_of_p1_in_a_random_order() -> None:
    """Rows in a random order: in all but a share delta of the orders Delta is at most the largest
    value by its (1 - nu)-quantile, and the bound with that in its place holds in them."""
    rng = np.random.default_rng(37)
    n, d, C, nu, delta = 60, 3, 2.0, 0.2, 0.1
    X, truth = rng.exponential(size=(n, d)) * [1.0, 1e-3, 1e3], np.array([1.0, -1e3, 1e-3])
    y = np.where(X @ truth + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    tau, s = math.ceil(math.log(d / delta) / nu), X.max(axis=0)
    growth = s / np.sort(X, axis=0)[-math.ceil(n * nu)]
    factor = (1.0 + 6.0 * growth + growth**2) / (2.0 * math.sqrt(2.0))
    late = 0
    for seed in range(60):
        order = np.random.default_rng(seed).permutation(n)
        Z, label = X[order], y[order]
        learner = Learner("nag_projected", "hinge", d, params={"C": C}, compiled=False)
        margins = learner.learn(sparse(Z, label))[:, 0]
        g = np.where(label * margins < 1.0, -label, 0.0)[:, None] * Z
        rest = C * math.fsum(np.linalg.norm(g, axis=0) / s * factor)
        late += bool(np.any(s / Z[:tau].max(axis=0) > growth))
        if np.all(s / Z[:tau].max(axis=0) <= growth):
            for u in corners(rng, s, C, 1.0):
                bound = tau * (C + 1.0) + rest
                assert regret(Z, label, np.clip(margins, -C, C), u) <= bound
    assert late <= delta * 60


def test_si_pnorm_changes_its_power_as_rows_grow() -> None:
    """Rows of 1, 2, … 30 features: predictions are the oracle's through every change of p."""
    rng = np.random.default_rng(13)
    X = rng.standard_normal((60, 30)) * 10.0 ** rng.uniform(-4.0, 4.0, 30)
    for t, row in enumerate(X):
        row[t // 2 + 1 :] = 0.0
    y, h = np.where(rng.random(60) < 0.5, 1.0, -1.0), np.ones(60)
    params = {"eta": 2.0, "L": 1.0}
    trace = oracles.run("si_pnorm", "logistic", X, y, h, params)
    learner = Learner("si_pnorm", "logistic", 30, params=params, compiled=False)
    assert np.all(np.abs(learner.learn(sparse(X, y)) - trace.margins) <= 1e-10 * trace.scale)


@pytest.mark.parametrize("name", ["adagrad", "nag_projected"])
def test_the_accounts_add_up(name: str) -> None:
    """Where nothing is projected, lemma 1 leaves out just the last distance: it is an equality.

    sum of g <w_t - u, x> = its bound - sum A_i (w_i - u_i)^2 / 2, at the end.
    """
    for seed in range(20):
        rng = np.random.default_rng([seed, 17])
        X, y, truth = rows(rng, True)
        params = {"delta": float(seed % 3)} if name == "adagrad" else {"C": 1e3 / (seed + 1)}
        found = find_rule(name)
        rule = found.certificate.accounted
        assert rule is not None
        assert rule.certificate.claims is not None
        numbers = legal(rule, find_loss("logistic"), params)
        learner = Learner(rule, "logistic", X.shape[1], params=numbers, compiled=False)
        margins = learner.learn(sparse(X, y))[:, 0]
        slopes = [learner.engine.loss.slope(p, a, None) for p, a in zip(margins, y, strict=True)]
        run = finished(learner, rule, numbers, X, y, 0.1 * truth)
        regret = float(np.dot(slopes, margins - X @ run.u))
        root = np.sqrt(run.own["G"])
        if name == "adagrad":
            A = (run.h.delta + root) / run.h.eta
        else:
            if not np.abs(run.w * run.shared["s"]).sum() < 0.5 * run.h.C:
                continue
            A = root * run.shared["s"] / (run.h.C * math.sqrt(2.0))
        rest = float(A @ (run.w - run.u) ** 2) / 2.0
        bound = rule.certificate.claims(run)[0].bound
        assert regret == pytest.approx(bound - rest, rel=1e-9, abs=1e-9 * abs(bound))


@pytest.mark.parametrize("ball", ["l1", "l2"])
def test_a_ball_of_a_growing_delta_is_refused(ball: str) -> None:
    """Before a row: what is predicted after delta grew would not be equation 5's argmin."""
    with pytest.raises(UsageError, match=r"a ball needs a delta .* model\.params\.delta"):
        Learner("adagrad_da", "hinge", 3, params={"ball": ball, "radius": 1.0}, compiled=False)
