"""What a saved ``auto`` predicts with is the oracle's, and does not depend on batches, on how rows
are encoded, or on interruptions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auto import Auto, Floats
from frozen import Frozen, learn
from lazy_loops import LAZY
from standardized import LOSSES, Rows, Run, made

from streamomd.engine import frozen_rows
from streamomd.engine.loops.frozen import LENGTH, Chain, first_copy, is_scored, next_copy
from streamomd.engine.loops.rebase import AT
from streamomd.engine.state import State
from streamomd.rules.common import pooled
from streamomd.rules.common.pooled import REST_B, REST_G
from streamomd.rules.common.standardized import share_of_lead

ROWS, K = 800, 8
"""Coordinates of the block: the bias, four columns, three of six sparse ones."""


def rows_of(loss: str, n: int = ROWS) -> Rows:
    """The first row, and one in ten, have importance 0."""
    rows = made(loss, n, seed=3)
    return replace(rows, h=np.where(np.arange(n) % 10 == 0, 0.0, rows.h))


def trained(loss: str, rows: Rows, cuts: tuple[int, ...] = (), **given: Any) -> Run:
    run = Run("auto", loss, 4, 6, block=K, compiled=LAZY, **given)
    for low, high in zip((0, *cuts), (*cuts, len(rows.y)), strict=True):
        run.learn(rows.some(slice(low, high)))
    return run


def oracle_of(loss: str, rows: Rows) -> Frozen:
    model = Auto(loss, 4, LOSSES[loss] if loss == "softmax" else 1, K=K)
    frozen = Frozen(model, 11)
    for row in rows:
        learn(model, frozen, *row)
    return frozen


def chain_of(run: Run) -> Chain:
    return Chain(*run.state.extra["chain"][:LENGTH].tolist())


@pytest.mark.parametrize("loss", LOSSES)
def test_the_saved_model_is_the_oracles(loss: str) -> None:
    rows = rows_of(loss)
    run, oracle = trained(loss, rows), oracle_of(loss, rows)
    chain = chain_of(run)
    assert (chain.due, chain.mass) == pytest.approx((oracle.due, oracle.M))
    found = [chain.th0, chain.th1, chain.w, chain.u]
    expected = [*oracle.th.value, *oracle.w.value, *oracle.u.value]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert frozen_rows.saved_loss(run.engine, run.state) == pytest.approx(oracle.saved_loss)
    mix = frozen_rows.saved_mix(run.engine, run.state)
    np.testing.assert_allclose(mix[:3], oracle.coefficients()[:3], rtol=1e-8)

    model = oracle.saved()
    some = made(loss, 20, seed=4)
    margins = np.array([model.margins(x, sparse) for x, sparse, *_ in some])
    near = {"rtol": 1e-8, "atol": 1e-8 * np.abs(margins).max()}
    np.testing.assert_allclose(run.predict(some), margins, **near)
    by_weights = np.c_[np.ones(20), some.X, some.S] @ run.weights()
    np.testing.assert_allclose(by_weights, margins, **near)


@pytest.mark.parametrize("loss", LOSSES)
def test_batches_and_encodings_change_no_bit(loss: str) -> None:
    """Cuts at copies, next to them, and in between; dense rows."""
    rows = rows_of(loss, 900)
    whole = trained(loss, rows)
    assert chain_of(whole).mass > 0.0
    cut = trained(loss, rows, cuts=(1, 284, 285, 286, 320, 700))
    assert cut.bits() == whole.bits()
    dense = Run("auto", loss, 4, 6, block=K, compiled=LAZY)
    dense.learn(rows, dense=True)
    assert dense.state.extra["chain"].tobytes() == whole.state.extra["chain"].tobytes()


@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_loops_give_the_same_bits(loss: str) -> None:
    rows = rows_of(loss, 500)
    runs = [Run("auto", loss, 4, 6, block=K, compiled=compiled) for compiled in (False, True)]
    for run in runs:
        run.learn(rows)
    assert runs[0].bits() == runs[1].bits()


@pytest.mark.parametrize("loss", LOSSES)
def test_where_few_rows_are_scored_the_next_rows_mixture_is_saved(loss: str) -> None:
    """As in averaged mode, whose parts score no rows."""
    rows = rows_of(loss, 1200)
    run = trained(loss, rows.some(slice(500)))
    assert frozen_rows.is_fitted(run.engine, run.state)
    assert frozen_rows.saved_loss(run.engine, run.state) is not None
    run.engine.learn(run.state, np.zeros(3), rows.some(slice(500, 1200)).batch(), part=True)
    assert frozen_rows.saved_loss(run.engine, run.state) is None
    share = share_of_lead(run.state.totals[0, AT["lead"]])
    mix = frozen_rows.saved_mix(run.engine, run.state)
    assert mix[:3].tolist() == [share, share, 1.0 - share]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_state_that_is_saved_and_loaded_continues_alike(dtype: str) -> None:
    rows = rows_of("logistic", 900)
    whole = trained("logistic", rows, dtype=dtype)
    run = trained("logistic", rows.some(slice(0, 600)), dtype=dtype)
    loaded = State.start(run.state.layout)
    for low, high, arrays in run.state.parts(64):
        loaded.fill(low, high, {name: array.copy() for name, array in arrays.items()})
    run.state = loaded
    run.learn(rows.some(slice(600, 900)))
    assert run.bits() == whole.bits()


def test_copies_of_another_shape_are_refused() -> None:
    run = trained("logistic", rows_of("logistic", 400))
    [(low, high, arrays)] = run.state.parts()
    arrays["extra.copies"] = arrays["extra.copies"][1:]
    with pytest.raises(ValueError, match="copies of"):
        State.start(run.state.layout).fill(low, high, arrays)


def test_rows_of_later_passes_and_of_parts_are_not_scored() -> None:
    rows = rows_of("logistic", 900)
    run = trained("logistic", rows)
    chain = run.state.extra["chain"].copy()
    part = run.state.copy()
    run.engine.learn(part, np.zeros(3), rows.batch(), part=True)
    np.testing.assert_array_equal(part.extra["chain"], chain)
    run.engine.begin_pass(run.state)
    run.learn(rows)
    np.testing.assert_array_equal(run.state.extra["chain"], chain)
    assert frozen_rows.saved_mix(run.engine, run.state).tolist() == [1.0, 1.0, *[0.0] * 2]


@pytest.mark.parametrize("prefer", ["recent", "whole"])
def test_other_preferences_score_nothing(prefer: str) -> None:
    run = trained("logistic", rows_of("logistic", 400), prefer=prefer)
    assert frozen_rows.saved_loss(run.engine, run.state) is None
    assert not len(run.state.extra["copies"])


def test_importances_are_relative() -> None:
    rows = rows_of("softmax", 900)
    run, other = trained("softmax", rows), trained("softmax", replace(rows, h=rows.h * 64.0))
    np.testing.assert_allclose(other.predict(rows), run.predict(rows), rtol=1e-7, atol=1e-9)
    losses = [frozen_rows.saved_loss(one.engine, one.state) for one in (run, other)]
    assert losses[0] == pytest.approx(losses[1])


def test_the_mixture_follows_what_comes_later() -> None:
    """G is better on the next row, whose level is that of the rows before it, and B on later rows:
    the saved model is mostly B, where the mixture of the next row is G."""
    rng = np.random.default_rng(5)
    n = 6000
    level = np.repeat(rng.normal(size=n // 50), 50) * 3.0
    X = rng.normal(size=(n, 4))
    y = X @ np.array([1.0, -1.0, 2.0, 0.5]) + level + 0.1 * rng.normal(size=n)
    rows = Rows(X, np.zeros((n, 0)), y, np.ones(n))
    mixes: list[Floats] = []
    for prefer in ("recent", "auto"):
        run = Run("auto", "square", 4, 0, compiled=True, prefer=prefer)
        run.learn(rows)
        mixes.append(frozen_rows.saved_mix(run.engine, run.state))
    assert mixes[0][0] < 0.05
    assert mixes[1][0] > 0.65


def test_rows_of_copies() -> None:
    found = [first_copy(1000)]
    while found[-1] < 2000:
        found.append(next_copy(found[-1]))
    octaves = [*range(256, 512, 32), *range(512, 1024, 64), *range(1024, 2049, 128)]
    assert found == octaves
    assert [first_copy(1 << bits) for bits in (18, 20, 22)] == [256, 1024, 4096]


@pytest.mark.parametrize("loss", LOSSES)
def test_coordinates_that_no_row_has_change_nothing(loss: str) -> None:
    """Of 2^18 coordinates, to which columns are hashed, most are empty."""
    rows = rows_of(loss)
    found = []
    for sparse in (6, 1 << 17):
        run = Run("auto", loss, 4, sparse, block=K, compiled=True)
        run.learn(rows)
        found.append(run.state.extra["chain"])
    np.testing.assert_array_equal(*found)


def test_of_many_rows_few_are_scored() -> None:
    assert all(is_scored(row) for row in range(1, 16_385))
    for low, share in ((20_000, 2), (70_000, 4), (140_000, 8), (300_000, 16), (10**9, 16)):
        found = sum(is_scored(row) for row in range(low, low + 40_000))
        assert found == pytest.approx(40_000 / share, rel=0.02)


def rare(loss: str, n: int, seed: int = 7) -> Rows:
    """Of 40 coordinates each row holds two, and they say little; what the columns say turns every
    100 rows, which G follows."""
    rng = np.random.default_rng(seed)
    S = np.zeros((n, 40))
    for j in range(2):
        S[np.arange(n), rng.integers(0, 40, n)] = 1.0 + j
    rows = made(loss, n, seed=seed)
    turned = np.where((np.arange(n) // 100 % 2 == 0)[:, np.newaxis], rows.X, -rows.X)
    return Rows(turned, S, rows.y, rows.h)


class EarlyFrozen(Frozen):
    """Decides early, and counts how often a predictor rests."""

    SETTLED, DECIDED, UNUSED, WORSE = 0, -9.0, 0.9, 0.5

    def __init__(self, model: Auto, size: int) -> None:
        super().__init__(model, size)
        self.rested: Counter[str] = Counter()

    def unused(self) -> str:
        found = super().unused()
        self.rested[found] += 1
        return found


RESTS = [("B", "logistic"), ("B", "softmax"), ("G", "logistic"), ("G", "softmax")]


@pytest.mark.parametrize("which, loss", RESTS)
def test_a_predictor_that_is_not_used_rests(
    which: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the oracle: it learns from one run in four, which counts four times."""
    for where, name, value in (
        (pooled, "RUN", 16), (pooled, "TURNS", 4), (pooled, "DECIDED", -9.0), (Auto, "RUN", 16),
        (Auto, "TURNS", 4), (Auto, "DECIDED", -9.0),
        (frozen_rows, "DECIDED", -9.0), (frozen_rows, "UNUSED", 0.9), (frozen_rows, "SETTLED", 0),
        (frozen_rows, "WORSE", 0.5),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)
    rows = rare(loss, 640) if which == "B" else made(loss, 640, seed=7)
    run = Run("auto", loss, 4, rows.S.shape[1], block=K, compiled=False)
    run.learn(rows)
    model = Auto(loss, 4, LOSSES[loss] if loss == "softmax" else 1, K=K)
    frozen = EarlyFrozen(model, 5 + rows.S.shape[1])
    for row in rows:
        learn(model, frozen, *row)
    assert frozen.rested[which] > 1
    assert chain_of(run).rests == {"": 0.0, "B": 1.0, "G": 2.0}[model.rests]
    np.testing.assert_allclose(run.predict(rows), [
        frozen.saved().margins(x, sparse) for x, sparse, *_ in rows
    ], rtol=1e-7, atol=1e-8)  # fmt: skip
    assert run.sums[1] == pytest.approx(model.loss_sum)


