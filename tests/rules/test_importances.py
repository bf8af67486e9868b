"""Importances: each rule does with a row's importance h what it declares.

``check_rule``, which every rule passes, checks copies, multiples of the loss, and presence.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import oracles
import pytest
from helpers import Learner, legal, sparse

from streamomd.losses import Loss, all_losses
from streamomd.rules import all_rules, contract
from streamomd.rules.contract import Rule

oracles.families()
SIZE = 5
CASES = [(name, at) for name in all_rules() for at in range(len(oracles.VARIANTS.get(name, [{}])))]


def of(kind: str) -> list[tuple[str, int]]:
    """The rules that declare this, with each of the oracles' parameters."""
    return [(name, at) for name, at in CASES if meaning(name, at) == kind]


def meaning(name: str, at: int) -> str:
    """What importance means with these parameters: EG and Winnow with C above 0 add on mistakes."""
    params = oracles.VARIANTS.get(name, [{}])[at]
    return (
        "updates"
        if name in ("eg", "winnow") and params.get("C")
        else all_rules()[name].row.importance
    )


def loss_of(rule: Rule) -> Loss:
    return all_losses()[rule.losses.default]


def params_of(name: str, at: int, **more: Any) -> dict[str, Any]:
    rule = all_rules()[name]
    return legal(rule, loss_of(rule), {**oracles.VARIANTS.get(name, [{}])[at], **more})


def rows(seed: int, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, SIZE)) * (rng.random((30, SIZE)) < 0.7)
    y = X @ np.arange(-2.0, 3.0) + 0.5 * rng.standard_normal(30)
    return X, np.where(y > 0.0, 1.0, -1.0) if loss_of(rule).classifies else y


def learner(name: str, params: dict[str, Any], loss: Loss | None = None) -> Learner:
    rule = all_rules()[name]
    return Learner(rule, loss or loss_of(rule), SIZE, params=params, compiled=False)


def same_bits(a: Learner, b: Learner, X: Any, y: Any, h: Any, k: Any) -> None:
    """Margins and slots are equal; totals may count importances."""
    assert np.array_equal(a.learn(sparse(X, y, h)), b.learn(sparse(X, y, k)))
    assert a.state.cells.tobytes() == b.state.cells.tobytes()
    for one, other in zip(a.state.extra.values(), b.state.extra.values(), strict=True):
        assert one.shape == other.shape
    assert np.ptp(a.engine.weights(a.state, 0, SIZE)) > 0.0 if "matrix" in a.state.extra else True


def near(a: Learner, b: Learner) -> None:
    """Slots and matrices are equal to rounding; images by a link go by a reference of their own."""
    rule = a.state.layout.rule
    weights = [one.engine.weights(one.state, 0, SIZE) for one in (a, b)]
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-11 * np.abs(weights[0]).max() + 1e-30)
    for slot in (*rule.shared_slots, *rule.own_slots):
        if rule.masses and slot.name in ("a", "b"):
            continue
        one, other = a.state.slot(slot.name), b.state.slot(slot.name)
        top = np.abs(one).max() + 1e-30
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11 * top, err_msg=slot.name)
    if "matrix" in a.state.extra:
        pair = [np.asarray(one.state.extra["matrix"]) for one in (a, b)]
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-12)


def test_each_rule_declares_what_importance_means() -> None:
    """One of the words, all of which some rule uses; the default only where it is meant."""
    known = set(get_args(contract.Importance))
    assert {rule.row.importance for rule in all_rules().values()} == known
    scaled = {name for name, rule in all_rules().items() if rule.observe and rule.observe.weighted}
    assert scaled == {"adagrad_da", "ftrl_centered"}


@pytest.mark.parametrize("name, at", of("relative"))
def test_relative_importances(name: str, at: int) -> None:
    """A power of two as a factor of all importances leaves the margins, to the bit; unlike copies,
    see tests/engine/test_block_laws.py for other factors."""
    X, y = rows(8, all_rules()[name])
    h = np.random.default_rng(8).uniform(0.1, 5.0, len(y))
    params = params_of(name, at)
    plain, scaled, even = (
        learner(name, params).learn(sparse(X, y, given)) for given in (h, 1024.0 * h, np.ones(30))
    )
    assert np.array_equal(plain, scaled)
    assert not np.array_equal(plain, even)


