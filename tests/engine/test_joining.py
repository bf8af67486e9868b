"""The passes of a merge: what they do to each coordinate, and that compiled they do the same."""

from __future__ import annotations

import functools
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest
from helpers import Learner, legal, sparse

from streamomd.engine import Engine
from streamomd.engine import merge as merge_module
from streamomd.engine.layout import Layout
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule, fields

oracles.families()
SIZE = 9


def forms() -> dict[str, tuple[Rule, dict[str, Any]]]:
    """Every form of a rule that is aligned or rejoined, with parameters that lead to it."""
    found = {}
    for name, rule in all_rules().items():
        for at, given in enumerate(oracles.VARIANTS.get(name, [{}])):
            params = legal(rule, find_loss(loss_of(rule)), given)
            lean = rule.reduced_for(params)
            for kind, form in (("", lean), ("accounts", rule.certificate.accounted)):
                if form and ((form.align and form.shared_slots) or form.state.rejoin):
                    found[f"{name}{at}{kind}"] = form, params
    return found


def loss_of(rule: Rule) -> str:
    return rule.losses.default


FORMS = forms()
ALIGNED = [name for name, (rule, _) in FORMS.items() if rule.align and rule.shared_slots]
REJOINED = [name for name, (rule, _) in FORMS.items() if rule.state.rejoin]
LAYOUTS = [(2, "float64"), pytest.param(3, "float32", marks=pytest.mark.slow)]
# A loop of each kind compiles for seconds: the quick run has a sixth of the forms.
MERGES = [
    pytest.param(name, marks=() if n % 6 == 0 else pytest.mark.slow) for n, name in enumerate(FORMS)
]


@functools.cache
def run(name: str, classes: int, dtype: str) -> tuple[Engine, State, State, State]:
    """An engine, a start and two states that went on from it; the last coordinate is in no row."""
    rule, params = FORMS[name]
    if not all_losses()[loss_of(rule)].classifies:
        classes = 2
    rng = np.random.default_rng([*name.encode()])
    told = {"classes": classes, "dtype": dtype, "params": params, "compiled": False}
    learner = Learner(rule, loss_of(rule), SIZE, **told)
    states, start = [], learner.state
    for _ in range(3):
        learner.state = start.copy()
        X = rng.standard_normal((12, SIZE)) * (rng.random((12, SIZE)) < 0.5)
        X[:, -1] = 0.0
        y = rng.choice([-1.0, 1.0], 12) if classes == 2 else rng.integers(0, 3, 12).astype(float)
        learner.learn(sparse(X, y))
        start = states[0] if states else learner.state
        states.append(learner.state)
    for state in states:  # as they may come from another process
        state.cells.flags.writeable = state.totals.flags.writeable = False
    return learner.engine, *states


def bits(state: State) -> tuple[bytes, bytes, int]:
    used = np.ascontiguousarray(state.table[:, : state.layout.used])
    return used.tobytes(), state.totals.tobytes(), state.clock


def own(state: State, j: int, k: int) -> Any:
    rule = state.layout.rule
    return rule.state.own(*(float(state.slot(slot.name)[j, k]) for slot in rule.own_slots))


def shared(state: State, j: int) -> Any:
    rule = state.layout.rule
    return rule.state.shared(*(float(state.slot(slot.name)[j]) for slot in rule.shared_slots))


def totals(state: State, k: int) -> Any:
    rule = state.layout.rule
    return rule.state.totals(*state.totals[k, : len(fields(rule.state.totals))].tolist())


def write(state: State, j: int, k: int, numbers: Any) -> None:
    for slot, number in zip(state.layout.rule.own_slots, numbers, strict=True):
        state.slot(slot.name)[j, k] = number


@pytest.mark.parametrize("classes, dtype", LAYOUTS)
@pytest.mark.parametrize("name", MERGES)
@pytest.mark.sample(4)
def test_a_compiled_merge_is_an_uncompiled_one(name: str, classes: int, dtype: str) -> None:
    """To the bit, of states that cannot be written."""
    engine, start, *parts = run(name, classes, dtype)
    for by in ("examples", "G"):
        plain = merge(engine, parts, start, (3, 1), by=by)
        compiled = merge(replace(engine, compiled=True), parts, start, (3, 1), by=by)
        assert bits(compiled) == bits(plain)
        assert bits(plain) != bits(start)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("classes, dtype", LAYOUTS)
