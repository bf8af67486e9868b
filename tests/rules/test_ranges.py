"""Ranges of feature values: what each rule learns from, and what is a bad row, for both dtypes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest
from helpers import Learner, sparse
from running import run, write

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.batch import REASONS
from streamomd.core.errors import BadRowError
from streamomd.features import encode, make_plan
from streamomd.features.plan import Plan
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule
from streamomd.rules.ranges import ANY, Limits

oracles.families()
DTYPES = ("float64", "float32")
RANGED = [
    (name, dtype)
    for name, rule in all_rules().items()
    for dtype in DTYPES
    if rule.row.range.of(dtype) != ANY.of(dtype)
]
ALL = [(name, dtype) for name in all_rules() for dtype in DTYPES]
TRUTH = np.array([1.0, -2.0, 0.5, 1.5])
BOUNDED = {"winnow", "eg", "pnorm"}
"""Rules with a link whose weights are finite whatever theta is."""


def rows(rule: Rule, dtype: str) -> tuple[np.ndarray, np.ndarray, str]:
    """40 rows of values from 0.1 to 4, some 0; labels as the rule's loss takes them."""
    rng = np.random.default_rng(4)
    X = rng.uniform(0.1, 4.0, (40, 4)) * rng.choice([-1.0, 1.0], (40, 4))
    X[rng.random(X.shape) < 0.2] = 0.0
    loss = rule.losses.default
    y = X @ TRUTH
    return X, np.where(y > 0.0, 1.0, -1.0) if all_losses()[loss].classifies else y, loss


def learned(rule: Rule, dtype: str, scale: Any, params: dict[str, Any]) -> tuple[bool, bool]:
    """After rows times ``scale``: whether all numbers are finite, and whether any weight is not
    what it was before the first row."""
    X, y, loss = rows(rule, dtype)
    learner = Learner(rule, loss, 4, params=params, dtype=dtype, compiled=False)
    kept = rule.storage.kind == "recent"
    before = None if kept else learner.engine.weights(learner.state, 0, 4)
    with np.errstate(all="ignore"):
        try:
            learner.learn(sparse(X * scale, y))
        except (OverflowError, ZeroDivisionError):  # where compiled code has inf or NaN
            return False, True
        state = learner.state
        arrays = (state.table[:, : state.layout.used], state.totals, *state.extra.values())
        finite = all(np.isfinite(array).all() for array in arrays)
        if kept:
            return finite, bool(np.any(state.slot("theta")))  # of one row none is stored
        return finite, not np.array_equal(learner.engine.weights(state, 0, 4), before)


def variants(rule: Rule) -> list[dict[str, Any]]:
    """The oracles' parameters, without thresholds that have the unit of a gradient."""
    given = oracles.VARIANTS.get(rule.name, [{}])
    return [params for params in given if not {"l1", "delta"} & params.keys()]


@pytest.mark.parametrize("name, dtype", RANGED)
@pytest.mark.sample(3)
def test_a_rule_learns_within_its_range(name: str, dtype: str) -> None:
    """At both ends, alone and together, every number stays finite and the weights move."""
    rule = all_rules()[name]
    least, most = rule.row.range.of(dtype)
    top, bottom = most / 4.0, (least * 10.0 if least else 1e-3)
    for params in variants(rule):
        if params.get("link") == "pnorm" or params.get("form") == "variance":
            continue  # their pages name a limit of their own
        for scale in (top, bottom, np.array([top, bottom, 1.0, top])):
            if isinstance(scale, np.ndarray) and not least:
                continue  # a sum of squares has room for one unit
            assert learned(rule, dtype, scale, params) == (True, True), (params, scale)


@pytest.mark.parametrize("name, dtype", ALL)
@pytest.mark.sample(2)
def test_what_cannot_be_learned_is_never_silent(name: str, dtype: str) -> None:
    """Of huge values each rule learns, or has numbers that are not finite, or refuses the row."""
    rule = all_rules()[name]
    most = rule.row.range.of(dtype).most
    for scale in (1e14, 1e30, 1e100, 1e160, 1e200, 1e300):
        if scale > most / 4.0 or scale > ANY.of(dtype).most / 4.0:
            continue
        finite, moved = learned(rule, dtype, scale, {})
        assert moved or not finite, scale


