"""Classes of one-against-all in threads: bit-identical to one thread, for every rule and loss."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import oracles
import pytest
from helpers import Learner, dense, legal, pairs, some_pairs, sparse

from streamomd.core.batch import Batch
from streamomd.engine import Engine, walks
from streamomd.engine.divided import DividedState, Threads
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules, find_rule, standardize_problem

oracles.families()
ROWS, COLUMNS, CLASSES = 12, 5, 4
THREADS = (2, 3, 9)
"""Groups of 2 and 2; 2, 1 and 1; and one for each class."""
ONE_THREAD = {"adagrad_standardized", "auto", "laplace"}
"""Rules whose classes share a block."""


@pytest.fixture(autouse=True)
def _always_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "LEAST_WORK", 0)


def rows(seed: int, classes: int = CLASSES) -> tuple[Any, Any, Any]:
    """Numbers on several scales, a third of them absent; classes; importances."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(ROWS, COLUMNS)) * 10.0 ** -np.arange(1, COLUMNS + 1)
    X[draw.random(X.shape) < 0.3] = 0.0
    return X, draw.integers(0, classes, ROWS).astype(float), draw.choice([0.0, 0.5, 1.0, 3.0], ROWS)


def batches(seed: int, *, classes: int = CLASSES) -> list[Batch]:
    """Sparse rows, dense ones, and sparse ones again."""
    X, y, h = rows(seed, classes)
    makers = (sparse, dense, sparse)
    cuts = itertools.pairwise([0, 5, 9, ROWS])
    return [
        make(X[low:high], y[low:high], h[low:high])
        for make, (low, high) in zip(makers, cuts, strict=True)
    ]


def learner(rule: str, loss: str, **more: Any) -> Learner:
    """Of ``CLASSES`` classes, with a bias, in plain Python."""
    given = {"classes": CLASSES, "bias": True, "compiled": False, **more}
    return Learner(rule, loss, COLUMNS + 1, **given)


def learned(one: Learner, given: list[Batch], threads: int = 0) -> tuple[Any, ...]:
    """All that is left after learning, predicting, learning again. threads: 0: not divided."""
    with Threads(max(1, threads)) as pool:
        if threads:
            one.state = DividedState.of(one.state, pool)
        for batch in given:
            one.look(batch)
        margins = [one.learn(given[0]), one.engine.predict(one.state, one.sums, given[1])]
        margins += [one.learn(batch) for batch in given[1:]]
        digest = hashlib.sha256()
        one.state.digest(digest)
        one.state = one.state.joined()
    return (*one.bits(), digest.hexdigest(), *(margin.tobytes() for margin in margins))


def divisible() -> Iterator[tuple[str, str]]:
    """Every rule whose classes may be divided, with every loss of one-against-all."""
    for rule, loss in pairs():
        if rule not in ONE_THREAD and not find_loss(loss).coupled:
            yield rule, loss


def marked() -> list[Any]:
    """Every such pair; those that are not among ``some_pairs`` are for the long run."""
    quick = set(some_pairs())
    return [
        pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow) for pair in divisible()
    ]


def check(rule: str, loss: str, **more: Any) -> None:
    """State, sums, clock, margins and hash after any number of threads."""
    seed, counts = more.pop("seed", 0), more.pop("threads", THREADS)
    expected = learned(learner(rule, loss, **more), batches(seed))
    for threads in counts:
        assert learned(learner(rule, loss, **more), batches(seed), threads) == expected


@pytest.mark.parametrize("rule, loss", marked())
@pytest.mark.sample(6)
def test_threads_change_no_bit(rule: str, loss: str) -> None:
    """Every rule with every loss of one-against-all, in both dtypes."""
    check(rule, loss, seed=len(rule))
    if loss == all_rules()[rule].losses.default:
        check(rule, loss, dtype="float32", threads=THREADS[1:2])


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted({rule for rule, _ in divisible()} & {*oracles.VARIANTS}))
def test_threads_change_no_bit_with_other_parameters(rule: str) -> None:
    """Schedules, sets, regularizers, implicit steps: every variant of the oracles."""
    found = all_rules()[rule]
    loss = find_loss(found.losses.default)
    for at, params in enumerate(oracles.VARIANTS[rule]):
        check(rule, loss.name, seed=at, params=legal(found, loss, params))


def test_which_rules_learn_on_one_thread() -> None:
    """Those with a block; and any with a loss that couples the classes."""
    one_thread = set()
    for name, rule in all_rules().items():
        loss = rule.losses.default
        if not learner(name, loss).engine.divisible:
            one_thread.add(name)
    assert one_thread == ONE_THREAD
    coupled = [loss for loss in all_losses().values() if loss.coupled]
    assert [loss.name for loss in coupled] == ["softmax"]
    assert not learner("nag", "softmax").engine.divisible
    assert not learner("nag", "logistic", classes=2).engine.divisible


