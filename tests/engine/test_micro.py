"""Sharded mode's engine: the oracle's numbers, exact mode's bits, the same whoever owns what."""

from __future__ import annotations

from typing import Any

import micro_oracles
import numpy as np
import pytest
from helpers import Learner, dense, sparse

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.core.batch import Batch, DenseBatch
from streamomd.engine.micro_batches import Sensed
from streamomd.rules import all_rules, find_rule
from streamomd.rules.contract import Rule
from streamomd.training import microbatch_rounds
from streamomd.training.microbatch_rounds import Share, micro_batches

PLAIN = [rule for rule in all_rules().values() if "sharded" in rule.modes]
FEW = ("nag", "adagrad", "arow_diag", "ftrl_centered", "da", "pa1")
EVERY = [
    pytest.param(rule, id=rule.name, marks=() if rule.name in FEW else pytest.mark.slow)
    for rule in PLAIN
]


def simple(rule: Rule) -> Rule:
    """What a job with default parameters runs."""
    return rule.reduced_for(rule.parse_params({}))


def learner(rule: str | Rule, loss: str, size: int, **told: Any) -> Learner:
    """An uncompiled learner of a rule as a job runs it."""
    found = simple(find_rule(rule)) if isinstance(rule, str) else rule
    return Learner(found, loss, size, **{"compiled": False, **told})


def cut(batch: Batch, sizes: tuple[int, ...]) -> list[tuple[Batch, int, int]]:
    """The batch in pieces of these sizes, over and over, as of one shard."""
    pieces, low, n = [], 0, 0
    while low < len(batch):
        high = min(len(batch), low + sizes[n % len(sizes)])
        pieces.append((batch.rows(low, high), 0, low))
        low, n = high, n + 1
    return pieces


def run(one: Learner, batch: Batch, parts: int, rows: int, sizes: tuple[int, ...] = (10**9,)):
    """The margins of a sharded run of one owner."""
    share = Share.whole(one.engine, one.state, parts)
    margins = []
    for some, *_ in micro_batches(cut(batch, sizes), rows):
        moves, found = share.decide(some, one.sums, share.sense(some).numbers)
        share.apply(some, moves)
        margins.append(found)
    return np.concatenate(margins)


def run_owned(one: Learner, batch: Batch, parts: int, rows: int, owners: int) -> list[Share]:
    """Shares of so many owners after a run: the first one's takes the steps of all."""
    shares = [
        Share.of(one.engine, parts, microbatch_rounds.owned(owner, owners, parts))
        for owner in range(owners)
    ]
    for share in shares:
        for low, high, arrays in one.state.parts():
            share.fill(low, high, arrays)
    for some, *_ in micro_batches(cut(batch, (7, 50)), rows):
        mine = [share.cut(some) for share in shares]
        sensed = [s.sense(b) for s, b in zip(shares, mine, strict=True)]
        for found, rows_there in zip(sensed, mine, strict=True):
            check_touched(found, rows_there)
        found = np.concatenate([one.numbers for one in sensed])
        moves, _ = shares[0].decide(mine[0], one.sums, found)
        for share, owned in zip(shares, mine, strict=True):
            share.state.totals[...] = shares[0].state.totals
            share.apply(owned, moves)
    return shares


def check_touched(sensed: Sensed, batch: Batch) -> None:
    """Where a row has no entry its numbers are 0.0, never -0.0; it has one in some partition."""
    assert not sensed.numbers[sensed.touched == 0].any()
    assert not np.signbit(sensed.numbers[sensed.numbers == 0.0]).any()
    if isinstance(batch, DenseBatch):
        entries = (batch.values != 0.0).sum(axis=1)
    else:
        entries = np.add.reduceat(np.append(batch.values != 0.0, 0), batch.indptr[:-1])
        entries[np.diff(batch.indptr) == 0] = 0
    assert (sensed.touched.any(axis=0) >= (entries > 0)).all()


def stream(kind: str, classes: int = 2, seed: int = 3) -> streams.Stream:
    """The first rows of a stream of a kind."""
    target = "binary" if classes == 2 else "classes"
    found = streams.make(np.random.default_rng(seed), kind, target)
    return found._replace(X=found.X[:60], y=found.y[:60], h=found.h[:60])


@pytest.mark.parametrize("parts, rows", [(1, 1), (3, 7), (16, 20), (5, 40)])
@pytest.mark.parametrize("loss", ["logistic", "square"])
@pytest.mark.parametrize("rule", list(micro_oracles.LEARNERS))
def test_micro_batches_are_the_oracles(rule: str, loss: str, parts: int, rows: int) -> None:
    """Margins to 1e-12 and slots to 1e-10, dense and sparse."""
    for kind in ("dense", "sparse", "weights"):
        found = stream(kind)
        d = found.X.shape[1]
        oracle = micro_oracles.LEARNERS[rule](d, loss, parts, eta=0.2)
        expected = oracle.run(found.X, found.y, found.h, rows)
        make = dense if kind == "dense" else sparse
        one = learner(rule, loss, d, params={"eta": 0.2})
        margins = run(one, make(found.X, found.y, found.h), parts, rows)
        np.testing.assert_allclose(margins[:, 0], expected, rtol=1e-12, atol=1e-12)
        for slot in micro_oracles.SLOTS[rule]:
            there = one.state.slot(slot).reshape(d)
            np.testing.assert_allclose(there, getattr(oracle, slot), rtol=1e-10, atol=1e-13)
        assert np.abs(margins).max() > 0.0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rule", EVERY)
