"""Merging: alone the identity; it commutes, associates, and is exact for least squares."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import oracles
import pytest
from helpers import Learner, legal, sparse

from streamomd.core.errors import UsageError
from streamomd.engine import merge as merge_module
from streamomd.engine.layout import Layout
from streamomd.engine.merge import merge, tree
from streamomd.engine.state import State
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.rules.contract import RootMatrix, Rule

oracles.families()
SIZE, PARTS = 7, 4
KEEP_ROWS = [name for name, rule in all_rules().items() if rule.storage.kind == "recent"]
BLOCKS = [name for name, rule in all_rules().items() if rule.storage.kind == "block"]
"""Merged by their information, no slot alone: see ``test_merge_block``."""
MERGED = [name for name in all_rules() if name not in (*KEEP_ROWS, *BLOCKS)]
CASES = [(name, at) for name in MERGED for at in range(len(oracles.VARIANTS.get(name, [{}])))]


def loss_of(rule: Rule) -> str:
    return rule.losses.default


def params_of(name: str, at: int) -> dict:
    rule = all_rules()[name]
    return legal(rule, all_losses()[loss_of(rule)], oracles.VARIANTS.get(name, [{}])[at])


def bits(state: State) -> tuple:
    extra = [(name, array.tobytes()) for name, array in sorted(state.extra.items())]
    cells = np.ascontiguousarray(state.table[:, : state.layout.used])
    return cells.tobytes(), state.totals.tobytes(), state.clock, extra


def rows(rng: np.random.Generator, count: int, rule: Rule, classes: int = 2) -> tuple:
    """Sparse rows in units of their own; coordinate 6 is met in the third part only."""
    X = rng.standard_normal((count, SIZE)) * (rng.random((count, SIZE)) < 0.6)
    y = X @ np.arange(-3.0, 4.0) + 0.5 * rng.standard_normal(count)
    if all_losses()[loss_of(rule)].classifies:
        y = np.where(y > 0.0, 1.0, -1.0)
    if classes > 2:
        y = rng.integers(0, classes, count).astype(float)
    return X * 2.0 ** np.arange(-3, 4), y


@functools.cache
def run(
    name: str, at: int, *, accounts: bool = False, classes: int = 2, reduced: bool = False
) -> tuple:
    """The engine, the common start, four states that went on from it, and their rows.

    reduced: of the form of the rule that a job with these parameters has.
    """
    rule = all_rules()[name]
    rule = (accounts and rule.certificate.accounted) or rule
    rule = rule.reduced_for(params_of(name, at)) if reduced else rule
    rng = np.random.default_rng([*name.encode()])
    told = {"params": params_of(name, at), "classes": classes, "compiled": False}
    learner = Learner(rule, loss_of(rule), SIZE, **told)
    X, y = rows(rng, 15, rule, classes)
    X[:, 6] = 0.0
    learner.learn(sparse(X, y))
    start, parts = learner.state, []
    for part in range(PARTS):
        learner.state = start.copy()
        X, y = rows(rng, 10 + 5 * part, rule, classes)
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
    if rule.storage.kind == "root":
        grams = [[m.T @ m for m in state.extra["matrix"]] for state in (a, b)]
        np.testing.assert_allclose(grams[0], grams[1], rtol=0, atol=1e-12 * np.max(grams[0]))
        return
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
@pytest.mark.sample(6)
def test_a_merge_of_one_is_the_identity(name: str, at: int) -> None:
    engine, start, parts, examples = run(name, at)
    for join in (merge, tree):
        alone = join(engine, parts[:1], start, examples[:1])
        assert bits(alone) == bits(parts[0])
        assert alone.cells.ctypes.data != parts[0].cells.ctypes.data


@pytest.mark.parametrize("name, at", CASES)
@pytest.mark.sample(2)
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
@pytest.mark.sample(3)
def test_a_merged_state_learns_on(name: str, at: int) -> None:
    """Weights stay finite, and the rows after it teach as usual."""
    engine, start, parts, examples = run(name, at)
    whole = merge(engine, parts, start, examples)
    X, y = rows(np.random.default_rng(1), 30, all_rules()[name])
    margins = engine.learn(whole, np.zeros(3), sparse(X, y))
    assert np.isfinite(margins).all()
    assert whole.clock == start.clock + sum(examples) + 30


@pytest.mark.parametrize("name, at", CASES)
@pytest.mark.sample(3)
def test_blocks_leave_no_trace(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many coordinates are taken at a time, a merge has the same bits."""
    engine, start, parts, examples = run(name, at)
    for by in merge_module.BY:
        whole = merge(engine, parts, start, examples, by=by)
        for coordinates in (1, 3):
            cells = coordinates * start.layout.width * start.cells.itemsize
            with monkeypatch.context() as patch:
                patch.setattr(merge_module, "BLOCK_BYTES", cells)
                assert bits(merge(engine, parts, start, examples, by=by)) == bits(whole)