def test_compiled_threads_change_no_bit() -> None:
    """The compiled loops run at the same time."""
    given = batches(2)[:1]
    found = []
    for threads in (0, 2):
        one = learner("nag", "logistic", compiled=True)
        with Threads(2) as pool:
            one.state = DividedState.of(one.state, pool) if threads else one.state
            margins = [one.learn(batch).tobytes() for batch in given * 3]
            one.state = one.state.joined()
        found.append((*one.bits(), *margins))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted({rule for rule, _ in divisible()}))
def test_compiled_threads_change_no_bit_all_rules(rule: str) -> None:
    """Of every rule, with its default loss, of sparse and of dense rows."""
    check(rule, all_rules()[rule].losses.default, compiled=True, threads=(2, 3))


STANDARDIZABLE = sorted(
    name for name, rule in all_rules().items()
    if not standardize_problem(rule, rule.parse_params({}))
)  # fmt: skip


@pytest.mark.parametrize("rule", STANDARDIZABLE)
@pytest.mark.sample(2)
def test_references_change_as_on_one_thread(rule: str) -> None:
    """Columns on standardised inputs: references are one for all classes, slots move in each."""
    found, count = find_rule(rule), 40
    draw = np.random.default_rng(len(rule))
    X = draw.normal(size=(count, COLUMNS)) * [3.0, 0.01, 1.0, 1.0, 1.0]
    X[:, :2] += [50.0, -2.0]
    batch = sparse(X, draw.integers(0, CLASSES, count).astype(float))

    def left(threads: int) -> list[bytes]:
        layout = Layout(found, COLUMNS + 1, CLASSES, "float64", 3, 0, True)
        loss, params = find_loss(found.losses.default), found.parse_params({})
        made = Engine(layout, loss, CLASSES, True, params, {}, compiled=False)
        state, sums = State.start(layout), np.zeros(3)
        made.begin(state)
        with Threads(max(1, threads)) as pool:
            if threads:
                state = DividedState.of(state, pool)
            margins = made.learn(state, sums, batch)
            weights = made.weights(state, 0, COLUMNS + 1)
            state = state.joined()
        numbers = (state.cells, state.totals, *state.extra.values(), sums, margins, weights)
        assert state.clock == count
        return [array.tobytes() for array in numbers]

    expected = left(0)
    assert all(left(threads) == expected for threads in THREADS)


def some_state(rule: str = "adagrad") -> tuple[State, Learner]:
    """A state that has learned rows."""
    one = learner(rule, "logistic")
    one.learn(batches(3)[0])
    return one.state, one


@pytest.mark.parametrize("rule", ["nag", "adagrad", "arow"])
def test_a_divided_state_is_as_the_joined_one(rule: str) -> None:
    """Parts of any size, hash, bytes, slots, weights; and copies have memory of their own."""
    state, one = some_state(rule)
    with Threads(3) as threads:
        divided = DividedState.of(state.copy(), threads)
    for nbytes in (0, 1, 300):
        for ours, theirs in zip(divided.parts(nbytes), state.parts(nbytes), strict=True):
            assert ours[:2] == theirs[:2]
            assert ours[2].keys() == theirs[2].keys()
            for name, array in theirs[2].items():
                assert ours[2][name].dtype == array.dtype
                np.testing.assert_array_equal(ours[2][name], array)
    assert divided.nbytes == state.nbytes
    for slot, _ in state.layout.columns():
        np.testing.assert_array_equal(divided.slot(slot.name), state.slot(slot.name))
    found = one.engine.weights(divided, 1, 4)
    np.testing.assert_array_equal(found, one.engine.weights(state, 1, 4))
    copy = divided.copy()
    copy.totals += 1.0
    for group in copy.groups:
        group.cells += 1.0
    np.testing.assert_array_equal(divided.cells, state.cells)
    copy.take(divided)
    np.testing.assert_array_equal(copy.joined().cells, state.cells)
    np.testing.assert_array_equal(copy.totals, state.totals)
    with pytest.raises(ValueError, match="read-only"):
        divided.slot(state.layout.rule.own_slots[0].name)[...] = 0.0


def test_a_number_that_is_not_finite_is_named_as_in_the_joined_state() -> None:
    """In a slot of any class, shared or not, and in a total."""
    for k in range(CLASSES):
        state, _ = some_state("nag")
        state.slot("G")[3, k] = np.nan
        with Threads(3) as threads:
            divided = DividedState.of(state, threads)
        assert divided.problem() == state.problem() == "slot 'G' of coordinate 3 is nan"
    state, _ = some_state("nag")
    with Threads(2) as threads:
        divided = DividedState.of(state, threads)
    assert divided.problem() == ""
    state.totals[2, 0] = np.inf
    assert divided.problem() == state.problem() != ""


def test_coordinates_that_no_row_touched_take_no_memory() -> None:
    """Division and joining copy a block of zeros nowhere, and a block of -0.0."""
    layout = Layout(find_rule("nag"), 1 << 16, 3, "float64")
    state = State.start(layout)
    state.slot("w")[40_000] = -0.0
    with Threads(3) as threads:
        divided = DividedState.of(state, threads)
    again = divided.joined()
    assert np.signbit(again.slot("w")[40_000]).all()
    assert np.signbit(again.slot("w")).sum() == 3
