"""Bad rows left out: the batch is that of the rows without them, and each is counted once."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_features_bad import BAD, FIRST, GOOD, SPOILT, encoded

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.batch import REASONS, Skipped, SparseBatch
from streamomd.core.errors import BadRowError
from streamomd.features import encode, make_plan

DENSE = {"hashed": [], "sparse": None}
ORDER = ["y", "w", "n", "k", "e", "i", "v"]
LISTS = ("i", "v")


def same(made, expected):
    """The same rows, bit by bit."""
    assert type(made) is type(expected)
    names = ("values", "y", "weight")
    names += ("indptr", "indices") if isinstance(made, SparseBatch) else ()
    for name in names:
        a, b = getattr(made, name), getattr(expected, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def told(skipped):
    return dict(zip(skipped.places.tolist(), [REASONS[k] for k in skipped.reasons], strict=True))


def columns_of(batch):
    return dict(zip(batch.schema.names, batch.columns, strict=True))


@pytest.mark.parametrize("job", [{}, DENSE], ids=["sparse", "dense"])
@pytest.mark.parametrize("columns, row, reason, words", BAD)
def test_a_bad_row_is_left_out(columns, row, reason, words, job):
    """The rest are the rows of a batch without it; its place and reason are kept."""
    if job and set(columns) & {"i", "v"}:
        return
    made = encoded(columns, on_bad_row="skip", **job)
    batch = pa.RecordBatch.from_pydict({**GOOD, **columns})
    without = batch.take([at for at in range(4) if at != row])
    same(made, encoded(columns_of(without), **job))
    assert told(made.skipped) == {row: reason}


def test_nothing_is_left_out_of_good_rows():
    """A good batch has nothing skipped."""
    assert len(encoded({}, on_bad_row="skip").skipped) == 0


def big(spoilt):
    """Rows of every kind, and the values that ``spoilt`` puts into places (column, row)."""
    rows = 30
    draw = np.random.default_rng(3)
    columns = {
        "y": [float(k) for k in draw.integers(0, 2, rows)],
        "w": draw.random(rows).tolist(),
        "n": draw.normal(size=rows).tolist(),
        "k": draw.integers(-9, 9, rows).tolist(),
        "e": draw.normal(size=(rows, 2)).tolist(),
        "h": [f"c{k}" for k in draw.integers(0, 4, rows)],
        "i": [[1, 2]] * rows,
        "v": draw.normal(size=(rows, 2)).tolist(),
    }
    for name, row, value in spoilt:
        columns[name][row] = value
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, GOOD[name].type) for name, values in columns.items()}
    )


VALUES = {
    "y": [None, float("nan"), float("inf"), 2.0, -1.0],
    "w": [None, float("nan"), -0.5, float("inf")],
    "n": [None, float("nan"), float("-inf")],
    "k": [None, 2**53 + 1, -(2**62) - 1],
    "e": [None, [1.0, None], [float("nan"), 1.0], [float("inf"), float("nan")]],
    "i": [None, [1], [1, None], [-1, 2], [1, 10], [4, 4]],
    "v": [None, [1.0], [1.0, None], [float("nan"), 1.0], [1.7e308, 1.7e308]],
}
SPOILS = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: st.tuples(st.just(name), st.integers(0, 29), st.sampled_from(VALUES[name]))
    ),
    max_size=25,
)


@settings(max_examples=12, deadline=None)
@given(SPOILS, st.integers(0, 30))
def test_whatever_is_bad_is_left_out(spoilt, cut):
    """Any number of bad rows for any reasons, cut anywhere: as if they had never been there."""
    batch = big(spoilt)
    made = encoded(columns_of(batch), on_bad_row="skip")
    bad = told(made.skipped)
    rest = batch.take([at for at in range(30) if at not in bad])
    if rest.num_rows:
        same(made, encoded(columns_of(rest)))
    alone = {}
    for row in range(30):
        one = encoded(columns_of(batch.slice(row, 1)), on_bad_row="skip")
        alone |= dict.fromkeys([row] * len(one.skipped), told(one.skipped).get(0))
    assert bad == alone
    halves = [
        encoded(columns_of(half), on_bad_row="skip")
        for half in (batch.slice(0, cut), batch.slice(cut))
    ]
    after = {cut + row: reason for row, reason in told(halves[1].skipped).items()}
    assert told(halves[0].skipped) | after == bad


def test_a_ragged_row_does_not_shift_the_next():
    """Equal indices are summed with their own values, whatever lists before them lack."""
    columns = {
        "i": pa.array([[1], [3, 3], [], []], GOOD["i"].type),
        "v": pa.array([[1.0, 1.7e308], [1.7e308, -1.7e308], [], []], GOOD["v"].type),
    }
    assert told(encoded(columns, on_bad_row="skip").skipped) == {0: "ragged"}


def test_a_thousand_bad_rows_cost_a_few_passes(monkeypatch):
    """All bad rows of a batch are found at once: the columns are walked at most three times."""
    module = sys.modules["streamomd.features.encode"]
    inner, passes = module._encode, []
    monkeypatch.setattr(module, "_encode", lambda *told: passes.append(1) or inner(*told))
    rows = 1000
    columns = {name: [GOOD[name][0].as_py()] * rows for name in GOOD}
    for row in range(rows - 1):
        name = ORDER[row % len(ORDER)]
        columns[name][row] = [3, 3] if name == "i" else SPOILT[name]
        if name in LISTS:
            columns["v"][row] = [1.7e308, 1.7e308]
            columns["i"][row] = [3, 3]
    made = encoded(
        {name: pa.array(values, GOOD[name].type) for name, values in columns.items()},
        on_bad_row="skip",
    )
    assert (len(made), len(made.skipped), len(passes)) == (1, rows - 1, 3)


def test_rows_that_are_only_predicted_are_never_left_out():
    """Without labels each row is to be answered: a bad one is told, whatever is skipped else."""

    batch = pa.RecordBatch.from_pydict({"y": [0, 1], "n": [1.0, float("nan")]})
    data = Data.model_validate({"label": "y", "on_bad_row": "skip"})
    plan = make_plan(data, Model.model_validate({"classes": [0, 1]}), batch.schema, list)
    assert len(encode(plan, batch, shard="s", row=FIRST)) == 1
    with pytest.raises(BadRowError) as caught:
        encode(plan, batch, shard="s", row=FIRST, labelled=False)
    assert (caught.value.message.row, caught.value.message.column) == (FIRST + 1, "n")


@given(st.lists(st.booleans(), max_size=12))
def test_where_rows_stood(good):
    """Of any pattern of good and bad rows: how many bad ones were passed before each good one."""
    bad = np.flatnonzero(~np.array(good, bool))
    skipped = Skipped(bad, np.zeros(len(bad), np.int8))
    kept = np.flatnonzero(np.array(good, bool)).tolist()
    for row, place in enumerate(kept):
        # All that stand before the next good row are passed with the row before it.
        assert row + skipped.before(row) == place
    assert skipped.before(len(kept)) == len(bad)
