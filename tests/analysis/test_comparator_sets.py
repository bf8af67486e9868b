"""The comparator is the best in the rule's set: against scipy, for every set, loss and rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from certified import KINDS, Stream, learn, losses_of, stream
from constrained import least, problem, sets_of, value, violation
from running import write

import streamomd
from streamomd.analysis.certify import certify
from streamomd.analysis.comparator import best
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules, find_rule
from streamomd.rules.common.sets import L1, L2, Box, ComparatorSet, Free, Simplex
from streamomd.rules.contract import fields

oracles.families()
LOSSES = [name for name, loss in all_losses().items() if not loss.coupled]
SMOOTHED_LIKE_OTHERS = ("gamma_hinge", "epsilon_insensitive", "pinball")
CONSTRAINED = {"box", "ball", "U", "link", "radius"}  # parameters that choose a set


def rows_of(seed: int, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """30 badly scaled rows, targets for a loss, importances."""
    rng = np.random.default_rng(seed)
    loss = find_loss(name)
    X = rng.standard_normal((30, 4)) * 10.0 ** rng.uniform(-2.0, 2.0, 4)
    scores = X @ (rng.standard_normal(4) / np.abs(X).max(axis=0)) + 0.5 * rng.standard_normal(30)
    y = np.where(scores > 0.0, 1.0, -1.0) if loss.classifies else scores
    if loss.least is not None:
        y = rng.poisson(np.exp(np.clip(scores, -2.0, 2.0))).astype(float)
        y = np.maximum(y, loss.least)
        X /= np.abs(X).max()  # exp(<u, x>) is a number for every u of the simplex
    return X, y, rng.choice([0.5, 1.0, 3.0], 30)


def compare(seed: int, name: str) -> None:
    X, y, h = rows_of(seed, name)
    share = float(np.random.default_rng(seed).choice([0.05, 0.3, 3.0]))
    for kind, one in sets_of(X, share).items():
        found = best(problem(X, y, name, h), [one])
        u, true = found.u[:, 0], least(name, one, X, y, h)
        size = max(abs(true), 1e-6 * float(h.sum()))
        assert violation(one, u) <= 1e-9, (kind, seed)
        assert found.loss == pytest.approx(value(find_loss(name), X, y, h, u), rel=1e-9)
        assert found.loss <= true + 1e-3 * size, (kind, seed)
        assert found.loss - found.gap <= true + 1e-6 * size, (kind, seed)
        assert found.gap <= 5e-3 * size, (kind, seed)


@pytest.mark.parametrize(
    "name",
    # Each compiles two loops for its smoothed form; hinge and absolute have kinks, too.
    [pytest.param(name, marks=pytest.mark.slow if name in SMOOTHED_LIKE_OTHERS else ())
     for name in LOSSES],
)  # fmt: skip
@pytest.mark.sample(3)
def test_best_is_scipys_constrained_optimum(name: str) -> None:
    """In each set the loss is within 0.1 % of a linear programme's or SLSQP's, its gap is true."""
    compare(0, name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LOSSES)
def test_best_is_scipys_constrained_optimum_long(name: str) -> None:
    """The same on 25 more streams."""
    for seed in range(1, 26):
        compare(seed, name)


@pytest.mark.parametrize("name", ["hinge", "logistic"])
@pytest.mark.parametrize("passes", [1, 3])
def test_the_gap_of_an_unfinished_search_is_true(name: str, passes: int) -> None:
    """However early the search ends, the optimum is within the gap that is reported."""
    for seed in range(3):
        X, y, h = rows_of(seed, name)
        for kind, one in sets_of(X, 0.3).items():
            found = best(problem(X, y, name, h), [one], passes=passes)
            true = least(name, one, X, y, h)
            assert found.loss - found.gap <= true * (1 + 1e-6), (kind, seed)
            assert violation(one, found.u[:, 0]) <= 1e-9


def test_without_a_constraint_the_gap_is_small() -> None:
    """Over all weights at most twice as long as those found."""
    for name in ("hinge", "square", "absolute"):
        X, y, h = rows_of(0, name)
        found = best(problem(X, y, name, h))
        assert found.gap <= 1e-3 * found.loss


@pytest.mark.parametrize("one", [Box(0.3), L1(1.0, 0.5), L2(1.0, 0.5), Simplex()])
def test_nearest_is_the_projection(one: ComparatorSet) -> None:
    """<u - P(u), v - P(u)> <= 0 for every v of the set, weighted or not; members stay."""
    rng = np.random.default_rng(1)
    for scale in (1.0, 10.0 ** rng.uniform(-3.0, 3.0, 6)):
        some = one.scaled(scale)
        for _ in range(50):
            u = rng.standard_normal(6) * 10.0 ** rng.uniform(-3.0, 3.0, 6)
            near = some.nearest(u)
            # The largest <u - P(u), v> over the set is that of v = P(u).
            most, own = -some.least(-(u - near)), float((u - near) @ near)
            assert own == pytest.approx(most, rel=1e-9, abs=1e-9 * float(u @ u))
            np.testing.assert_allclose(some.nearest(near), near, rtol=1e-9, atol=1e-12)


LEARNED = [name for name, rule in all_rules().items() if rule.storage.kind != "block"]
"""Rules on standardised inputs have no constraint, and no weights without a bias."""


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.sample(6)
def test_weights_of_a_rule_are_in_the_set_it_names(name: str) -> None:
    """With every variant of parameters; a rule with a constraint names a set."""
    rule = find_rule(name)
    loss = next(one for one in losses_of(rule) if one.name in ("hinge", "logistic", "square"))
    names = set()
    for seed, params in enumerate([{}, *oracles.VARIANTS.get(name, [])]):
        rng = np.random.default_rng(seed)
        made: Stream = stream(rng, KINDS[seed % 3], loss, True)
        try:
            done = learn(rule, loss, made, params, "dense")
        except (UsageError, OverflowError):
            continue
        given = done.learner.engine.params
        if given.get("project_every", 1) > 1:
            continue
        state = done.learner.state
        layout = state.layout.rule
        slots = {slot.name: np.array(state.slot(slot.name)) for slot in layout.shared_slots}
        feasible = rule.certificate.feasible or layout.certificate.feasible
        one: Any = feasible(slots, layout.hyper_of(given)) if feasible else Free()
        names.add(type(one))
        w = done.learner.engine.weights(state, 0, made.X.shape[1])[:, 0]
        # ftrl_centered's radius bounds the comparators of its theorem, not its weights.
        if not isinstance(one, Free) and np.isfinite(w).all() and name != "ftrl_centered":
            assert violation(one, w) <= 1e-6, (params, one)
    if CONSTRAINED & set(fields(rule.hyper)) and name != "ftrl_proximal":
        assert names - {Free}, f"{name} has a constraint and names no set"


# ---- the regret that is measured


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """120 rows of three features in ``data``, and they themselves."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 3)) * [1.0, 0.5, 2.0]
    y = np.where(X @ [1.0, -3.0, 0.3] + 0.5 * rng.standard_normal(120) > 0.0, 1, -1)
    columns = {"y": y, **{name: X[:, i] for i, name in enumerate("abc")}}
    write(tmp_path / "data" / "rows.parquet", columns)
    return X, y