@pytest.fixture(params=[REST_B, REST_G])
def unused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """At every copy B or G is 50 nats behind, and rests; the total of what it has learned."""

    def decided(engine: Any, state: State) -> int:
        state.totals[0, AT["lead"]] = 50.0 if request.param == REST_B else -50.0
        return int(request.param)

    monkeypatch.setattr(frozen_rows, "unused", decided)
    return "all_n" if request.param == REST_B else "N"


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_rests_do_not_depend_on_batches(unused: str, loss: str) -> None:
    """Row 832 has a copy; rows 832 to 1,023 leave what rests as it is."""
    rows = rows_of(loss, 1100)
    whole = trained(loss, rows)
    assert trained(loss, rows, cuts=(300, 567, 568, 569, 1000)).bits() == whole.bits()
    plain = Run("auto", loss, 4, 6, block=K, compiled=False)
    plain.learn(rows)
    assert plain.bits() == whole.bits()
    less = trained(loss, rows.some(slice(0, 940)))
    learned = [one.state.totals[0, AT[unused]] for one in (less, whole)]
    assert learned[0] == learned[1]
    assert not np.array_equal(less.weights(), whole.weights())


def test_neither_parts_nor_later_passes_rest(unused: str) -> None:
    """In a later pass G does not learn at all."""
    rows = rows_of("logistic", 1100)
    run = trained("logistic", rows)
    before = run.state.totals[0, AT[unused]]
    part = run.state.copy()
    run.engine.learn(part, np.zeros(3), rows.batch(), part=True)
    assert part.totals[0, AT[unused]] > before
    before = run.state.totals[0, AT["all_n"]]
    run.engine.begin_pass(run.state)
    run.learn(rows.some(slice(0, 50)))
    assert run.state.totals[0, AT["all_n"]] > before