@pytest.mark.parametrize(
    "name, dtype",
    # Its sweeps in plain Python take 20 s: of slots of 64 bits in the quick run.
    [pytest.param(*one, marks=pytest.mark.slow if one == ("dual_ascent", "float32") else ())
     for one in ALL],
)  # fmt: skip
@pytest.mark.sample(6)
def test_tiny_values_leave_finite_numbers(name: str, dtype: str) -> None:
    """Also subnormal ones, where the range has them, next to values of 1."""
    rule = all_rules()[name]
    for scale in (1e-310, 1e-200, 1e-100, 1e-40):
        if scale < rule.row.range.of(dtype).least:
            continue
        for params in variants(rule):
            assert learned(rule, dtype, np.array([1.0, scale, 1.0, 1.0]), params)[0], (
                scale,
                params,
            )


@pytest.mark.parametrize(
    ("compiled", "link"),
    [(False, "eg"), (False, "winnow"), (True, "eg"),
     pytest.param(True, "winnow", marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_dual_step_learns_large_values(link: str, compiled: bool) -> None:
    """The curvature goes by the largest entry: 1e15 and 1e90 are two units of the same rows."""
    rule = all_rules()["dual_step"]
    X, y, _ = rows(rule, "float64")
    margins = []
    for scale in (2.0**50, 2.0**300):
        params = {"link": link, "U": 1.0}
        learner = Learner(rule, "hinge", 4, compiled=compiled, params=params)
        learner.learn(sparse(X * scale, y))
        again = learner.learn(sparse(X * scale, y))[:, 0]
        margins.append(again if link == "eg" else again / scale)  # winnow's start is not 0
        assert np.mean(np.sign(again) == y) > (0.8 if link == "eg" else 0.5)
    np.testing.assert_allclose(margins[0], margins[1], rtol=1e-9)
    assert len(set(margins[0])) > 30


def plan_of(rule: str, dtype: str, table: pa.Table, **job: Any) -> Plan:
    data = Data.model_validate({"label": "y", **job})
    model = Model.model_validate({"rule": rule, "dtype": dtype, "classes": [0, 1]} | loss_of(rule))
    return make_plan(data, model, table.schema, list)


def loss_of(rule: str) -> dict[str, Any]:
    """A loss of classes where the rule has one."""
    allowed = all_rules()[rule].losses.names
    return {} if not allowed or all_losses()[allowed[0]].classifies else {"loss": allowed[0]}


def reason_of(plan: Plan, table: pa.Table) -> str:
    """Why the first bad row is bad, "" if none is."""
    rows = table.combine_chunks().to_batches()[0]
    skipping = replace(plan, on_bad_row="skip")
    skipped = encode(skipping, rows, shard="a.parquet", row=0).skipped
    if not len(skipped):
        encode(plan, rows, shard="a.parquet", row=0)
        return ""
    assert skipped.places.tolist() == [1]
    with pytest.raises(BadRowError, match=r"a\.parquet, row 1, column .*expected") as caught:
        encode(plan, rows, shard="a.parquet", row=0)
    assert caught.value.reason == REASONS[skipped.reasons[0]]
    return caught.value.reason


COLUMNS: dict[str, Any] = {
    "number": (lambda v, kind: {"n": pa.array([1.0, v, 0.0], kind)}, {}),
    "vector": (
        lambda v, kind: {"e": pa.array([[1.0, 2.0], [0.0, v], [0.0, 0.0]], pa.list_(kind, 2))},
        {"vectors": ["e"]},
    ),
    "pair": (
        lambda v, kind: {
            "i": pa.array([[1], [0, 2], []], pa.list_(pa.int32())),
            "v": pa.array([[1.0], [0.0, v], []], pa.list_(kind)),
        },
        {"sparse": {"indices": "i", "values": "v", "size": 5}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("name, dtype", RANGED)
def test_values_outside_are_bad_rows(name: str, dtype: str, kind: str) -> None:
    """Above and below, of both signs; the ends themselves, 0 and -0 are good."""
    make, job = COLUMNS[kind]
    least, most = all_rules()[name].row.range.of(dtype)
    good = [most, -most, 0.0, -0.0, 1.0, *([least, -least] if least else [5e-324])]
    bad = [math.nextafter(most, math.inf), -1.7e308]
    bad += [math.nextafter(least, 0.0), -5e-324] if least else []
    if "loss" in loss_of(name):
        pytest.skip("learns numbers only")  # none of those that have a range
    for value in (*good, *bad):
        table = pa.table({"y": pa.array([0, 1, 0]), **make(value, pa.float64())})
        found = reason_of(plan_of(name, dtype, table, **job), table)
        too_large = abs(value) > ANY.of(dtype).most
        assert found == ("overflow" if too_large else "out_of_range" if value in bad else "")


def test_columns_of_other_types_have_the_range_too() -> None:
    """float32 and integers; float64 slots need no look at them."""
    for dtype, kind, value, expected in (
        ("float32", pa.float32(), 1e-20, "out_of_range"),
        ("float32", pa.float32(), 3e38, "out_of_range"),
        ("float32", pa.float32(), 1e-15, ""),
        ("float64", pa.float32(), 1e-44, ""),
        ("float64", pa.float32(), 3e38, ""),
        ("float32", pa.int64(), 10**15, "out_of_range"),
        ("float32", pa.uint64(), 2**60, "out_of_range"),
        ("float32", pa.int64(), 10**13, ""),
        ("float64", pa.int64(), 2**62, ""),
    ):
        table = pa.table({"y": pa.array([0, 1, 0]), "n": pa.array([1, value, 0], kind)})
        assert reason_of(plan_of("nag", dtype, table), table) == expected, (dtype, kind, value)


def test_what_equal_indices_sum_to_is_looked_at() -> None:
    """1 and its neighbour below cancel to 1e-16: no number that float32 NAG takes for a size."""
    table = pa.table({
        "y": pa.array([0, 1]),
        "i": pa.array([[1], [2, 2]], pa.list_(pa.int32())),
        "v": pa.array([[1.0], [1e-17 + 1e-19, -1e-17]], pa.list_(pa.float64())),
    })  # fmt: skip
    pair = {"sparse": {"indices": "i", "values": "v", "size": 5}}
    assert reason_of(plan_of("nag", "float32", table, **pair), table) == "out_of_range"
    assert reason_of(plan_of("nag", "float64", table, **pair), table) == ""


def test_many_values_are_looked_at_by_compiled_code() -> None:
    """One value out of range among a million, at any place, in a column of any width."""
    for place in (0, 999_999, 123_457):
        values = np.zeros(1_000_000)
        values[::3] = 1.0
        values[place] = 1e-200
        table = pa.table({"y": pa.array(np.arange(1_000_000) % 2), "n": pa.array(values)})
        plan = plan_of("nag", "float64", table)
        with pytest.raises(BadRowError, match=f"row {place}, column 'n': found 1e-200") as caught:
            encode(plan, table.combine_chunks().to_batches()[0], shard="a", row=0)
        assert caught.value.reason == "out_of_range"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Four rows, the third of them with a value that NAG does not take."""
    table = {"y": [0, 1, 0, 1], "n": [1.0, 2.0, 1e200, 3.0], "m": [0.0, 1e-200, 1.0, 2.0]}
    return write(tmp_path / "rows.parquet", table)


def test_the_command_names_row_and_range(shard: Path) -> None:
    """Exit 2; with --on-bad-row skip the rows are counted as out_of_range, in every report."""
    words = ("train", shard, "--label", "y", "--checkpoint", "none", "--rule", "nag")
    failed = run(*words)
    assert failed.code == 2
    for word in ("row 1, column 'm': found 1e-200", "1e-140 to 1e+140", "rescale the column"):
        assert word in failed.err
    passed = run(*words, "--on-bad-row", "skip", "--json").result
    assert (passed["rows"], passed["skipped"]) == (2, {"out_of_range": 2})


def test_other_rules_take_any_finite_number(shard: Path, tmp_path: Path) -> None:
    """The range is the rule's: OGD has none, and PA takes small values only."""
    words = (shard, "--label", "y", "--checkpoint", "none", "--on-bad-row", "skip", "--json")
    assert run("train", *words, "--rule", "adagrad", "--loss", "hinge").code in (0, 6)
    assert run("train", *words, "--rule", "pa").result["skipped"] == {"out_of_range": 1}


def test_a_sweep_has_the_range_of_all_its_rules(shard: Path, tmp_path: Path) -> None:
    """Rows are encoded once: what one of the rules does not take is a bad row for all."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'[data]\nshards = "{shard}"\nlabel = "y"\non_bad_row = "skip"\n'
        '[checkpoint]\nurl = "none"\n'
    )
    done = run("sweep", job, "--grid", "rule=adagrad,nag", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out.splitlines()[-1] if done.out.strip().endswith("}") else done.out)
    print(told)
    assert told["skipped"] == {"out_of_range": 2}


def test_reasons_have_the_places_by_which_checkpoints_count() -> None:
    assert REASONS[10:] == (
        "out_of_range", "partition", "filtered", "fraction", "binary_list", "sampled",
    )  # fmt: skip


def test_a_plan_without_a_range_is_saved_as_before() -> None:
    """Older versions read it; one with a range comes back from JSON as it was."""
    table = pa.table({"y": pa.array([0, 1]), "n": pa.array([1.0, 2.0])})
    assert "limits" not in plan_of("ogd", "float64", table).to_json()
    plan = plan_of("nag", "float32", table)
    assert plan.limits == Limits(1e-18, 1e14)
    assert Plan.from_json(plan.to_json()) == plan
