"""Healthy columns raise no warning; equal reasons are reported once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import everything, shards, train

import streamomd
from streamomd.analysis.report import feature_weights
from streamomd.analysis.report.data_warnings import DataWarning, _broken, _group
from streamomd.analysis.watch import View
from streamomd.cli import formatting


def test_flags_are_not_huge(tmp_path: Path) -> None:
    """A rare 0/1 column is no mistake."""
    shards(tmp_path / "data")
    train(tmp_path / "data", *everything(), "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    at = int(model.plan.bias)
    found = feature_weights.scales_from_slots(model)
    largest, typical = np.full(model.plan.size, 1.0), np.full(model.plan.size, 1e-3)
    low = np.zeros(model.plan.hashed_offset)
    rare = replace(found, largest=largest, typical=typical, low=low, high=low + 1.0, rows=1000)
    assert not list(_broken("flag", rare, at, 1e-9))
    huge = replace(rare, largest=largest * 5.0)
    assert [one.title for one in _broken("x", huge, at, 1e-9)] == [
        "one value is far larger than the others"
    ]


def test_alarms_of_a_kind_are_one() -> None:
    one, two = (DataWarning(name, "empty", "It was 0.") for name in "ab")
    assert _group([one, two]) == [DataWarning("a, b", *one[1:])]


@pytest.mark.parametrize("classes", [2, 7])
def test_equal_reasons_are_reported_once(classes: int) -> None:
    one = {"rows": 9, "loss": None, "claims": None, "reason": "40 epochs"}
    result: dict[str, Any] = {"rule": "ng", "loss": "logistic"}
    result["learners"] = [{**one, "learner": at} for at in range(classes)]
    assert formatting.format_certificate(result).count("no certificate: 40 epochs") == 1


def test_inspect_is_plain() -> None:
    """No None, six digits, and a checkpoint by its URL."""
    fields: dict[str, Any] = {
        "rmse": None,
        "loss": 0.6570334468777408,
        "checkpoint": {"url": "runs/a", "sequence": 3},
        "top": [],
    }
    assert formatting.format_inspection(fields).startswith(
        "loss: 0.657033\ncheckpoint: runs/a, commit 3\n"
    )


def test_a_first_look_has_no_last() -> None:
    sums = np.array([9.0, 4.0, 1.0])
    first = View("run", rows=9, sums=sums, since=sums)
    assert "since last" not in "".join(first.lines())
    assert "since last" in "".join(replace(first, since=sums / 2.0).lines())
