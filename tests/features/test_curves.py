"""Curves: hats and knots are those of the oracle; a plan saves them; rows are encoded by them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import curve_oracle as oracle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import batch_of, new_model

from streamomd.core.errors import DataError
from streamomd.core.jit import recording
from streamomd.core.scalars import Curve, hat_at, hat_of
from streamomd.features import Plan, name_of
from streamomd.features.curves import BUDGET, MOST, WIDE, PackedCurves, equal_curves, knots_of
from streamomd.features.kernels.write_columns import hat_writer
from streamomd.features.names import Names

KNOTS = st.lists(st.integers(-50, 50), min_size=3, max_size=9, unique=True).map(sorted)
TENTHS = st.integers(-600, 600).map(lambda x: x / 10)


def hats_of(x: float, knots: Any) -> list[float]:
    """The hats that ``hat_at`` gives."""
    found = [0.0] * len(knots)
    k, share = hat_at(x, knots, 0, len(knots) - 1)
    found[k], found[k + 1] = 1.0 - share, share
    return found


@given(TENTHS, KNOTS)
def test_hats_are_those_of_the_oracle(x: float, knots: list[int]) -> None:
    """Interpolations of 1 at one knot and 0 at the others, constant beyond the first and last."""
    assert np.allclose(hats_of(x, knots), oracle.hats(x, knots), atol=1e-15)
    assert hat_of(x, knots) == hat_at(x, knots, 0, len(knots) - 1)


@given(TENTHS, KNOTS)
def test_hats_sum_to_1_and_reproduce_the_number(x: float, knots: list[int]) -> None:
    """Within the knots a linear function is a weighted sum of hats; beyond them it is constant."""
    found = np.array(hats_of(x, knots))
    assert found.sum() == pytest.approx(1.0, abs=1e-15)
    assert found @ knots == pytest.approx(min(max(x, knots[0]), knots[-1]), abs=1e-12)
    assert found.min() >= 0.0
    assert np.count_nonzero(found) <= 2


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 4)), max_size=60), st.integers(3, 9))
def test_knots_are_those_of_the_oracle(rows: list[tuple[int, int]], most: int) -> None:
    """Heavy values, and quantiles of the others."""
    values, weights = [float(v) for v, _ in rows], [w for _, w in rows]
    found, of = np.unique([v for v, w in rows if w], return_inverse=True)
    mass = np.bincount(of, [w for w in weights if w], len(found))
    made = knots_of(found.astype(float), mass, most)
    assert list(made) == oracle.knots(values, weights, most)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 3)), min_size=5, max_size=200),
    st.sampled_from([0.1, 3.7, 1e-150, 1e9, 1.0 / 3.0]),
)
def test_the_unit_of_weights_changes_no_bit(rows: list[tuple[int, int]], unit: float) -> None:
    """Weights times a constant give the same curves."""
    values = np.array([[v, v % 7] for v, _ in rows], float)
    weights = np.array([w for _, w in rows], float)
    assert equal_curves(values, weights * unit) == equal_curves(values, weights)


def test_constants_and_two_values_have_no_curve() -> None:
    """And missing or infinite numbers and rows without weight count for nothing."""
    bad = [np.nan, np.inf, -np.inf, 2.0]
    columns = [
        [1.0] * 8, [0.0, 1.0] * 4, [0.0, -0.0, 1.0, 2.0] * 2, [*bad, 0.0, 1.0, 0.0, 1.0],
        [np.nan] * 8,
    ]  # fmt: skip
    weights = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    found = equal_curves(np.array(columns).T, weights)
    assert found == (Curve(2, 0.0, 2.0, (0.0, 1.0, 2.0)),)
    assert equal_curves(np.zeros((0, 2)), np.zeros(0)) == ()


@pytest.mark.parametrize("count", [1, 30, BUDGET // 3, BUDGET // 3 + 1, 300])
def test_all_curves_together_have_a_budget(count: int) -> None:
    """Each has as many knots as fit; none where three each would be more."""
    values = np.random.default_rng(0).normal(size=(400, count))
    found = equal_curves(values, np.ones(400))
    sizes = {len(curve.knots) for curve in found}
    room = min(BUDGET, WIDE - count) if count <= WIDE else BUDGET
    assert sizes == ({min(MOST, room // count)} if 3 * count <= room else set())


def planned(table: pa.Table, **data: Any) -> Plan:
    """The plan of a table, with the curves of its rows."""
    from streamomd.features.encode import first_numbers

    plan = new_model(table, data=data, model={"task": "regress", "loss": "square"}).plan
    names = [*plan.measured, *([plan.weight] if plan.weight else [])]
    (rows,) = table.select(names).combine_chunks().to_batches()
    return replace(plan, curves=equal_curves(*first_numbers(plan, rows)))


def gaps(count: int = 40) -> pa.Table:
    """Numbers, lists and categories; of two columns some are missing."""
    draw = np.random.default_rng(1)
    numbers = draw.normal(size=count)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=2 * count)), 2)
    return pa.table({
        "a": numbers, "b": pa.array(draw.normal(size=count), mask=draw.random(count) < 0.3),
        "c": pa.array(draw.normal(size=count).astype(np.float32)), "v": lists,
        "h": [f"h{k % 3}" for k in range(count)], "y": numbers**2,
    })  # fmt: skip


@pytest.mark.parametrize("nulls", ["zero", "indicator", "mean"])
@pytest.mark.parametrize("hashed", [False, True])
def test_rows_have_the_hats_of_their_numbers(nulls: str, hashed: bool) -> None:
    """Next to the numbers. A missing one has those of 0 where it is 0, else none."""
    table = gaps() if hashed else gaps().drop_columns(["h"])
    roles = {"hashed": ["h"]} if hashed else {}
    roles |= {"numeric": ["a", "b", "c"], "vectors": ["v"], "nulls": nulls, "bits": 4}
    plan = planned(table, **roles)
    model = new_model(table, data=roles, model={"task": "regress", "loss": "square"})
    model.plan = plan
    batch = batch_of(model, table)
    values = batch.values
    if hashed:
        values = np.zeros((len(batch), plan.size))
        for row in range(len(batch)):
            at = slice(batch.indptr[row], batch.indptr[row + 1])
            assert (np.diff(batch.indices[at]) > 0).all()
            values[row, batch.indices[at]] = batch.values[at]
    at = plan.given_numbers
    assert [curve.place for curve in plan.curves] == [0, 1, 2, 3, 4]
    given = [table[name].to_pylist() for name in "abc"]
    given += [*zip(*table["v"].to_pylist(), strict=True)]
    for curve, column in zip(plan.curves, given, strict=True):
        for row, x in enumerate(column):
            none = [0.0] * len(curve.knots)
            wanted = none if x is None and nulls != "zero" else oracle.hats(x or 0.0, curve.knots)
            assert np.allclose(values[row, at : at + len(none)], wanted, atol=1e-12), (row, x)
        at += len(curve.knots)
    assert at == plan.numbers


def test_compiled_hats_are_bit_identical() -> None:
    """Compiled code and Python write the same."""
    values = np.random.default_rng(2).normal(size=(60, 3))
    values[5, 1] = np.nan
    packed = PackedCurves.of(equal_curves(values, np.ones(60)))
    tables = [np.hstack([values, np.full((60, packed.begins[-1]), 7.0)]) for _ in range(2)]
    write, width = hat_writer(), tables[0].shape[1]
    write(1, *packed, width, 3, tables[0].reshape(-1))
    with recording():
        write(1, *packed, width, 3, tables[1].reshape(-1))
    assert tables[0].tobytes() == tables[1].tobytes()
    assert not (tables[0] == 7.0).any()


def test_a_plan_saves_its_curves() -> None:
    """As JSON; a plan without any is saved as before."""
    plan = planned(gaps(), numeric=["a", "c"], hashed=["h"], vectors=["v"])
    saved = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(saved) == plan
    assert "curves" not in replace(plan, curves=()).to_json()
    names = [name_of(plan, Names(), place) for place in range(plan.hat_offset, plan.hashed_offset)]
    assert len({*names}) == plan.hats
    assert names[0].startswith("a[..")
    assert names[-1].startswith("v[1][")
    assert names[-1].endswith("..]")


BAD = {
    "place": [[9, 0.0, 1.0, [0.0, 1.0, 2.0]]],
    "text": [["0", 0.0, 1.0, [0.0, 1.0, 2.0]]],
    "few": [[0, 0.0, 1.0, [0.0, 1.0]]],
    "order": [[0, 0.0, 1.0, [0.0, 2.0, 1.0]]],
    "huge": [[0, 0.0, 1.0, [0.0, 1.0, 1e301]]],
    "nan": [[0, 0.0, 1.0, [0.0, float("nan"), 1.0]]],
    "words": [[0, 0.0, 1.0, ["0", "1", "2"]]],
    "range": [[0, 2.0, 1.0, [0.0, 1.0, 2.0]]],
    "twice": [[0, 0.0, 1.0, [0.0, 1.0, 2.0]]] * 2,
    "short": [[0, 0.0]],
}


@pytest.mark.parametrize("kind", BAD)
def test_other_curves_are_no_plan(kind: str) -> None:
    """What a commit claims is checked before rows are encoded by it."""
    saved = planned(gaps(), numeric=["a", "c"]).to_json()
    with pytest.raises(DataError, match="expected a feature plan"):
        Plan.from_json({**saved, "curves": BAD[kind]})