def trained(rule: str, params: dict[str, Any], loss: str = "hinge", **more: Any) -> streamomd.Model:
    sets = {"model.certificate": True, "model.params": params, "model.bias": False}
    given = {"label": "y", "numeric": ["a", "b", "c"], "quiet": True, "checkpoint": "kept"}
    return streamomd.train("data", rule=rule, loss=loss, sets=sets, **{**given, **more})


@pytest.mark.parametrize(
    ("rule", "params", "one"),
    [
        ("ogd", {"ball": "box", "radius": 0.2}, Box(0.2)),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("eg", {"eta": 0.1, "U": 1.5}, L1(1.0, 1.5)),
                ("winnow", {"eta": 0.1}, Simplex()),
                ("ogd", {"ball": "l2", "radius": 0.4}, L2(1.0, 0.4)),
                ("ogd", {"ball": "l1", "radius": 0.5}, L1(1.0, 0.5)),
                ("adagrad", {"box": 0.2}, Box(0.2)),
                ("dual_step", {"link": "winnow"}, Simplex()),
            )
        ),
    ],
)
def test_regret_is_against_the_constrained_optimum(
    rule: str, params: dict[str, Any], one: ComparatorSet, shards: Any
) -> None:
    """Also where scaling the unconstrained minimizer into the set gives a regret of other sign."""
    X, y = shards
    [found] = certify(trained(rule, params), "data")
    true = least("hinge", one, X, y, np.ones(120))
    assert true - 1e-6 <= found["comparator_loss"] <= true * (1 + 1e-4)
    assert found["comparator_loss"] - found["comparator_gap"] <= true + 1e-6
    assert found["comparator_gap"] <= 1e-3 * true
    assert found["regret"] == pytest.approx(found["loss"] - true, abs=1e-3 * true)
