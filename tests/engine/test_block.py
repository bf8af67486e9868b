"""Learners on standardised inputs are their oracle; what a run leaves does not depend on how the
rows are encoded, cut into batches, or saved in between."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from auto import Auto, Floats
from auto_grouped import Grouped
from early_light_rows import EarlyAuto, set_early
from helpers import Learner
from lazy_loops import LAZY
from standardized import LOSSES, Rows, Run, made

from streamomd.core.batch import SparseBatch
from streamomd.engine import layout as layout_module
from streamomd.engine.loops.rebase import DIAGONAL, POOL
from streamomd.engine.state import State
from streamomd.rules import all_rules
from streamomd.rules.common import pooled

FORMS: dict[str, tuple[str, str]] = {
    "auto": ("auto", "recent"),
    "whole": ("auto", "whole"),
    "laplace": ("laplace", "whole"),
    "adagrad_standardized": ("adagrad_standardized", "first"),
}
"""Of each form the rule, and ``prefer`` of the oracle."""
QUICK = {("auto", "square"), ("auto", "logistic")}
"""Rules and losses that the quick run compiles."""


def test_no_rule_with_a_block_lacks_an_oracle() -> None:
    """Each is compared with ``Auto`` below."""
    blocks = {name for name, rule in all_rules().items() if rule.storage.kind == "block"}
    assert blocks == {rule for rule, _ in FORMS.values()}


class Single(Auto):
    """``Auto`` whose slots of sparse coordinates are stored as float32."""

    def see(self, i: int, x: float, h: float) -> None:
        super().see(i, x, h)
        self.n_i[i], self.q[i] = (float(np.float32(one)) for one in (self.n_i[i], self.q[i]))

    def learn(self, x: Floats, sparse: Any, y: float, h: float = 1.0) -> Floats:
        shown = super().learn(x, sparse, y, h)
        for slot in (self.w_i, self.S, self.g_i, self.H_i):
            for i in slot:
                slot[i] = slot[i].astype(np.float32).astype(np.float64)
        return shown


def some_unlearned(rows: Rows) -> Rows:
    """The first row, and one in ten, have importance 0."""
    h = np.where(np.arange(len(rows.y)) % 10 == 0, 0.0, rows.h)
    return replace(rows, h=h)


def pair(
    form: str, loss: str, rows: Rows, K: int, oracle: Any = Auto, **given: Any
) -> tuple[Run, Auto, Floats, Floats]:
    """Engine and oracle after the same rows, and what each has predicted."""
    rule, prefer = FORMS[form]
    p, d = rows.X.shape[1], rows.S.shape[1]
    one = oracle(loss, p, LOSSES[loss] if loss == "softmax" else 1, K=K, prefer=prefer)
    params: dict[str, Any] = {"block": K} if rule != "adagrad_standardized" else {}
    if rule == "auto":
        params["prefer"] = prefer
    run = Run(rule, loss, p, d, **params, **given)
    expected = np.array([one.learn(*row) for row in rows])
    return run, one, run.learn(rows), expected


def assert_same(run: Run, oracle: Auto, rtol: float = 1e-9) -> None:
    """Every number of the state, by name."""
    p, storage = oracle.p, run.state.layout.rule.storage
    near = {"rtol": rtol, "atol": 1e-12}
    total: Any = run.total
    totals = {"t": "t", "n": "n", "next": "next", "c_y": "c_y"}
    if oracle.loss == "square":
        totals |= {"labels": "n_y", "y_mean": "ybar", "y_M2": "M2y", "y_min": "ymin", "s_y": "s_y"}
    if storage.second:
        totals |= {"mse": "mse", "lam": "lam_now", "all_n": "sum_n"}
        totals |= {"recent_n": "recent_n", "recent_t": "recent_t"}
    if oracle.prefer != "whole":
        totals |= {"N": "N"}
    if oracle.prefer == "recent":
        totals |= {"lead": "lead", "v": "v"}
    for name, of_oracle in totals.items():
        np.testing.assert_allclose(total(name)[0], getattr(oracle, of_oracle), err_msg=name, **near)
    loss_sum = oracle.loss_sum / (2.0 if oracle.loss == "square" else 1.0)
    assert run.sums[:2] == pytest.approx([oracle.weight_sum, loss_sum], rel=rtol)

    reference, vectors = run.state.extra["reference"], run.state.extra["vectors"]
    np.testing.assert_allclose(reference[0, 1 : 1 + p], oracle.mu, **near)
    np.testing.assert_allclose(reference[1, 1 : 1 + p], oracle.M2, **near)
    D = oracle.D if storage.second else 1 + p
    np.testing.assert_allclose(reference[2, :D], oracle.c[:D], **near)
    np.testing.assert_allclose(reference[3, :D], oracle.s[:D], **near)
    if storage.second:
        assert run.size == D
        np.testing.assert_allclose(total("all_a"), oracle.sum_a, **near)
        np.testing.assert_allclose(total("recent_a"), oracle.recent_a, **near)
        np.testing.assert_allclose(total("retained"), oracle.rho, **near)
        np.testing.assert_allclose(vectors[:, 0, :D], oracle.w, rtol=rtol, atol=1e-10)
        for name, expected in {"A": oracle.A, "P": oracle.P}.items():
            top = float(np.abs(expected).max())
            np.testing.assert_allclose(run.blocks(name), expected, rtol=rtol, atol=rtol * top)
    if oracle.prefer != "whole":
        np.testing.assert_allclose(vectors[:, 1, : 1 + p], oracle.g[:, : 1 + p], rtol, 1e-10)
        np.testing.assert_allclose(vectors[:, 2, : 1 + p], oracle.H[:, : 1 + p], **near)
    assert_same_slots(run, oracle, rtol)


def assert_same_slots(run: Run, oracle: Auto, rtol: float) -> None:
    """Of sparse coordinates, and the weights of the linear model."""
    p, L = oracle.p, oracle.C
    slots = {slot.name for slot in run.state.layout.rule.own_slots}
    scale = run.total("scale")
    for i in range(run.state.layout.size - 1 - p):
        at = 1 + p + i
        found = {name: run.state.slot(name)[at].astype(np.float64) for name in sorted(slots)}
        if "S" in found:
            found["S"] = found["S"] * scale
        expected = {"w": oracle.w_i, "S": oracle.S, "g": oracle.g_i, "H": oracle.H_i}
        for name, numbers in found.items():
            of_oracle = expected[name].get(i, np.zeros(L))
            np.testing.assert_allclose(numbers, of_oracle, rtol=rtol, atol=1e-10, err_msg=name)
        assert run.state.slot("q")[at] == pytest.approx(oracle.q.get(i, 0.0), rel=rtol)
        assert run.state.slot("n")[at] == pytest.approx(oracle.n_i.get(i, 0.0), rel=rtol)
        if run.state.layout.rule.storage.second:
            assert run.state.slot("place")[at] == oracle.slot.get(i, 0)
    linear = oracle.export()
    none = np.zeros(L)
    sparse = [linear.sparse.get(i, none) for i in range(run.state.layout.size - 1 - p)]
    model = np.array([linear.bias, *linear.dense.T, *sparse])
    top = np.abs(model).max()
    np.testing.assert_allclose(run.weights(), model, rtol=rtol, atol=rtol * top)


@pytest.mark.parametrize("K", [7, 64])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(6)
def test_a_learner_is_its_oracle(form: str, loss: str, K: int) -> None:
    """Predictions, sums, state and weights, over changes of the reference, with importances."""
    rows = some_unlearned(made(loss, 170, seed=3))
    run, oracle, shown, expected = pair(form, loss, rows, K)
    scale = float(rows.y.std()) if loss == "square" else 1.0
    assert np.abs(shown - expected).max() <= 1e-10 * scale
    assert_same(run, oracle)
    final = np.array([oracle.export().margins(x, s) for x, s, _, _ in rows])
    assert np.abs(run.predict(rows) - final).max() <= 1e-10 * max(scale, np.abs(final).max())


class EarlyGroups(Grouped, EarlyAuto):
    """The same of ``Grouped``."""


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine with the constants of ``EarlyAuto``."""
    set_early(monkeypatch)