@pytest.mark.parametrize("name, at", of("updates"))
@pytest.mark.sample(6)
def test_updates(name: str, at: int) -> None:
    """Importance 2 is the row twice, wherever the second copy updates as well."""
    params, tried = params_of(name, at), 0
    for seed in range(6):
        X, y = rows(seed, all_rules()[name])
        X *= 0.1 ** (seed % 3)  # small steps leave many rows wrong
        one, other = learner(name, params), learner(name, params)
        for x, label in zip(X, y, strict=True):
            start = other.state.copy()
            other.learn(sparse([x], [label]))
            once = other.state.copy()
            other.learn(sparse([x], [label]))
            if moved(start, once) and moved(once, other.state):
                one.state = start
                one.learn(sparse([x], [label], [2.0]))
                near(one, other)
                tried += 1
            other.state = once
    assert tried >= 5


def moved(a: Any, b: Any) -> bool:
    """Whether a row has updated any coordinate."""
    return a.cells.tobytes() != b.cells.tobytes()


@pytest.mark.parametrize("name, at", of("step"))
def test_multiples_of_the_step(name: str, at: int) -> None:
    """Of a first row, importance 2 moves the weights twice as far; squares count once."""
    made = [learner(name, params_of(name, at)) for _ in range(2)]
    x, y = [[0.5, -1.0, 0.0, 2.0, 0.1]], [1.0]
    for one, h in zip(made, (1.0, 2.0), strict=True):
        one.learn(sparse(x, y, [h]))
    for slot in all_rules()[name].own_slots:
        one, other = (each.state.slot(slot.name) for each in made)
        factor = 2.0 if slot.name in ("theta", "mu") else 1.0
        if slot.name != "a":  # relative to the first step
            np.testing.assert_allclose(other, factor * one, rtol=1e-12)
    for array, other in zip(
        made[0].state.extra.values(), made[1].state.extra.values(), strict=True
    ):
        assert np.array_equal(array, other)


@pytest.mark.parametrize("name, at", of("cap"))
def test_multiples_of_the_cap(name: str, at: int) -> None:
    """Importance 2 on every row is twice C, to the bit."""
    params = params_of(name, at)
    X, y = rows(4, all_rules()[name])
    X *= 0.3  # so that C is reached
    two, one = np.full(len(y), 2.0), np.ones(len(y))
    made = learner(name, params), learner(name, {**params, "C": 2.0 * params["C"]})
    same_bits(*made, X, y, two, one)
    if made[0].state.extra:
        return
    assert made[0].state.cells.tobytes() != without_importance(name, params, X, y)


def without_importance(name: str, params: dict[str, Any], X: Any, y: Any) -> bytes:
    made = learner(name, params)
    made.learn(sparse(X, y))
    return made.state.cells.tobytes()


@pytest.mark.parametrize("name, at", of("noise"))
def test_parts_of_the_noise(name: str, at: int) -> None:
    """Importance 2 on every row is half of r, to the bit."""
    params = params_of(name, at)
    X, y = rows(5, all_rules()[name])
    made = learner(name, params), learner(name, {**params, "r": 0.5 * params["r"]})
    same_bits(*made, X, y, np.full(len(y), 2.0), np.ones(len(y)))


@pytest.mark.parametrize("name", ["ftrl_centered", "adagrad_da"])
def test_scales_bound_each_gradient_with_its_importance(name: str) -> None:
    """L times the scale is at least abs(h g x), the row's own included, before it is predicted."""
    rule = all_rules()[name]
    made = learner(name, params_of(name, 0))
    rng = np.random.default_rng(7)
    X, y = rows(7, rule)
    h = rng.choice([0.0, 0.3, 1.0, 100.0], len(y))
    expected = np.abs(X * h[:, None]).max(axis=0)
    made.learn(sparse(X, y, h))
    found = made.state.slot(rule.shared_slots[0].name)
    assert np.array_equal(found.reshape(-1), expected)
