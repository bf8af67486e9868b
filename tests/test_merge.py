"""Merging: alone the identity; it commutes, associates, and is exact for least squares."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import oracles
import pytest
from helpers import Learner, legal, sparse

from streamomd.errors import UsageError
from streamomd.losses import all_losses
from streamomd.merge import merge, tree
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule
from streamomd.state import State

oracles.families()
SIZE, PARTS = 7, 4
KEEP_ROWS = [name for name, rule in all_rules().items() if rule.keeps == "recent"]
MERGED = [name for name in all_rules() if name not in KEEP_ROWS]
CASES = [(name, at) for name in MERGED for at in range(len(oracles.VARIANTS.get(name, [{}])))]


def loss_of(rule: Rule) -> str:
    return (rule.losses or ("logistic",))[0]


def params_of(name: str, at: int) -> dict:
    rule = all_rules()[name]
    return legal(rule, all_losses()[loss_of(rule)], oracles.VARIANTS.get(name, [{}])[at])


def copied(state: State) -> State:
    copy = State.start(state.layout)
    copy.cells[...] = state.cells
    copy.totals[...] = state.totals
    copy.clock = state.clock
    copy.extra = {name: array.copy() for name, array in state.extra.items()}
    return copy


def bits(state: State) -> tuple:
    extra = [(name, array.tobytes()) for name, array in sorted(state.extra.items())]
    cells = np.ascontiguousarray(state.table[:, : state.layout.used])
    return cells.tobytes(), state.totals.tobytes(), state.clock, extra


def rows(rng: np.random.Generator, count: int, rule: Rule) -> tuple:
    """Sparse rows in units of their own; coordinate 6 is met in the third part only."""
    X = rng.standard_normal((count, SIZE)) * (rng.random((count, SIZE)) < 0.6)
    y = X @ np.arange(-3.0, 4.0) + 0.5 * rng.standard_normal(count)
    if all_losses()[loss_of(rule)].classifies:
        y = np.where(y > 0.0, 1.0, -1.0)
    return X * 2.0 ** np.arange(-3, 4), y


@functools.cache
def run(name: str, at: int, seed: int = 0) -> tuple:
    """The engine, the common start, four states that went on from it, and their rows."""
    rule = all_rules()[name]
    rng = np.random.default_rng([seed, *name.encode()])
    learner = Learner(rule, loss_of(rule), SIZE, params=params_of(name, at), compiled=False)
    X, y = rows(rng, 15, rule)
    X[:, 6] = 0.0
    learner.learn(sparse(X, y))
    start, parts = learner.state, []
    for part in range(PARTS):
        learner.state = copied(start)
        X, y = rows(rng, 10 + 5 * part, rule)
        if part != 2:
            X[:, 6] = 0.0
        learner.learn(sparse(X * 1.5**part, y))
        parts.append(learner.state)
    return learner.engine, start, tuple(parts), tuple(10 + 5 * part for part in range(PARTS))


def same(a: State, b: State, parts: tuple) -> None:
    """Equal to 1e-12 of what was merged; what the engine sums, of its terms."""
    assert a.clock == b.clock
    rule = a.layout.rule
    for slot in (*rule.shared_slots, *rule.own_slots):
        top = max(np.abs(part.slot(slot.name)).max() for part in parts)
        top = max(top, np.abs(a.slot(slot.name)).max())
        np.testing.assert_allclose(
            a.slot(slot.name), b.slot(slot.name), rtol=1e-12, atol=1e-12 * top, err_msg=slot.name
        )
    for at, slot in enumerate(rule.total_slots):
        top = max(np.abs(part.totals[:, at]).max() for part in parts)
        np.testing.assert_allclose(
            a.totals[:, at], b.totals[:, at], rtol=1e-12, atol=1e-12 * top, err_msg=slot.name
        )
    for name, matrix in a.extra.items():
        scale = np.sqrt(np.abs(np.diagonal(matrix, axis1=1, axis2=2)))
        np.testing.assert_allclose(
            np.diagonal(matrix, axis1=1, axis2=2),
            np.diagonal(b.extra[name], axis1=1, axis2=2),
            rtol=1e-11,
        )
        off = np.abs(matrix - b.extra[name]) * scale[:, :, None] / scale[:, None, :]
        assert off.max() <= 1e-10


@pytest.mark.parametrize("name, at", CASES)
def test_a_merge_of_one_is_the_identity(name: str, at: int) -> None:
    engine, start, parts, examples = run(name, at)
    for join in (merge, tree):
        alone = join(engine, parts[:1], start, examples[:1])
        assert bits(alone) == bits(parts[0])
        assert alone.cells.ctypes.data != parts[0].cells.ctypes.data


@pytest.mark.parametrize("name, at", CASES)
def test_merges_commute_and_associate(name: str, at: int) -> None:
    """To 1e-12; and no input is changed."""
    engine, start, parts, examples = run(name, at)
    before = [bits(state) for state in (start, *parts)]
    whole = merge(engine, parts, start, examples)
    again = merge(engine, parts, start, examples)
    back = merge(engine, parts[::-1], start, examples[::-1])
    pair = merge(engine, parts[:2], start, examples[:2])
    rest = merge(engine, parts[2:], start, examples[2:])
    halves = merge(engine, (pair, rest), start, (sum(examples[:2]), sum(examples[2:])))
    one_by_one = pair
    for k in (2, 3):
        so_far = (sum(examples[:k]), examples[k])
        one_by_one = merge(engine, (one_by_one, parts[k]), start, so_far)

    assert bits(again) == bits(whole)
    for other in (back, halves, one_by_one):
        same(whole, other, parts)
    assert bits(halves) == bits(tree(engine, parts, start, examples))
    assert [bits(state) for state in (start, *parts)] == before
    assert whole.clock == start.clock + sum(part.clock - start.clock for part in parts)


@pytest.mark.parametrize("name, at", CASES)
def test_a_merged_state_learns_on(name: str, at: int) -> None:
    """Weights stay finite, and the rows after it teach as usual."""
    engine, start, parts, examples = run(name, at)
    whole = merge(engine, parts, start, examples)
    X, y = rows(np.random.default_rng(1), 30, all_rules()[name])
    margins = engine.learn(whole, np.zeros(3), sparse(X, y))
    assert np.isfinite(margins).all()
    assert whole.clock == start.clock + sum(examples) + 30


@pytest.mark.parametrize("name", [name for name in MERGED if "seen" not in name])
def test_copies_of_one_state_have_its_weights(name: str) -> None:
    """Where weights are kept as a mean, that of equal ones is theirs."""
    engine, start, parts, _ = run(name, 0)
    rule = all_rules()[name]
    if [slot.merge for slot in rule.own_slots if slot.name in ("w", "v", "z")] != ["mean"]:
        pytest.skip("its weights are made from sums")
    if rule.keeps == "matrix":
        pytest.skip("its means are taken in the dual: equal states count twice")
    double = merge(engine, (parts[0], parts[0]), start, (1, 1))
    expected = engine.weights(parts[0], 0, SIZE)
    np.testing.assert_allclose(engine.weights(double, 0, SIZE), expected, rtol=1e-12)


def union(name: str) -> tuple:
    """A merged state, and one state that saw all rows in order."""
    rule = all_rules()[name]
    rng = np.random.default_rng(2)
    learner = Learner(rule, "square", SIZE, params={"a": 0.3}, compiled=False)
    batches = [sparse(*rows(rng, 12, rule)) for _ in range(4)]
    learner.learn(batches[0])
    start, parts = learner.state, []
    for batch in batches[1:]:
        learner.state = copied(start)
        learner.learn(batch)
        parts.append(learner.state)
    learner.state = copied(start)
    for batch in batches[1:]:
        learner.learn(batch)
    return merge(learner.engine, parts, start, (12, 12, 12)), learner.state


@pytest.mark.parametrize("name", ["rls", "vaw"])
def test_least_squares_merge_exactly(name: str) -> None:
    """The merged state is that of one pass over all rows."""
    merged, whole = union(name)
    np.testing.assert_allclose(merged.slot("mu"), whole.slot("mu"), rtol=1e-10)
    np.testing.assert_allclose(merged.extra["matrix"], whole.extra["matrix"], rtol=1e-9, atol=1e-14)
    assert merged.clock == whole.clock


def test_each_kind_by_hand() -> None:
    """NAG: scales by their maximum, weights squashed to it and averaged, G and N by increments."""
    learner = Learner("nag", "logistic", 2, compiled=False)
    start = learner.state
    parts = [copied(start), copied(start)]
    for part, (s, w, G, N) in zip(parts, ((2.0, 0.5, 3.0, 1.5), (8.0, 0.1, 1.0, 4.0)), strict=True):
        part.slot("s")[0], part.slot("w")[0], part.slot("G")[0] = s, w, G
        part.totals[0, 0], part.clock = N, 5
    whole = merge(learner.engine, parts, start, (30, 10))
    assert whole.slot("s").tolist() == [8.0, 0.0]
    assert whole.slot("w")[0, 0] == 0.75 * (0.5 * 2.0 / 8.0) + 0.25 * 0.1
    assert whole.slot("G")[0, 0] == 4.0
    assert (whole.totals[0, 0], whole.clock) == (5.5, 10)
    by_G = merge(learner.engine, parts, start, (30, 10), by="G")
    assert by_G.slot("w")[0, 0] == 0.75 * (0.5 * 2.0 / 8.0) + 0.25 * 0.1
    np.testing.assert_allclose(by_G.slot("w")[1], 0.0)


def test_means_by_G_associate() -> None:
    """Also for a coordinate that only one of the states has learned from."""
    engine, start, parts, examples = run("nag", 0)
    whole = merge(engine, parts, start, examples, by="G")
    same(whole, tree(engine, parts, start, examples, by="G"), parts)
    np.testing.assert_allclose(whole.slot("w")[6], parts[2].slot("w")[6], rtol=1e-12)


def test_ftrl_proximal_has_the_mean_weights() -> None:
    """z does not add: it is made anew so that the weights are their mean."""
    for at in range(len(oracles.VARIANTS["ftrl_proximal"])):
        engine, start, parts, examples = run("ftrl_proximal", at)
        whole = merge(engine, parts, start, examples)
        mean = sum(
            n * engine.weights(part, 0, SIZE) for n, part in zip(examples, parts, strict=True)
        ) / sum(examples)
        np.testing.assert_allclose(engine.weights(whole, 0, SIZE), mean, rtol=1e-12, atol=1e-15)


def test_what_cannot_be_merged_is_refused() -> None:
    engine, start, parts, examples = run("nag", 0)
    with pytest.raises(UsageError, match="for each state"):
        merge(engine, parts, start, examples[1:])
    with pytest.raises(UsageError, match="for each state"):
        merge(engine, parts, start, examples, by="hope")
    for name in KEEP_ROWS:
        engine, start, parts, examples = run(name, 0)
        assert bits(merge(engine, parts[:1], start, (1,))) == bits(parts[0])
        with pytest.raises(UsageError, match="keeps rows"):
            merge(engine, parts, start, examples)


def test_no_examples_at_all() -> None:
    """States that learned nothing count alike."""
    engine, start, _, _ = run("nag", 0)
    for many in itertools.repeat((copied(start), copied(start)), 2):
        assert bits(merge(engine, many, start, (0, 0))) == bits(start)