@pytest.mark.parametrize("name", ALIGNED)
@pytest.mark.sample(2)
def test_own_slots_are_carried_to_the_common_scale(
    name: str, classes: int, dtype: str, compiled: bool
) -> None:
    """Of each coordinate and learner where the scale is another, and nothing else."""
    engine, _, state, _ = run(name, classes, dtype)
    rule, h = engine.layout.rule, engine.layout.rule.hyper_of(engine.params)
    common = np.stack([state.slot(slot.name) for slot in rule.shared_slots], axis=1)
    common[::2] = 2.0 * common[::2] + 1.0
    expected = state.copy()
    for j in range(0, SIZE, 2):
        new = rule.state.shared(*common[j].tolist())
        for k in range(state.layout.learners):
            carried = rule.align(
                own(state, j, k), shared(state, j), new, totals(state, k), float(state.clock), h
            )
            write(expected, j, k, carried)
    for at, slot in enumerate(rule.shared_slots):
        expected.slot(slot.name)[:] = common[:, at]
    found = state.copy()
    replace(engine, compiled=compiled).align(found, common)
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("classes, dtype", LAYOUTS)
@pytest.mark.parametrize("name", REJOINED)
def test_own_slots_are_made_from_the_mean(
    name: str, classes: int, dtype: str, compiled: bool
) -> None:
    """Of each coordinate that any row had, for every learner; the others stay at their start."""
    engine, _, state, _ = run(name, classes, dtype)
    rule, h = engine.layout.rule, engine.layout.rule.hyper_of(engine.params)
    mean = np.random.default_rng(0).standard_normal((SIZE, state.layout.learners))
    expected = state.copy()
    for j in range(SIZE - 1):
        for k in range(state.layout.learners):
            clock, w = float(state.clock), float(mean[j, k])
            made = rule.state.rejoin(
                own(state, j, k), w, shared(state, j), totals(state, k), clock, h
            )
            write(expected, j, k, made)
    found = state.copy()
    replace(engine, compiled=compiled).rejoin(found, mean)
    assert bits(found) == bits(expected)
    assert [own(found, SIZE - 1, k) for k in range(state.layout.learners)] == [
        rule.state.own() for _ in range(state.layout.learners)
    ]


@pytest.mark.parametrize("rule", ["nag", "ftrl_proximal", "adagrad"])
def test_a_merge_needs_one_new_state(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And some blocks, however large the states are."""
    params = {"l1": 0.01} if rule == "adagrad" else {}
    found = all_rules()[rule]
    form = found.reduced_for(found.parse_params(params))
    learner = Learner(form, "logistic", 1 << 13, params=params)
    start, rng = learner.state, np.random.default_rng(0)
    parts = [start.copy(), start.copy()]
    for part in parts:
        part.table[:, : part.layout.used] = rng.random((part.layout.size, part.layout.used))
        part.clock = 5
    monkeypatch.setattr(merge_module, "BLOCK_BYTES", start.nbytes // 64)
    merge(learner.engine, parts, start, (1, 1))  # what is made once and kept
    tracemalloc.start()
    try:
        whole = merge(learner.engine, parts, start, (1, 1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole.nbytes <= peak <= 1.5 * whole.nbytes


def test_blocks_of_many_states_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the order of a sum over nine states, nor in a maximum of zeros of both signs."""
    layout = Layout(all_rules()["nag"], 67, 1, "float64")
    engine = Learner("nag", "logistic", 67, compiled=False).engine
    rng = np.random.default_rng(0)
    start, parts = State.start(layout), [State.start(layout) for _ in range(9)]
    for part in parts:
        part.table[:, :3] = rng.random((67, 3))
        part.slot("s")[::2] = rng.choice([0.0, -0.0], 34)
    ends = set()
    for coordinates in (1, 2, 5, 16, 67):
        monkeypatch.setattr(merge_module, "BLOCK_BYTES", coordinates * layout.row_bytes)
        whole = merge(engine, parts, start, range(1, 10), by="G")
        ends.add(bits(whole))
        assert not np.signbit(whole.slot("s")).any()
    assert len(ends) == 1
