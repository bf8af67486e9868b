"""Targets in standard units: the learner, changes of scale, raw losses and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import dense, sparse

from streamomd.core.batch import Batch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules, find_rule, target_problem

RULES = ["adagrad", "ftrl_proximal", "nag", "ng", "ogd", "snag"]
LOSSES = ["absolute", "epsilon_insensitive", "huber", "pinball", "square"]
LENGTHS = {"huber": ("threshold", 20.0), "epsilon_insensitive": ("epsilon", 2.0)}


class Rows:
    """Targets around 100 with deviation 30, a huge one among them, and weights."""

    def __init__(self, count: int = 120, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.X = draw.normal(size=(count, 3)) * [3.0, 0.5, 1.0] + [5.0, -2.0, 0.0]
        self.S = draw.normal(size=(count, 4)) * (draw.random((count, 4)) < 0.4)
        self.y = 100.0 + 8.0 * self.X[:, 0] - 20.0 * self.S[:, 0] + draw.normal(size=count)
        self.y[count // 3] += 400.0
        self.y[:3] = self.y[0]  # one value, at first
        self.h = draw.choice([0.0, 0.5, 1.0, 2.0], count)
        self.h[:2] = 1.0

    def batch(self, a: float = 1.0, b: float = 0.0, *, is_dense: bool = False) -> Batch:
        make, X = (dense, self.X) if is_dense else (sparse, np.hstack([self.X, self.S]))
        return make(X, a * self.y + b, self.h)


def learner(
    rule: str, loss: str, *, unit: float = 1.0, standardize: bool = False, compiled: bool = False,
    size: int = 8, dtype: str = "float64",
) -> tuple[Engine, State]:  # fmt: skip
    """An engine and its state before the first row; unit: of the target."""
    found, aim = find_rule(rule), find_loss(loss)
    params = found.parse_params({})
    found = found.reduced_for(params)
    own = {LENGTHS[loss][0]: LENGTHS[loss][1] * unit} if loss in LENGTHS else {}
    layout = Layout(found, size, 1, dtype, 3, 0, standardize, True)
    engine = Engine(layout, aim, 1, True, params, aim.parse_params(own), compiled)
    state = State.start(layout)
    engine.begin(state)
    return engine, state


def learned(engine: Engine, state: State, batch: Batch, cut: int = 1000) -> tuple[Any, Any]:
    """Margins of before learning, and sums; the batch cut every so many rows."""
    sums, found = np.zeros(3), []
    for low in range(0, len(batch), cut):
        found.append(engine.learn(state, sums, batch.rows(low, min(low + cut, len(batch)))))
    return np.concatenate(found)[:, 0], sums


def bits(state: State) -> list[bytes]:
    return [a.tobytes() for a in (state.cells, state.totals, *state.extra.values())]


def test_what_can_be_learned() -> None:
    """The losses with a unit, and the rules whose weights can be set."""
    assert sorted(name for name, loss in all_losses().items() if loss.degree) == LOSSES
    able = [
        name
        for name, rule in sorted(all_rules().items())
        if not rule.losses.names and not target_problem(rule, rule.parse_params({}))
    ]
    assert able == RULES


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.sample(6)
def test_every_rule_and_loss(rule: str, loss: str) -> None:
    """Units and offsets of the target change no prediction after the first label; any batches end
    in the same bits; losses are those of raw margins; weights, and a change, leave predictions."""
    rows = Rows()
    for standardize in (False, True):
        engine, state = learner(rule, loss, standardize=standardize)
        margins, sums = learned(engine, state, rows.batch())
        assert np.ptp(margins[20:]) > 10.0
        for a, b in ((250.0, -1e6), (1e-5, 3.0), *([] if loss == "pinball" else [(-2.0, 1e4)])):
            other = learner(rule, loss, unit=abs(a), standardize=standardize)
            there, _ = learned(*other, rows.batch(a, b))
            exact = 1e-8 * max(1.0, abs(b / a) / 1e3)  # a y + b is rounded itself
            assert (there[1:] - b) / a == pytest.approx(margins[1:], rel=exact, abs=exact)
        again = learner(rule, loss, standardize=standardize)
        cut, cut_sums = learned(*again, rows.batch(), 7)
        assert (cut.tobytes(), cut_sums.tobytes(), bits(again[1])) == (
            margins.tobytes(), sums.tobytes(), bits(state)
        )  # fmt: skip
        p = engine.loss.numbers(engine.loss_params)
        total = 0.0
        for m, y, h in zip(margins.tolist(), rows.y.tolist(), rows.h.tolist(), strict=True):
            total += h * engine.loss.value(m, y, p)
        assert sums[1] == total
        shown = np.zeros(3)
        before = engine.predict(state, shown, rows.batch())[:, 0]
        assert shown[0] == sums[0]
        assert shown[2] == pytest.approx((rows.h * (before - rows.y) ** 2).sum(), rel=1e-12)
        w = engine.weights(state, 0, 8)[:, 0]
        given = np.hstack([np.ones((120, 1)), rows.X, rows.S])
        assert before == pytest.approx(given @ w, rel=1e-9)
        was = state.extra["target"].copy()
        engine._change_references(state)
        assert np.all(state.extra["target"][3:] != was[3:])
        after = engine.predict(state, np.zeros(3), rows.batch())[:, 0]
        assert after == pytest.approx(before, rel=1e-9)


def changes(count: int) -> list[int]:
    found, t = [], 1
    while t <= count:
        found.append(t)
        t = t + 1 if t < 16 else math.ceil(1.25 * t)
    return found


@pytest.mark.parametrize("loss, degree", [("square", 2), ("absolute", 1)])
@pytest.mark.parametrize("rule", ["ogd", "adagrad", "ftrl_proximal"])
def test_it_is_the_learner_on_standard_targets(rule: str, loss: str, degree: int) -> None:
    """Margins are those of an oracle with the mean and the deviation of all labels so far."""
    rows = Rows(150)
    rows.h[:] = 1.0
    X = np.hstack([np.ones((150, 1)), rows.X, rows.S])
    w, G, z, c, s, seen = np.zeros(8), np.zeros(8), np.zeros(8), 0.0, 0.0, np.zeros(0)
    due, expected = changes(150), []
    for t, (x, y) in enumerate(zip(X, rows.y, strict=True), 1):
        if t in due and len(seen):
            c2, s2 = seen.mean(), seen.std()
            s2 = s if s2 < 1e-9 else s2
            if s2 > 0.0:
                w *= s / s2
                w[0] += (c - c2) / s2
                G *= (s / s2) ** (2 * (degree - 1)) if s > 0.0 else 1.0
                w[G == 0.0] *= rule != "ftrl_proximal"  # has no weight where it has no slope
            c, s = c2, s2
        expected.append(c + s * (w @ x))
        if s == 0.0 and len(seen) and abs(y - c) > 1e-9:
            s = abs(y - c)
        r = w @ x - (y - c) / s if s > 0.0 else 0.0
        g = (r if loss == "square" else np.sign(r)) * x
        seen = np.append(seen, y)
        before, G = np.sqrt(G), G + g * g
        moved = G > 0.0
        if rule == "ogd":
            w = w - 0.1 / math.sqrt(t) * g
        elif rule == "adagrad":
            w[moved] -= 0.5 * g[moved] / np.sqrt(G[moved])
        else:  # follow the regularized leader, alpha .1, beta 1
            z = -w * (1.0 + before) / 0.1 + g - (np.sqrt(G) - before) / 0.1 * w
            w = np.where(moved, -0.1 * z / (1.0 + np.sqrt(G)), 0.0)
    engine, state = learner(rule, loss)
    assert learned(engine, state, rows.batch())[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    "rule, is_dense, dtype", [("nag", True, "float64"), ("ftrl_proximal", False, "float32")]
)
def test_compiled_is_uncompiled(rule: str, is_dense: bool, dtype: str) -> None:
    """To the bit, of margins, sums, states and predictions."""
    batch, ends = Rows().batch(is_dense=is_dense), set()
    for compiled in (False, True):
        made = learner(rule, "huber", compiled=compiled, dtype=dtype, size=4 if is_dense else 8)
        margins, sums = learned(*made, batch)
        shown = made[0].predict(made[1], sums, batch)
        ends.add((margins.tobytes(), sums.tobytes(), shown.tobytes(), *bits(made[1])))
    assert len(ends) == 1


def test_a_saved_state_continues_to_the_same_bits() -> None:
    """Of ``parts`` and ``fill``, before and after changes of the scale."""
    batch = Rows().batch()
    engine, whole = learner("nag", "square", standardize=True)
    learned(engine, whole, batch)
    for at in (1, 2, 4, 16, 21, 60):
        _, first = learner("nag", "square", standardize=True)
        learned(engine, first, batch.rows(0, at))
        again = State.start(first.layout)
        for low, high, arrays in first.parts():
            again.fill(low, high, {name: np.array(array) for name, array in arrays.items()})
        learned(engine, again, batch.rows(at, len(batch)))
        assert bits(again) == bits(whole)
