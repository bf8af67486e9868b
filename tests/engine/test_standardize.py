"""Rules on standardised inputs: the learner, changes of reference, batches, saved states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import dense, sparse

from streamomd.core.batch import Batch, DenseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.standardize import change_reference
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import all_rules, find_rule, standardize_problem

LEARNS = {
    "adagrad", "arow_diag", "cw_diag", "ftrl_proximal", "nag", "ng", "ogd", "pa", "pa1", "pa2",
    "perceptron", "snag",
}  # fmt: skip


class Rows:
    """Numeric columns with offsets and scales, one that is constant at first, and sparse ones."""

    def __init__(self, count: int = 90, seed: int = 0, classes: int = 2) -> None:
        draw = np.random.default_rng(seed)
        self.X = draw.normal(size=(count, 3)) * [3.0, 0.01, 1.0] + [50.0, -2.0, 0.0]
        self.X[:, 2] = np.where(np.arange(count) < 5, 7.0, np.round(self.X[:, 2]))
        self.S = draw.normal(size=(count, 4)) * (draw.random((count, 4)) < 0.4)
        score = (self.X[:, 0] - 50.0) / 3.0 + self.S[:, 0] + 0.3 * draw.normal(size=count)
        self.y = np.where(score > 0.0, 1.0, -1.0)
        if classes > 2:
            self.y = np.digitize(score, [-0.5, 0.5]).astype(float)
        self.h = draw.choice([0.5, 1.0, 2.0], count)

    def batch(self, *, is_dense: bool = False, to: Any = None) -> Batch:
        """The rows, their numeric columns changed by ``to``."""
        X = self.X if to is None else to(self.X)
        make = dense if is_dense else sparse
        return make(X if is_dense else np.hstack([X, self.S]), self.y, self.h)


def learner(
    rule: str, loss: str = "", *, size: int = 8, classes: int = 2, compiled: bool = False,
    dtype: str = "float64", params: dict[str, Any] | None = None,
) -> tuple[Engine, State]:  # fmt: skip
    """An engine of 3 standardised columns and its state before the first row."""
    found = find_rule(rule)
    aim = find_loss(loss or found.losses.default)
    learners = classes if classes > 2 or aim.coupled else 1
    layout = Layout(found, size, learners, dtype, 3, 0, True)
    engine = Engine(layout, aim, classes, True, found.parse_params(params or {}), {}, compiled)
    state = State.start(layout)
    engine.begin(state)
    return engine, state


def learned(engine: Engine, state: State, batch: Batch, cut: int = 1000) -> bytes:
    """Margins of before learning, the batch cut every so many rows."""
    pieces = [batch.rows(at, min(at + cut, len(batch))) for at in range(0, len(batch), cut)]
    return b"".join(engine.learn(state, np.zeros(3), piece).tobytes() for piece in pieces)


def bits(state: State) -> list[bytes]:
    return [a.tobytes() for a in (state.cells, state.totals, *state.extra.values())]


class Oracle:
    """Logistic loss on standardised inputs, from all rows so far. s is None before a value that
    is not c."""

    def __init__(self, rule: str, eta: float) -> None:
        self.rule, self.eta = rule, eta
        self.seen: list[Any] = []
        self.weights: list[float] = []
        self.next = 1
        self.c, self.s = np.zeros(3), [0.0] * 3
        self.w, self.G, self.scale = np.zeros(8), np.zeros(8), np.zeros(8)
        self.N = 0.0

    def change(self) -> None:
        """The mean and the standard deviation of all rows seen become the reference."""
        X, t = np.array(self.seen), len(self.seen)
        for j in range(3):
            c = np.average(X[:, j], weights=self.weights)
            s = math.sqrt(np.average((X[:, j] - c) ** 2, weights=self.weights))
            if np.all(X[:, j] == X[0, j]):
                c, s = X[0, j], self.s[j]
            if self.s[j] > 0.0:
                self.w[0] += self.w[1 + j] * (c - self.c[j]) / self.s[j]
                self.w[1 + j] *= s / self.s[j]
                self.G[1 + j] *= (self.s[j] / s) ** 2
                self.scale[1 + j] *= self.s[j] / s
            self.c[j], self.s[j] = c, s
        if t < 16:
            self.next = t + 1
        elif t < 1000:
            self.next = math.ceil(1.25 * t)
        else:
            self.next = 2 * t

    def learn(self, x: Any, sparse_part: Any, y: float, h: float) -> float:
        self.seen.append(x)
        self.weights.append(h)
        t = len(self.seen)
        if t >= self.next:
            self.change()
        z = np.zeros(8)
        z[0], z[4:] = 1.0, sparse_part
        for j in range(3):
            if self.s[j] == 0.0 and x[j] != self.c[j]:
                self.s[j] = abs(x[j] - self.c[j])
            z[1 + j] = (x[j] - self.c[j]) / self.s[j] if self.s[j] > 0.0 else 0.0
        if self.rule == "nag":
            larger = np.maximum(self.scale, np.abs(z))
            held = larger > 0.0
            self.w[held] *= self.scale[held] / larger[held]
            self.scale = larger
            self.N += sum((z[held] / larger[held]) ** 2)
        margin = float(self.w @ z)
        g = -h * y / (1.0 + math.exp(y * margin))
        self.G += (g * z) ** 2
        moved = self.G > 0.0
        if self.rule == "ogd":
            self.w -= self.eta / math.sqrt(t) * g * z
        elif self.rule == "adagrad":
            self.w[moved] -= self.eta * g * z[moved] / np.sqrt(self.G[moved])
        else:
            pace = self.eta * math.sqrt(t / self.N)
            self.w[moved] -= pace * g * z[moved] / (self.scale[moved] * np.sqrt(self.G[moved]))
        return margin


@pytest.mark.parametrize("rule", ["ogd", "adagrad", "nag"])
def test_it_is_the_learner_on_z_with_the_reference_of_each_time(rule: str) -> None:
    """Margins and raw weights are those of an oracle that sees all rows so far."""
    rows = Rows(200)
    oracle = Oracle(rule, 0.3)
    expected = [oracle.learn(*row) for row in zip(rows.X, rows.S, rows.y, rows.h, strict=True)]
    engine, state = learner(rule, params={"eta": 0.3})
    margins = engine.learn(state, np.zeros(3), rows.batch())

    assert margins[:, 0] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert np.abs(expected).max() > 0.5
    slope = oracle.w[1:4] / oracle.s
    w = engine.weights(state, 0, 8)[:, 0]
    assert w[1:4] == pytest.approx(slope, rel=1e-9)
    assert w[4:] == pytest.approx(oracle.w[4:], rel=1e-9)
    assert w[0] == pytest.approx(oracle.w[0] - slope @ oracle.c, rel=1e-9)


@pytest.mark.parametrize("rule", sorted(all_rules()))
def test_every_rule_learns_or_is_refused(rule: str) -> None:
    """A change of reference leaves predictions as they are; raw weights give them; any batches
    end in the same bits. Other rules are refused with a reason."""
    found = all_rules()[rule]
    assert (standardize_problem(found, found.parse_params({})) == "") == (rule in LEARNS)
    if rule not in LEARNS:
        return
    rows, ends = Rows(), set()
    for cut in (1000, 1, 7):
        engine, state = learner(rule)
        margins = learned(engine, state, rows.batch(), cut)
        ends.add((margins, *bits(state)))
    assert len(ends) == 1
    before = engine.predict(state, np.zeros(3), rows.batch())
    w, X = engine.weights(state, 0, 8), np.hstack([np.ones((90, 1)), rows.X, rows.S])
    assert np.abs(before).max() > 0.1
    assert pytest.approx(before, rel=1e-8, abs=1e-8) == X @ w
    was = state.extra["reference"].copy()
    change_reference(state, found.hyper_of(engine.params))
    assert np.all(state.extra["reference"][2:, 1:] != was[2:, 1:])
    after = engine.predict(state, np.zeros(3), rows.batch())
    assert after == pytest.approx(before, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rule", sorted(LEARNS))
def test_degrees_are_what_slots_do(rule: str) -> None:
    """Where a value is multiplied by 3, what a row adds to a slot is multiplied by 3^degree."""
    found = find_rule(rule)
    found = found if rule == "snag" else found.reduced_for(found.parse_params({}))
    slots, h = found.state, found.hyper_of(found.parse_params({}))
    degrees = dict(slots.degrees) | ({slots.curvature: 2} if slots.curvature else {})
    make: Any = slots.move
    after = []
    for x in (0.25, 0.75):
        shared: Any = slots.shared()
        if found.observe is not None:
            shared, _ = found.observe.function(shared, x, 4.0, h)
        move = make(*(0.5 for _ in make._fields))
        own = found.update(slots.own(), shared, x, move, 4.0, h)
        after.append(shared._asdict() | own._asdict() if shared else own._asdict())
    for name, degree in degrees.items():
        assert after[1][name] == pytest.approx(3.0**degree * after[0][name], rel=1e-12)
        assert after[0][name] > 0.0
    sizes = {slot.name for slot in found.shared_slots} | {"G", "S"}
    assert sizes & {*after[0]} == {*degrees}


@pytest.mark.parametrize("params", [{"l1": 0.01}, {"l2": 0.01}])
@pytest.mark.parametrize("rule", ["adagrad", "ftrl_proximal"])
def test_a_change_of_reference_with_a_regularizer(rule: str, params: dict[str, Any]) -> None:
    """Weights that shrink with the clock are set as they are at the change."""
    engine, state = learner(rule, params=params)
    engine.learn(state, np.zeros(3), Rows().batch())
    before = engine.predict(state, np.zeros(3), Rows().batch())
    change_reference(state, find_rule(rule).hyper_of(engine.params))
    after = engine.predict(state, np.zeros(3), Rows().batch())
    assert after == pytest.approx(before, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rule", ["ogd", "nag"])
def test_units_and_offsets_do_not_matter(rule: str) -> None:
    """Any affine change of the columns leaves progressive margins to 1e-8."""
    rows = Rows(300)
    shown = []
    for to in (None, lambda X: X * [1e6, -1e-6, 1.0] + [1e9, 1e-5, -1e3]):
        engine, state = learner(rule)
        shown.append(engine.learn(state, np.zeros(3), rows.batch(to=to)))
    assert np.abs(shown[0]).max() > 0.5
    assert shown[1] == pytest.approx(shown[0], abs=1e-8)


@pytest.mark.parametrize("is_dense, dtype", [(False, "float64"), (True, "float32")])
def test_compiled_is_uncompiled(is_dense: bool, dtype: str) -> None:
    """To the bit, for sparse and dense batches, their values float64 or float32."""
    batch = Rows(classes=3).batch(is_dense=is_dense)
    if isinstance(batch, DenseBatch):
        batch = DenseBatch(batch.values.astype(np.float32), batch.y, batch.weight)
    ends = set()
    for compiled in (False, True):
        size = 4 if is_dense else 8
        made = learner("nag", size=size, classes=3, compiled=compiled, dtype=dtype)
        margins = learned(*made, batch)
        ends.add((margins, *bits(made[1]), made[0].predict(made[1], np.zeros(3), batch).tobytes()))
    assert len(ends) == 1


def test_a_saved_state_continues_to_the_same_bits() -> None:
    """Of ``parts`` and ``fill``; nothing is forgotten at the row of a change."""
    batch = Rows().batch()
    engine, whole = learner("nag")
    learned(engine, whole, batch)
    for at in (1, 2, 16, 20, 50):
        _, first = learner("nag")
        learned(engine, first, batch.rows(0, at))
        again = State.start(first.layout)
        for low, high, arrays in first.parts():
            assert {n: (a.dtype.name, a.shape) for n, a in arrays.items()} == (
                first.layout.arrays(low, high)
            )
            again.fill(low, high, arrays)
        learned(engine, again, batch.rows(at, len(batch)))
        assert bits(again) == bits(whole)


def test_rows_without_importance_change_nothing() -> None:
    """They are predicted, and neither learned nor observed."""
    engine, state = learner("ogd")
    learned(engine, state, Rows(20).batch())
    was = bits(state)
    rows = Rows(5, seed=1)
    rows.h[:] = 0.0
    predicted = engine.predict(state, np.zeros(3), rows.batch())
    assert engine.learn(state, np.zeros(3), rows.batch()).tobytes() == predicted.tobytes()
    assert bits(state) == was
