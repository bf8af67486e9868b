"""Merging learners on standardised inputs: the literal oracle, and the laws of every merge."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auto import Auto
from auto import merge as merge_literally
from early_light_rows import EarlyAuto, set_early
from standardized import Rows, made

from streamomd.core.batch import SparseBatch
from streamomd.core.errors import UsageError
from streamomd.engine import Engine
from streamomd.engine import layout as layout_module
from streamomd.engine import merge as merge_module
from streamomd.engine.layout import Layout
from streamomd.engine.loops.rebase import AT, POOL
from streamomd.engine.loops.reference import C, S
from streamomd.engine.merge import merge, tree
from streamomd.engine.moments import inverse
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule

P, D, CLASSES = 4, 6, {"square": 1, "logistic": 2, "softmax": 3}
RULES = ("auto", "laplace", "adagrad_standardized")
CUTS = (40, 60, 70, 100, 120)
"""Rows of the start, and where each of the four parts ends."""


def batch(rows: Rows, columns: int = P, scale: float = 1.0) -> SparseBatch:
    """Columns first, all of them; then the sparse coordinates that are not 0."""
    dense = [list(enumerate(x[:columns])) for x, _, _, _ in rows]
    pairs = [
        [*row, *((columns + i, v) for i, v in sorted(sparse.items()) if v)]
        for row, (_, sparse, _, _) in zip(dense, rows, strict=True)
    ]
    flat = [pair for row in pairs for pair in row]
    return SparseBatch(
        np.cumsum([0, *map(len, pairs)]),
        np.array([i for i, _ in flat], np.int32),
        np.array([v * scale for _, v in flat]),
        np.array([y for _, _, y, _ in rows], dtype=float),
        np.array([h for _, _, _, h in rows]),
    )


def engine_of(
    rule: str, loss: str, block: int = 7, dtype: str = "float64", columns: int = P, more: int = 0
) -> Engine:
    found = find_rule(rule)
    params = {"block": block} if "block" in found.hyper._fields else {}  # type: ignore[attr-defined]
    learners = CLASSES[loss] if loss == "softmax" else 1
    most = max(1 + columns, block if params else 0)
    layout = Layout(found, 1 + P + D + more, learners, dtype, columns, most)
    numbers = found.parse_params(params)
    return Engine(layout, find_loss(loss), CLASSES[loss], True, numbers, compiled=False)


def learned(engine: Engine, state: State, rows: Any, *, part: bool = True) -> State:
    state = state.copy()
    engine.learn(state, np.zeros(3), rows, part=part)
    return state


@functools.cache
def run(
    rule: str, loss: str, block: int = 7, dtype: str = "float64", columns: int = P,
    factor: float = 1.0,
) -> tuple:  # fmt: skip
    """An engine, a start, and four parts of other rows. factor: of all importances."""
    engine = engine_of(rule, loss, block, dtype, columns)
    rows = made(loss, CUTS[-1], P, D, seed=3)
    rows = replace(rows, h=factor * rows.h)
    start = State.start(engine.layout)
    engine.begin(start)
    start = learned(engine, start, batch(rows.some(slice(CUTS[0])), columns), part=False)
    parts = [
        learned(engine, start, batch(rows.some(slice(low, high)), columns))
        for low, high in itertools.pairwise(CUTS)
    ]
    return engine, start, tuple(parts)


def merged(engine: Engine, parts: Sequence[State], start: State) -> State:
    return merge(engine, parts, start, [1] * len(parts))


def bits(state: State) -> tuple:
    arrays = (*state.extra.values(), state.totals, state.cells)
    return *(array.tobytes() for array in arrays), state.clock


def same(a: State, b: State, tolerance: float = 1e-11) -> None:
    """Every number, by the largest of its kind."""
    assert a.clock == b.clock
    pairs = {name: (a.extra[name], b.extra[name]) for name in a.extra}
    slots = (*a.layout.rule.shared_slots, *a.layout.rule.own_slots)
    pairs |= {slot.name: (a.slot(slot.name), b.slot(slot.name)) for slot in slots}
    pairs |= {name: (a.totals[:, at], b.totals[:, at]) for name, at in AT.items()}
    for name, (x, y) in pairs.items():
        top = max(np.abs(x).max(initial=0.0), np.abs(y).max(initial=0.0))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * top, err_msg=name)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("block", [7, 64])
@pytest.mark.parametrize("loss", CLASSES)
def test_merged_states_are_the_oracles(
    loss: str, block: int, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two, three and four parts, of rows with importances; coordinates in the block and outside.
    early: with pools that the start and the parts have not emptied."""
    if early:
        set_early(monkeypatch)
    made_run = run.__wrapped__ if early else run
    engine, start, parts = made_run("auto", loss, block)
    rows = made(loss, CUTS[-1], P, D, seed=3)
    learners = engine.layout.learners
    oracle = (EarlyAuto if early else Auto)(loss, P, learners, K=block)
    assert early == any(part.extra["vectors"][:, POOL].any() for part in (start, *parts))
    for row in rows.some(slice(CUTS[0])):
        oracle.learn(*row)
    others = []
    for low, high in itertools.pairwise(CUTS):
        others.append(oracle.part())
        for row in rows.some(slice(low, high)):
            others[-1].learn(*row)
    for count in (2, 3, 4):
        whole, literal = (
            merged(engine, parts[:count], start),
            merge_literally(oracle, others[:count]),
        )
        d = literal.D
        extra = whole.extra
        found = {
            "A": (extra["A"][:, :d, :d], literal.A),
            "P": (extra["P"][:, :d, :d], literal.P),
            "w": (extra["vectors"][:, 0, :d], literal.w),
            "g": (extra["vectors"][:, 1, : 1 + P], literal.g[:, : 1 + P]),
            "H": (extra["vectors"][:, 2, : 1 + P], literal.H[:, : 1 + P]),
            "c": (extra["reference"][C, :d], literal.c),
            "s": (extra["reference"][S, :d], literal.s),
            "S": (whole.slot("S")[1 + P :], of(literal.S, learners)),
            "w_i": (whole.slot("w")[1 + P :], of(literal.w_i, learners)),
            "g_i": (whole.slot("g")[1 + P :], of(literal.g_i, learners)),
            "H_i": (whole.slot("H")[1 + P :], of(literal.H_i, learners)),
            "recent_a": (whole.totals[:, AT["recent_a"]], literal.recent_a),
            "all_a": (whole.totals[:, AT["all_a"]], literal.sum_a),
            "retained": (
                whole.totals[:, AT["retained"]] / start.totals[:, AT["retained"]],
                literal.rho,
            ),
        }
        names = {
            "t": "t", "n": "n", "next": "next", "N": "N", "lead": "lead", "lam": "lam_now",
            "c_y": "c_y", "mse": "mse", "v": "v", "recent_n": "recent_n", "recent_t": "recent_t",
            "all_n": "sum_n",
        }  # fmt: skip
        found |= {
            name: (whole.totals[0, AT[name]], np.array(float(getattr(literal, other))))
            for name, other in names.items()
        }
        for name, (x, y) in found.items():
            top = np.abs(y).max()
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-10 * top + 1e-300, err_msg=name)


