"""Dense rows walked column beside column end in the bits of dense rows walked one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import Learner, dense

from streamomd.core import jit
from streamomd.engine import Engine
from streamomd.engine import compile as fuse
from streamomd.engine.layout import Layout
from streamomd.engine.loops.dense import LEAST, MOST, filled, fits
from streamomd.engine.state import State
from streamomd.rules import find_rule

LAYOUTS = [(2, True, "float64"), (3, False, "float32")]  # classes, bias, dtype
COLUMNS = 71  # more than a block, and no multiple of a vector
FITTING = {
    "adagrad", "aggressive_second_order_diag", "arow_diag", "composite", "cw_diag", "da",
    "ftrl_centered", "ftrl_proximal", "nag", "ng", "ogd", "pa", "pa1", "pa2", "perceptron", "rda",
    "si_adagrad", "snag", "sop_diag",
}  # fmt: skip


UNFITTING = {"adagrad_full", "arow", "dual_ascent", "eg", "nag_projected", "si_pnorm", "vaw"}
"""A matrix, its root, recent rows, sums over all coordinates."""


def simplest(name: str, **params: Any) -> tuple[Any, dict[str, Any]]:
    """A rule as a job takes it, and its parameters."""
    rule = find_rule(name)
    legal = rule.parse_params(params)
    return rule.reduced_for(legal), legal


def rows(classes: int, seed: int) -> Any:
    """Dense rows in many units, a third of the values 0 or -0.0, a column of zeros, weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((90, COLUMNS)) * 10.0 ** rng.uniform(-3.0, 3.0, COLUMNS)
    X *= 1.0 - (rng.random(X.shape) < 1 / 3)
    X[:, 5] = 0.0
    X[3] = -0.0
    y = rng.integers(0, classes, len(X)) if classes > 2 else rng.choice([-1.0, 1.0], len(X))
    return dense(X, y, rng.choice([0.0, 1.0, 2.5], len(X)))


def cases() -> list[Any]:
    """Every rule that fits, with what its certificate keeps, too; NAG in the quick run."""
    made = []
    for name in sorted(FITTING):
        for at, layout in enumerate(LAYOUTS):
            marks = [] if name == "nag" and at == 1 else [pytest.mark.slow]
            made.append(pytest.param(simplest(name)[0], *layout, marks=marks, id=f"{name}-{at}"))
        accounted = find_rule(name).certificate.accounted
        if accounted is not None and fits(accounted, accounted.parse_params({}), COLUMNS):
            marks = [pytest.mark.slow]
            made.append(pytest.param(accounted, *LAYOUTS[0], marks=marks, id=f"{name}-accounted"))
    return made


@pytest.mark.parametrize("rule, classes, bias, dtype", cases())
def test_by_columns_is_by_rows(rule: Any, classes: int, bias: bool, dtype: str) -> None:
    """Margins, slots, totals and sums agree to the bit, in one batch or in several."""
    loss = rule.losses.default
    batch = rows(classes, 7)
    told = {"classes": classes, "bias": bias, "dtype": dtype}
    one, cut, other = (
        Learner(rule, loss, COLUMNS + bias, **told, compiled=compiled)
        for compiled in (True, True, False)
    )
    margins = other.learn(batch).tobytes()

    assert one.learn(batch).tobytes() == margins
    assert b"".join(cut.learn(batch.rows(at, at + 30)).tobytes() for at in (0, 30, 60)) == margins
    assert one.bits() == cut.bits() == other.bits()
    assert {operation for operation, *_ in one.engine._loops} >= {"dense"}
    assert "learn" not in {operation for operation, *_ in one.engine._loops}


def test_rules_that_fit() -> None:
    """Those of one pass over a row, whose steps need nothing of the coordinates beyond it."""
    assert all(fits(*simplest(name), MOST) for name in FITTING)
    assert not any(fits(*simplest(name), MOST) for name in UNFITTING)


@pytest.mark.parametrize(
    "name, params, size",
    [("nag", {"implicit": True}, 10), ("adagrad", {"l1": 0.1}, 10), ("nag", {}, MOST + 1)],
)
def test_others_go_by_rows(name: str, params: dict[str, Any], size: int) -> None:
    """Implicit steps, what shrinks with the clock, and states beyond the cache do not."""
    assert not fits(*simplest(name, **params), size)


def test_one_learner_that_does_not_fit_keeps_all_side_by_side_by_rows() -> None:
    """Learners side by side share a loop, so each of them has to fit."""
    engines = []
    for implicit in (False, True):
        rule, params = simplest("nag", implicit=implicit)
        loss = Learner("nag", "logistic", 3).engine.loss
        engines.append(Engine(Layout(rule, 3, 1, "float64"), loss, 2, False, params))

    assert [engine._dense for engine in engines] == [True, False]
    assert Engine.side_by_side(engines[:1] * 2)._dense
    assert not Engine.side_by_side(engines)._dense


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nag", "adagrad"])
def test_a_sweep_side_by_side_is_each_learner_alone(name: str) -> None:
    """Step sizes side by side have the margins and sums that each has alone, row by row."""
    loss = Learner(name, "logistic", 3).engine.loss
    batch, ends, engines = rows(2, 3), [], []
    for eta in (0.1, 0.5, 2.0):
        rule, params = simplest(name, eta=eta)
        layout = Layout(rule, COLUMNS + 1, 1, "float64")
        engines.append(Engine(layout, loss, 2, True, params))
        alone = Engine(layout, loss, 2, True, params, compiled=False)
        state, sums = State.start(layout), np.zeros(3)
        alone.begin(state)
        ends.append((alone.learn(state, sums, batch)[:, 0], sums))
    together = Engine.side_by_side(engines)
    state, sums = State.start(together.layout), np.zeros(9)
    together.begin(state)
    margins = together.learn(state, sums, batch)

    assert {operation for operation, *_ in together._loops} == {"dense"}
    assert np.array_equal(margins, np.stack([found for found, _ in ends], axis=1))
    assert np.array_equal(sums, np.concatenate([found for _, found in ends]))


def test_mostly_zeros_go_by_rows() -> None:
    """A row's zeros are passed over one by one, but not column beside column."""
    X = np.ones((100, 10), dtype=np.float32)
    assert filled(X)
    assert filled(X[:0])
    X[:, : 10 - int(10 * LEAST)] = 0.0
    assert filled(X)
    X[:, -1] = 0.0
    assert not filled(X)


def test_what_the_factory_makes_is_named_after_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that of two loops in a process, each of other constants, each calls its own."""
    monkeypatch.setattr(jit, "compile_cached", lambda loop, signature: loop)
    rule, _ = simplest("nag")
    shape = fuse.Shape(3, 3, Layout(rule, 4, 3, "float64").width, 0, True)
    loss = Learner("nag", "logistic", 3).engine.loss
    loop = fuse.compiled_loop.__wrapped__("dense", rule, loss, shape, "float64", "float64")

    assert "make_dense" in loop.__name__
    assert not [name for name in fuse._reached(loop) if "<locals>" in name.__qualname__]