def test_one_partition_and_one_row_are_exact_mode(rule: Rule, classes: int, dtype: str) -> None:
    """P = 1, B = 1: every bit of the exact loop, but for float32 slots of rules that observe.

    Those are rounded before the row is predicted, where the exact loop has them in registers yet.
    """
    if dtype == "float32" and rule.observe and rule.shared_slots:
        dtype = "float64"
    rows, loss = stream("weights", classes), rule.losses.default
    batch, size = sparse(rows.X, rows.y, rows.h), rows.X.shape[1] + 1
    told = {"classes": classes, "bias": True, "dtype": dtype}
    exact, one = (
        learner(simple(rule), loss, size, **told),
        learner(simple(rule), loss, size, **told),
    )
    assert run(one, batch, 1, 1).tobytes() == exact.learn(batch).tobytes()
    assert one.bits() == exact.bits()


@pytest.mark.parametrize("parts", [3, 16])
@pytest.mark.parametrize("rule", EVERY)
def test_one_row_is_exact_mode_but_for_the_order_of_a_sum(rule: Rule, parts: int) -> None:
    """B = 1 and any P: 1e-12 of the margin's terms."""
    rows, loss = stream("dense"), rule.losses.default
    batch, size = sparse(rows.X, rows.y, rows.h), rows.X.shape[1]
    exact, one = learner(simple(rule), loss, size), learner(simple(rule), loss, size)
    expected = exact.learn(batch)
    np.testing.assert_allclose(run(one, batch, parts, 1), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("rule", EVERY)
def test_neither_owners_nor_cuts_leave_a_trace(rule: Rule, is_dense: bool) -> None:
    """P = 16, B = 32: however rows are cut into batches, and for 1 to 4 owners and 16."""
    rows, loss = stream("weights"), rule.losses.default
    batch = (dense if is_dense else sparse)(rows.X, rows.y, rows.h)
    size = rows.X.shape[1] + 1
    told = {"bias": True, "dtype": "float32"}
    whole = learner(simple(rule), loss, size, **told)
    expected = run(whole, batch, 16, 32)
    again = learner(simple(rule), loss, size, **told)
    assert run(again, batch, 16, 32, (1, 33, 7)).tobytes() == expected.tobytes()
    assert again.bits() == whole.bits()
    late = learner(simple(rule), loss, size, **told)
    assert run(late, batch, 16, 1).tobytes() != expected.tobytes()  # a step is late by rows
    for owners in (1, 3, 4) if size >= 16 else (1,):
        one = learner(simple(rule), loss, size, **told)
        shares = run_owned(one, batch, 16, 32, owners)
        for share in shares:
            part = whole.state.table[share.low : share.high, : whole.state.layout.used]
            assert share.state.table[:, : share.state.layout.used].tobytes() == part.tobytes()
            assert share.state.totals.tobytes() == whole.state.totals.tobytes()
            assert share.state.clock == whole.state.clock
        assert one.sums.tobytes() == whole.sums.tobytes()


LAYOUTS = [(2, True, False, "float64"), (3, False, True, "float32")]
COMPILED = ["nag", "adagrad", "arow_diag", "ftrl_centered"]


@pytest.mark.parametrize(
    "rule, classes, bias, is_dense, dtype",
    [
        pytest.param(rule, *layout, marks=() if (n + m) % 2 == 0 else pytest.mark.slow)
        for n, rule in enumerate(COMPILED)
        for m, layout in enumerate(LAYOUTS)
    ],
)
@pytest.mark.sample(2)
def test_compiled_is_uncompiled(rule, classes, bias, is_dense, dtype) -> None:
    """Margins, slots, totals and sums agree to the bit, whatever the layout."""
    rows, loss = stream("weights", classes), find_rule(rule).losses.default
    batch = (dense if is_dense else sparse)(rows.X, rows.y, rows.h)
    size = rows.X.shape[1] + int(bias)
    told = {"classes": classes, "bias": bias, "dtype": dtype}
    one, other = (learner(rule, loss, size, **told, compiled=c) for c in (True, False))
    assert run(one, batch, 5, 16).tobytes() == run(other, batch, 5, 16).tobytes()
    assert one.bits() == other.bits()


def test_softmax_in_micro_batches() -> None:
    """Coupled learners: P = 1, B = 1 is exact mode; loss counted alike."""
    rows = stream("dense", 3)
    batch, size = sparse(rows.X, rows.y, rows.h), rows.X.shape[1]
    exact, one = (learner("nag", "softmax", size, classes=3) for _ in range(2))
    assert run(one, batch, 1, 1).tobytes() == exact.learn(batch).tobytes()
    assert one.bits() == exact.bits()


@pytest.mark.parametrize("name", list(all_rules()))
def test_modes_say_what_the_loops_can(name: str) -> None:
    """What is offered has no sum over all coordinates, set, matrix or second look; no other is."""
    rule = all_rules()[name]
    run_as = simple(rule)
    ahead = run_as.observe and run_as.observe.ahead
    needs = (run_as.masses, run_as.constraint, run_as.row.prepare, ahead)
    able = run_as.storage.kind == "coordinates" and not any(needs)
    assert ("sharded" in rule.modes) == able
    if rule.row.implicit:
        assert "sharded" not in rule.modes_with({**rule.parse_params({}), "implicit": True})
    if "ball" in rule.parse_params({}):
        assert "sharded" not in rule.modes_with(
            {**rule.parse_params({}), "ball": "l2", "radius": 1.0}
        )
