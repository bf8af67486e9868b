"""Sizes of features: counted from rows, and read from what rules keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import dense, sparse

from streamomd.analysis.report.feature_weights import (
    LARGEST,
    measure_scales,
    scales_from_slots,
    weigh,
)
from streamomd.config.spec import Spec
from streamomd.features import Plan
from streamomd.rules import all_rules
from streamomd.training.model import Model

COLUMNS = ("a", "b", "c", "d")


def plan(*, bias: bool = True, classes: tuple[bool, ...] = ()) -> Plan:
    """Four numeric columns."""
    return Plan(
        bias, "y", "", COLUMNS, (), (), None, "error", 3, 0, (), "double", classes
    )  # fmt: skip


def numbers(count: int, seed: int = 0) -> np.ndarray:
    """Rows of four columns on unlike scales, one of them often 0 and one never below 0."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(count, 4)) * (1.0, 100.0, 0.01, 5.0)
    X[:, 3] = np.abs(X[:, 3])
    X[draw.random((count, 4)) < (0.0, 0.0, 0.8, 0.0)] = 0.0
    return X


@pytest.mark.parametrize("make", [dense, sparse])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cuts", [(), (1, 7), (20, 21, 40)])
def test_rows_are_counted_one_by_one(cuts: tuple[int, ...], bias: bool, make: Any) -> None:
    """As numpy has it of the whole matrix, however it is cut into batches."""
    X = numbers(50)
    batches = [make(part, np.zeros(len(part))) for part in np.split(X, cuts)]
    found = measure_scales(plan(bias=bias), batches)
    own = slice(int(bias), None)
    np.testing.assert_array_equal(found.largest[own], np.abs(X).max(axis=0))
    np.testing.assert_allclose(found.typical[own], np.sqrt((X * X).mean(axis=0)), rtol=1e-14)
    np.testing.assert_array_equal(found.low[own], X.min(axis=0))
    np.testing.assert_array_equal(found.high[own], X.max(axis=0))
    np.testing.assert_array_equal(found.present[own], (X != 0.0).mean(axis=0))
    if bias:
        bias_is = [found.largest[0], found.typical[0], found.low[0], found.high[0]]
        assert bias_is == [1.0, 1.0, 1.0, 1.0]


def learned(rule: str, X: np.ndarray, y: np.ndarray, params: dict[str, Any], **model: Any) -> Model:
    """A model of these rows, by plain Python: nothing is compiled."""
    fields = {"rule": rule, "params": params, **model}
    spec = Spec.parse({"model": fields, "data": {"bits": 3}})
    made = Model.new(spec, plan(classes=(False, True) if spec.model.classifies else ()))
    made.engine = replace(made.engine, compiled=False)
    made.learn(dense(X, y))
    return made


def slots(rule: Any) -> list[str]:
    return [slot.name for slot in (*rule.shared_slots, *rule.own_slots)]


KEEPING = [
    rule.name
    for rule in all_rules().values()
    if (rule.shared_slots and rule.storage.kind != "block")
    or (rule.storage.kind == "coordinates" and "G" in slots(rule))
]


def test_shared_slots_are_sizes() -> None:
    """Every rule's shared slots are the largest abs(x), the first, or sums of squares: by name."""
    for rule in all_rules().values():
        for one in (rule, *([rule.certificate.accounted] if rule.certificate.accounted else [])):
            for slot in one.shared_slots:
                known = slot.name in LARGEST and slot.merge == "max"
                known = known or one.storage.kind == "block"
                assert known or (slot.name, slot.merge) in (("s", "sum"), ("first", "max")), (
                    one.name
                )


@pytest.mark.parametrize("rule", KEEPING)
def test_what_a_rule_keeps_is_what_rows_have(rule: str) -> None:
    """If every slope is ±1, the slots give the same largest values and mean squares as the rows."""
    described = all_rules()[rule]
    if described.losses.names and "absolute" not in described.losses.names:
        pytest.skip(f"{rule} does not learn with absolute loss, whose slopes are ±1")
    X = numbers(30)
    params = {"L": 1.0} if described.losses.lipschitz else {}
    found = scales_from_slots(learned(rule, X, np.full(30, 1e9), params, loss="absolute"))
    expected = measure_scales(plan(), [dense(X, np.zeros(30))])
    for name in ("largest", "typical"):
        known = getattr(found, name)
        if not np.isnan(known).all():
            np.testing.assert_allclose(known, getattr(expected, name), rtol=1e-9)
    assert not np.isnan(found.unit).all()
    assert "stores no feature scales" not in found.source


@pytest.mark.parametrize("rule", ["auto", "laplace", "adagrad_standardized"])
def test_rules_with_a_reference_keep_moments(rule: str) -> None:
    """Typical values and standard deviations are those of the rows; a constant is known as such."""
    X = numbers(30)
    X[:, 1] = 7.0
    found = scales_from_slots(learned(rule, X, X[:, 0], {}, loss="square"))
    expected = measure_scales(plan(), [dense(X, np.zeros(30))])
    np.testing.assert_allclose(found.typical, expected.typical, rtol=1e-12)
    np.testing.assert_allclose(found.unit, [0.0, *X.std(axis=0)], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(expected.unit, [0.0, *X.std(axis=0)], rtol=1e-6, atol=1e-6)
    assert np.flatnonzero(found.low == found.high).tolist() == [2]


def test_rules_that_keep_no_sizes_say_so() -> None:
    """And their weights are compared without units."""
    found = scales_from_slots(learned("perceptron", numbers(9), np.ones(9), {}, loss="hinge"))
    assert np.isnan(found.unit).all()
    assert "Rule perceptron stores no feature scales" in found.source


def test_weights_are_weighed_by_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight counts once, however the coordinates are stretched; the bias moves nothing."""
    made = learned("nag", numbers(30), np.ones(30), {}, loss="square")
    made.state.slot("w")[:, 0] = [9.0, -2.0, 0.0, 1e-20, np.nan]
    sizes = replace(scales_from_slots(made), typical=np.array([1.0, 0.5, 7.0, 3.0, 1.0]))
    found = weigh(made, sizes)
    assert (found.zeros, found.broken) == (1, 1)
    assert [(one.name, one.moves) for one in found.top] == [("a", 1.0), ("c", 3.0 * 1e-20)]
    assert found.top[0].share == pytest.approx(1.0)
    assert (found.above.sum(), found.below.sum()) == (2, 1)
    place = int(np.searchsorted(found.edges, 9.0, side="right")) - 1
    assert found.above[place] == 1
    monkeypatch.setattr("streamomd.training.model_data.ROWS", 2)
    again = weigh(made, sizes)
    assert again.top == found.top
    np.testing.assert_array_equal(again.above, found.above)