@pytest.mark.parametrize("K", [7, 64])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", ["auto", "whole", "laplace"])
@pytest.mark.sample(5)
def test_light_rows_are_the_oracles(form: str, loss: str, K: int, early: None) -> None:
    """As above, where most rows go to the pool: light and heavy ones, of which some enter A, with
    importances, changes of the reference and solves between them."""
    rows = some_unlearned(made(loss, 260, seed=13))
    run, oracle, shown, expected = pair(form, loss, rows, K, EarlyAuto)
    assert isinstance(oracle, EarlyAuto)
    assert 40 < oracle.light < 220
    assert 0 < oracle.entered < oracle.light * oracle.C
    scale = float(rows.y.std()) if loss == "square" else 1.0
    assert np.abs(shown - expected).max() <= 1e-9 * scale
    assert_same(run, oracle, rtol=1e-8)
    vectors, D = run.state.extra["vectors"], oracle.D
    np.testing.assert_allclose(vectors[:, POOL, :D], oracle.pool, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(vectors[:, DIAGONAL, :D], oracle.d, rtol=1e-8)


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_light_rows_of_wide_blocks(loss: str, early: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups; a pool too large for the P of its rows waits for the next P."""
    monkeypatch.setattr(layout_module, "WIDE", 128)
    rows = made(loss, 240, p=131, d=6, seed=6)
    monkeypatch.setattr(pooled, "LIGHT", 8.0)
    monkeypatch.setattr(EarlyAuto, "LIGHT", 8.0)
    run, oracle, shown, expected = pair(
        "auto", loss, rows, 64, partial(EarlyGroups, most=132), compiled=False
    )
    assert isinstance(oracle, EarlyAuto)
    assert oracle.light > 50
    assert oracle.waits > 0
    assert np.abs(shown - expected).max() <= 1e-9 * max(1.0, float(rows.y.std()))
    assert_same(run, oracle, rtol=1e-7)


@pytest.mark.parametrize("form", ["auto", "adagrad_standardized"])
@pytest.mark.parametrize("loss", LOSSES)
def test_more_columns_than_the_block(form: str, loss: str) -> None:
    """All of them are in it, and no sparse coordinate is."""
    rows = made(loss, 90, p=9, seed=4)
    run, oracle, shown, expected = pair(form, loss, rows, 7)
    assert run.state.layout.most == 10
    assert not oracle.slot
    assert np.abs(shown - expected).max() <= 1e-10 * np.abs(rows.y).max()
    assert_same(run, oracle)


@pytest.mark.parametrize("loss", LOSSES)
def test_float32_slots(loss: str) -> None:
    """The oracle with the slots of sparse coordinates rounded; the block has float64 throughout."""
    rows = made(loss, 150, seed=5)
    run, oracle, shown, expected = pair("auto", loss, rows, 7, Single, dtype="float32")
    assert np.abs(shown - expected).max() <= 2e-5 * float(rows.y.std())
    assert_same(run, oracle, rtol=3e-4)


@pytest.mark.parametrize(
    "loss", ["square", "logistic", pytest.param("softmax", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("p, K, d", [(131, 64, 6), (70, 140, 80)])
@pytest.mark.sample(2)
def test_wide_blocks_are_in_groups(
    loss: str, p: int, K: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of more than ``WIDE`` coordinates, of numeric columns or with sparse ones."""
    monkeypatch.setattr(layout_module, "WIDE", 128)
    rows = made(loss, 300, p=p, d=d, seed=6)
    run, oracle, shown, expected = pair(
        "auto", loss, rows, K, partial(Grouped, most=max(p + 1, K)), compiled=LAZY
    )
    assert run.state.extra["A"].shape[1:] == (max(p + 1, K), 64)
    assert np.abs(shown - expected).max() <= 1e-9 * max(1.0, float(rows.y.std()))
    assert_same(run, oracle, rtol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(3)
def test_a_column_that_leaves_its_reference(form: str, loss: str) -> None:
    """abs(z) above 10^6: the reference changes before the row is predicted."""
    rows = made(loss, 80, seed=7)
    X = rows.X.copy()
    X[70:, 1] += 1e9 * X[:, 1].std()
    X[75, 2] = -1e100
    run, oracle, shown, expected = pair(form, loss, replace(rows, X=X), 7)
    assert oracle.next > 75 * 1.25
    assert np.abs(shown - expected).max() <= 1e-8 * float(rows.y.std())
    assert np.isfinite(run.weights()).all()


def test_laplace_is_auto_alone() -> None:
    """The rule laplace and auto that prefers the whole: the same bits in what both have."""
    rows = made("logistic", 120, seed=8)
    alone, whole = (
        Run(rule, "logistic", 4, 6, block=7, **given)
        for rule, given in (("laplace", {}), ("auto", {"prefer": "whole"}))
    )
    assert np.array_equal(alone.learn(rows), whole.learn(rows))
    for name in ("reference", "A", "P", "places"):
        assert np.array_equal(alone.state.extra[name], whole.state.extra[name])
    for name in ("n", "q", "place", "w", "S"):
        assert np.array_equal(alone.state.slot(name), whole.state.slot(name))
    assert np.array_equal(alone.weights(), whole.weights())


CASES = [
    pytest.param(
        rule, loss, dtype,
        marks=[] if (rule, loss) in QUICK and dtype == "float64" else [pytest.mark.slow],
    )
    for rule in ("auto", "laplace", "adagrad_standardized")
    for loss in LOSSES
    for dtype in ("float64", "float32")
]  # fmt: skip


@pytest.mark.parametrize("rule, loss, dtype", CASES)
def test_compiled_is_uncompiled(rule: str, loss: str, dtype: str) -> None:
    """To the bit, rows of CSR and of a matrix, steps that invert P again included."""
    rows = some_unlearned(made(loss, 120, seed=9))
    rows.X[100, 0] += 1e4 * rows.X[:, 0].std()
    one, other, matrix = (
        Run(rule, loss, 4, 6, dtype=dtype, compiled=compiled) for compiled in (True, False, False)
    )
    margins = other.learn(rows)
    assert one.learn(rows).tobytes() == margins.tobytes()
    assert one.bits() == other.bits()
    assert matrix.learn(rows, dense=True).tobytes() == margins.tobytes()
    assert matrix.bits() == other.bits()
    assert one.predict(rows).tobytes() == other.predict(rows).tobytes()


@pytest.mark.parametrize("n", [1300, pytest.param(9000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", ["logistic", pytest.param("square", marks=pytest.mark.slow)])
def test_compiled_is_uncompiled_with_light_rows(loss: str, n: int) -> None:
    """To the bit; 9,000 rows enter A by turns."""
    rows = some_unlearned(made(loss, n, seed=9))
    one, other = (Run("auto", loss, 4, 6, compiled=compiled) for compiled in (True, False))
    assert one.learn(rows).tobytes() == other.learn(rows).tobytes()
    assert one.bits() == other.bits()


@pytest.mark.slow
@pytest.mark.parametrize("rule, loss", sorted(QUICK))
def test_compiled_is_uncompiled_on_matrices(rule: str, loss: str) -> None:
    """Dense batches have loops of their own."""
    rows = made(loss, 120, seed=9)
    one, other = (Run(rule, loss, 4, 6, compiled=compiled) for compiled in (True, False))
    assert one.learn(rows, dense=True).tobytes() == other.learn(rows, dense=True).tobytes()
    assert one.bits() == other.bits()
    assert one.predict(rows, dense=True).tobytes() == other.predict(rows, dense=True).tobytes()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_any_split_is_one_batch(loss: str, seed: int) -> None:
    """Batches of any size, of CSR rows or of a matrix, over changes of the reference and over
    inversions of P: the same bits."""
    n, rng = 4096 + 150, np.random.default_rng(seed)
    rows = some_unlearned(made(loss, n, seed=seed))
    rows.X[n // 2, 0] += 1e5 * rows.X[:, 0].std()
    whole, cut = (Run("auto", loss, 4, 6, compiled=LAZY) for _ in range(2))
    margins = whole.learn(rows)
    cuts = sorted({0, n, *range(20), *rng.integers(0, n, 40).tolist(), n // 2, n // 2 + 1})
    batch = rows.batch()
    found = [cut.learn(batch.rows(low, high)) for low, high in itertools.pairwise(cuts)]
    assert np.concatenate(found).tobytes() == margins.tobytes()
    assert cut.bits() == whole.bits()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_saved_state_continues_to_the_same_bits(dtype: str) -> None:
    """``State.parts`` and ``State.fill`` between any two batches, into another state."""
    rows = made("logistic", 90, seed=2)
    whole, cut = (Run("auto", "logistic", 4, 6, dtype=dtype, block=7) for _ in range(2))
    whole.learn(rows)
    for low in range(0, 90, 9):
        cut.learn(rows.some(slice(low, low + 9)))
        fresh = State.start(cut.state.layout)
        for first, last, arrays in cut.state.parts():
            fresh.fill(first, last, {name: array.copy() for name, array in arrays.items()})
        cut.state = fresh
    assert cut.bits() == whole.bits()


def test_places_of_a_damaged_state_are_refused() -> None:
    """Loops check nothing: a place beyond the coordinates would read other memory."""
    run = Run("auto", "logistic", 4, 6, block=7)
    run.learn(made("logistic", 20, seed=2))
    low, high, arrays = next(run.state.parts())
    for at, place in ((0, 3), (5, -1), (5, 11), (5, 2), (6, 2**40)):
        damaged = {name: array.copy() for name, array in arrays.items()}
        damaged["extra.places"][at] = place
        with pytest.raises(ValueError, match="saved places"):
            State.start(run.state.layout).fill(low, high, damaged)


@pytest.mark.parametrize("rule", sorted({rule for rule, _ in FORMS.values()}))
def test_classes_by_square_loss_have_targets_of_their_own(rule: str) -> None:
    """Of three classes each learner aims at +1 and -1, which is not centred."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.argmax(X + 0.3 * rng.normal(size=X.shape), axis=1).astype(float)
    run = Run(rule, "square", 3, 0, classes=3)
    margins = run.learn(Rows(X, np.zeros((400, 0)), y, np.ones(400)))
    assert np.mean(np.argmax(margins[100:], axis=1) != y[100:]) < 0.25
    assert run.total("c_y")[0] == 0.0


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_a_coordinate_that_a_row_holds_twice_moves_twice(loss: str) -> None:
    """As two that collided do: each entry counts, and B's curvature is the sum of both."""
    run = Run("auto", loss, 0, 3, block=1)
    y = np.array([1.0, -1.0, 1.0])
    indices = np.array([0, 2, 2, 1, 2], dtype=np.int32)
    values = np.array([1.0, 2.0, 3.0, 1.0, 1.0])
    run.learn(SparseBatch(np.array([0, 1, 3, 5]), indices, values, y, np.ones(3)))
    assert run.state.slot("n")[1:].tolist() == [1.0, 1.0, 3.0]
    assert run.state.slot("q")[3] == pytest.approx((4.0 + 9.0 + 1.0) / 3.0)
    of_rows = run.total("all_a")[0]
    S = run.state.slot("S")[1:, 0] * run.total("scale")[0]
    assert 13.0 * S[0] < S[2] < 14.0 * of_rows
    assert np.isfinite(run.weights()).all()


@pytest.mark.parametrize("says, most", [(0.0, 0.71), (2.0, 0.65)])
def test_categories_that_say_little_cost_little(says: float, most: float) -> None:
    """4,500 categories in 4,000 rows: where they say nothing, the loss is near log 2 = .693, .722
    without a prior that follows the predictions; where they say much, as without."""
    rng = np.random.default_rng(3)
    at = rng.integers(0, 1500, (4000, 3)) + np.arange(3) * 1500
    margins = says * rng.normal(size=4500)[at].sum(axis=1)
    y = np.where(rng.random(4000) < 1.0 / (1.0 + np.exp(-margins)), 1.0, -1.0)
    learner = Learner("laplace", "logistic", 4500, numeric=0, compiled=True)
    indptr = np.arange(4001, dtype=np.int64) * 3
    values = np.ones(12_000)
    learner.learn(SparseBatch(indptr, at.ravel().astype(np.uint32), values, y, np.ones(4000)))
    assert learner.sums[1] / 4000 < most