def averages(rule: Rule) -> bool:
    """Whether its weights are kept, and merge as a mean: not made from sums, nor in the dual."""
    kept = {slot.merge for slot in rule.own_slots if slot.name in ("w", "v", "z", "mu")}
    return kept == {"mean"} and rule.storage.kind != "matrix"


@pytest.mark.parametrize("name", [name for name in MERGED if averages(all_rules()[name])])
def test_copies_of_one_state_have_its_weights(name: str) -> None:
    """The mean of equal weights is theirs."""
    engine, start, parts, _ = run(name, 0)
    double = merge(engine, (parts[0], parts[0]), start, (1, 1))
    expected = engine.weights(parts[0], 0, SIZE)
    np.testing.assert_allclose(engine.weights(double, 0, SIZE), expected, rtol=1e-12)


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.sample(6)
def test_accounts_and_classes_merge_too(name: str) -> None:
    """The rule with its certificate's slots, and a learner for each of three classes.

    Accounts need not associate: after a merge there is no certificate.
    """
    classes = 3 if all_losses()[loss_of(all_rules()[name])].classifies else 2
    for accounts in (False, True):
        engine, start, parts, examples = run(name, 0, accounts=accounts, classes=classes)
        whole = merge(engine, parts, start, examples)
        same(whole, merge(engine, parts[::-1], start, examples[::-1]), parts)
        if not accounts:
            same(whole, tree(engine, parts, start, examples), parts)
        assert np.isfinite(engine.weights(whole, 0, SIZE)).all()


def union(name: str) -> tuple:
    """A merged state, and one state that saw all rows in order."""
    rule = all_rules()[name]
    rng = np.random.default_rng(2)
    learner = Learner(rule, "square", SIZE, params={"a": 0.3}, compiled=False)
    batches = [sparse(*rows(rng, 12, rule)) for _ in range(4)]
    learner.learn(batches[0])
    start, parts = learner.state, []
    for batch in batches[1:]:
        learner.state = start.copy()
        learner.learn(batch)
        parts.append(learner.state)
    learner.state = start.copy()
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
    parts = [start.copy(), start.copy()]
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


def test_roots_add_their_squares() -> None:
    """Of AdaGrad's full matrix: what each state has added to the sum of z z' since the start."""
    rule = replace(all_rules()["adagrad"], name="rooted", storage=RootMatrix(lambda params: 5))
    layout = Layout(rule, 5, 1, "float64")
    rng = np.random.default_rng(4)
    start, parts = State.start(layout), []
    start.extra["matrix"][0, :2, :5] = rng.standard_normal((2, 5))
    for _ in range(2):
        part = start.copy()
        part.extra["matrix"][0, 0, 5:] = rng.standard_normal(5)
        parts.append(part)
    engine = Learner("adagrad", "logistic", 5, compiled=False).engine
    engine = replace(engine, layout=layout)
    whole = merge(engine, parts, start, (1, 1)).extra["matrix"][0]
    first = start.extra["matrix"][0, :, :5]
    added = [part.extra["matrix"][0, :, 5:] for part in parts]
    expected = first.T @ first + sum(rows.T @ rows for rows in added)
    np.testing.assert_allclose(whole[:, :5].T @ whole[:, :5], expected, atol=1e-13)
    across = whole[:, :5] @ whole[:, :5].T
    np.testing.assert_allclose(across, np.diag(np.diagonal(across)), atol=1e-13)
    assert np.count_nonzero(np.diagonal(across)) == 4  # five directions, one of them rounding
    assert not whole[:, 5:].any()


def test_float32_states_merge_in_double() -> None:
    """Sums and means are taken in float64, and rounded once."""
    learner = Learner("nag", "logistic", 3, dtype="float32", compiled=False)
    start, parts = learner.state, [learner.state.copy() for _ in range(3)]
    for part, w in zip(parts, (1.0, 1e-7, 1e-7), strict=True):
        part.slot("s")[:], part.slot("w")[:], part.slot("G")[:] = 1.0, w, w
    whole = merge(learner.engine, parts, start, (1, 1, 1))
    assert whole.slot("G")[0, 0] == np.float32(1.0 + 2e-7)
    assert whole.slot("w")[0, 0] == np.float32((1.0 + 2e-7) / 3.0)


def test_what_cannot_be_merged_is_refused() -> None:
    engine, start, parts, examples = run("nag", 0)
    with pytest.raises(UsageError, match="for each state"):
        merge(engine, parts, start, examples[1:])
    with pytest.raises(UsageError, match="for each state"):
        merge(engine, parts, start, examples, by="hope")
    for name in KEEP_ROWS:
        engine, start, parts, examples = run(name, 0)
        assert bits(merge(engine, parts[:1], start, (1,))) == bits(parts[0])
        with pytest.raises(UsageError, match="stores rows"):
            merge(engine, parts, start, examples)


def test_no_examples_at_all() -> None:
    """States that learned nothing count alike."""
    engine, start, _, _ = run("nag", 0)
    for many in itertools.repeat((start.copy(), start.copy()), 2):
        assert bits(merge(engine, many, start, (0, 0))) == bits(start)