def of(numbers: dict[int, Any], learners: int) -> np.ndarray:
    return np.array([numbers.get(i, np.zeros(learners)) for i in range(D)])


CASES = [
    *((rule, "logistic", 7, "float64", P) for rule in RULES),
    *(("auto", loss, 7, "float64", P) for loss in ("square", "softmax")),
    ("auto", "logistic", 7, "float32", P),
    ("adagrad_standardized", "square", 7, "float64", P),
]


@pytest.mark.parametrize("case", CASES)
def test_merges_commute_and_associate(case: tuple) -> None:
    """All at once, in pairs, one after the other, in another order; no input is changed."""
    engine, start, parts = run(*case)
    before = [bits(state) for state in (start, *parts)]
    whole = merged(engine, parts, start)
    pair = merged(engine, parts[:2], start)
    one_by_one = merged(engine, (merged(engine, (pair, parts[2]), start), parts[3]), start)
    tolerance = 1e-5 if case[3] == "float32" else 1e-11
    same(merged(engine, parts[::-1], start), whole, tolerance)
    same(tree(engine, parts, start, [1] * 4), whole, tolerance)
    same(one_by_one, whole, tolerance)
    assert bits(merged(engine, parts, start)) == bits(whole)
    assert [bits(state) for state in (start, *parts)] == before
    assert whole.clock == CUTS[-1]


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_groups_merge_alike(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a block that is wider than a group, whose other columns are centred by the bias."""
    monkeypatch.setattr(layout_module, "GROUP", 3)
    monkeypatch.setattr(layout_module, "WIDE", 4)
    run.cache_clear()
    engine, start, parts = run("auto", loss, 9)
    assert start.extra["A"].shape[1:] == (9, 3)
    whole = merged(engine, parts, start)
    same(tree(engine, parts, start, [1] * 4), whole)
    same(merged(engine, parts[::-1], start), whole)
    again = merged(engine, (parts[0], start), start)
    same_weights(engine, again, parts[0], 0.05)  # of the prior, which is in units of the reference
    run.cache_clear()


def same_weights(engine: Engine, a: State, b: State, tolerance: float = 1e-9) -> None:
    size = a.layout.size
    pair = engine.weights(a, 0, size), engine.weights(b, 0, size)
    top = np.abs(pair[1]).max()
    np.testing.assert_allclose(*pair, rtol=0, atol=tolerance * top)


@pytest.mark.parametrize("rule", RULES)
def test_alone_it_is_the_identity(rule: str) -> None:
    """A single state, to the bit. With a part of no rows, one that has just changed its reference:
    a merge is another change of reference, and moves the weights of the others a little."""
    engine, start, parts = run(rule, "logistic")
    for join in (merge, tree):
        alone = join(engine, parts[:1], start, [1])
        assert bits(alone) == bits(parts[0])
    whole = merged(engine, (parts[1], start.copy()), start)
    same_weights(engine, whole, parts[1])
    for name in ("n", "q", "place"):
        np.testing.assert_allclose(whole.slot(name), parts[1].slot(name), rtol=1e-12)
    assert whole.clock == parts[1].clock
    nothing = merged(engine, (start.copy(), start.copy()), start)
    same_weights(engine, nothing, start)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.sample(3)
def test_a_constant_factor_of_importances_changes_no_merge(rule: str, loss: str) -> None:
    """The merged model, and what it learns then: a power of two to the bit, others to 1e-8."""
    found = []
    for factor in (1.0, 1024.0, 1e-6, 1e6):
        engine, start, parts = run(rule, loss, factor=factor)
        whole = merged(engine, parts, start)
        rows = made(loss, 30, P, D, seed=9)
        after = learned(engine, whole, batch(replace(rows, h=factor * rows.h)), part=False)
        size = start.layout.size
        found.append([engine.weights(state, 0, size) for state in (whole, after)])
    first, exact, *others = found
    for one, same_bits in zip(first, exact, strict=True):
        assert np.array_equal(one, same_bits)
    for other in others:
        for one, near in zip(first, other, strict=True):
            np.testing.assert_allclose(near, one, rtol=1e-8, atol=1e-8 * np.abs(one).max())


@pytest.mark.parametrize("loss", CLASSES)
def test_a_start_without_rows(loss: str) -> None:
    """Of no rows at all nothing comes; of one part that has some, what the oracle says."""
    engine = engine_of("auto", loss)
    start = State.start(engine.layout)
    engine.begin(start)
    assert bits(merged(engine, (start.copy(), start.copy()), start)) == bits(start)
    rows = made(loss, 30)
    whole = merged(engine, (learned(engine, start, batch(rows)), start.copy()), start)
    oracle = Auto(loss, P, engine.layout.learners, K=7)
    literal = oracle.part()
    for row in rows:
        literal.learn(*row)
    expected = merge_literally(oracle, [literal, oracle.part()]).export()
    found = engine.weights(whole, 0, 1 + P + D)
    np.testing.assert_allclose(found[: 1 + P], np.vstack([expected.bias, expected.dense.T]), 1e-8)
    np.testing.assert_allclose(found[1 + P :], of(expected.sparse, found.shape[1]), 1e-8, 1e-12)
    assert whole.used_places == 1 + P


def test_least_squares_merge_exactly() -> None:
    """A of the merged state is that of one pass; its weights, too, but for the prior's changes."""
    engine, start, parts = run("laplace", "square", 64)
    rows = made("square", CUTS[-1], P, D, seed=3)
    one = learned(engine, start, batch(rows.some(slice(CUTS[0], CUTS[-1]))))
    one = merged(engine, (one, start.copy()), start)  # at its own mean
    whole = merged(engine, parts, start)
    np.testing.assert_allclose(whole.extra["A"], one.extra["A"], rtol=1e-9, atol=1e-9)
    for name in ("n", "labels", "y_mean", "y_M2", "y_min", "y_max", "c_y", "s_y"):
        at = AT[name]
        np.testing.assert_allclose(whole.totals[0, at], one.totals[0, at], rtol=1e-12)
    pair = [engine.weights(state, 0, 1 + P + D)[:, 0] for state in (whole, one)]
    np.testing.assert_allclose(*pair, rtol=1e-3)


def test_a_part_takes_no_coordinates_into_its_block() -> None:
    """Others than the start's are refused; what comes after the merge takes them."""
    engine = engine_of("auto", "logistic", 11, more=0)
    rows = made("logistic", 80)
    start = State.start(engine.layout)
    engine.begin(start)
    few = [(x, {}, y, h) for x, _, y, h in rows.some(slice(20))]
    start = learned(engine, start, batch(few), part=False)  # type: ignore[arg-type]
    assert start.used_places == 1 + P
    inside = [learned(engine, start, batch(rows.some(slice(low, low + 20)))) for low in (20, 40)]
    assert [part.used_places for part in inside] == [1 + P] * 2
    assert all(part.slot("w")[1 + P :].any() for part in inside)
    whole = merged(engine, inside, start)
    outside = learned(engine, start, batch(rows.some(slice(20, 40))), part=False)
    assert outside.used_places == 1 + P + D
    with pytest.raises(UsageError, match="other coordinates in its block"):
        merged(engine, (inside[0], outside), start)
    later = learned(engine, whole, batch(rows.some(slice(60, 80))), part=False)
    assert later.used_places == 1 + P
    assert np.isfinite(engine.weights(later, 0, 1 + P + D)).all()


def test_batches_of_cells_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, start, parts = run("auto", "logistic")
    whole = merged(engine, parts, start)
    for coordinates in (1, 4):
        cells = coordinates * start.layout.width * start.cells.itemsize
        monkeypatch.setattr(merge_module, "BLOCK_BYTES", cells)
        assert bits(merged(engine, parts, start)) == bits(whole)


def test_a_merged_state_learns_on() -> None:
    """Its first row is beyond the next change of reference, which follows; P stays the inverse."""
    engine, start, parts = run("auto", "logistic")
    whole = merged(engine, parts, start)
    assert whole.totals[0, AT["next"]] < whole.totals[0, AT["t"]] + 1
    after = learned(engine, whole, batch(made("logistic", 30, seed=9)), part=False)
    assert after.totals[0, AT["next"]] > after.totals[0, AT["t"]]
    used = after.used_places
    A, P_ = (after.extra[name][0, :used, :used] for name in ("A", "P"))
    of_bias, of_others = (after.totals[0, AT[name]] for name in ("lam_bias", "lam"))
    prior = np.r_[of_bias, np.full(used - 1, of_others)]
    np.testing.assert_allclose(P_ @ (A + np.diag(prior)), np.eye(used), atol=1e-9)


def test_the_inverse_of_a_matrix_that_rounding_made_indefinite() -> None:
    """The diagonal grows until a factor exists."""
    A = np.outer([1.0, 1e8], [1.0, 1e8])
    A[0, 0] -= 1e-3
    found = inverse(A, np.full(2, 1e-12))
    assert np.isfinite(found).all()
    assert (np.linalg.eigvalsh(found) > 0.0).all()
    np.testing.assert_allclose(inverse(np.eye(3), np.ones(3)), np.eye(3) / 2.0, rtol=1e-15)
