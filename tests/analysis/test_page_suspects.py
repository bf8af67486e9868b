"""Data warnings: each is reported where it was planted, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import train, write

import streamomd
from streamomd.analysis.report.data_warnings import IDS, WEIGHTY, find_data_warnings
from streamomd.analysis.report.feature_weights import scales_from_slots, scales_of_shards, weigh

ROWS = 3000


def ordinary(draw: np.random.Generator) -> dict[str, Any]:
    """Columns without a warning, and a label that depends on some of them."""
    age, rate = draw.normal(40.0, 12.0, ROWS), draw.random(ROWS)
    count = draw.poisson(3.0, ROWS)
    score = (age - 40.0) / 12.0 + 2.0 * (rate - 0.5) + 0.3 * (count - 3.0)
    y = (score + draw.normal(size=ROWS) > 0.0).astype(np.int64)
    spent = np.where(draw.random(ROWS) < 0.2, draw.lognormal(2.0, 0.8, ROWS), 0.0)
    flags = {f"soil {p}": (draw.random(ROWS) < p) * 1.0 for p in (0.001, 0.003, 0.01, 0.03, 0.1)}
    return {"y": y, "age": age, "rate": rate, "count": count, "spent": spent, **flags}


def planted(draw: np.random.Generator, y: np.ndarray) -> dict[str, tuple[str, Any]]:
    """By name: what is said of a column, and its values."""
    steady = 2000.0 + draw.normal(0.0, 600.0, ROWS)
    huge = draw.normal(size=ROWS)
    huge[1234] = 1e7
    return {
        "same": ("constant", np.full(ROWS, 7.0)),
        "gone": ("empty", np.zeros(ROWS)),
        "spike": ("one value is far larger than the others", huge),
        "instance weight": ("named like a weight of rows", draw.lognormal(7.0, 0.6, ROWS)),
        "customerId": ("named like an id", draw.permutation(ROWS).astype(float)),
        "c24": ("much larger than other columns, in all rows", steady),
        "leak": ("it outweighs all others together", y + draw.normal(0.0, 0.1, ROWS)),
    }


@pytest.fixture(scope="module")
def drawn() -> tuple[dict[str, Any], dict[str, tuple[str, Any]]]:
    draw = np.random.default_rng(5)
    columns = ordinary(draw)
    return columns, planted(draw, columns["y"])


PLANTED = ["", "same", "gone", "spike", "instance weight", "customerId", "c24", "leak"]
CENTRED = [name for name in PLANTED if name not in ("spike", "c24")]  # auto stores no maximum


@pytest.mark.parametrize(
    ("name", "rule", "source"),
    [
        *((name, "nag", source) for name in PLANTED for source in ("rows", "slots")),
        *((name, "auto", "slots") for name in CENTRED),
        ("", "auto", "rows"),
    ],
)
@pytest.mark.sample(3)
def test_what_is_planted_is_reported(
    name: str, rule: str, source: str, drawn: Any, tmp_path: Path
) -> None:
    """Each one alone, from the slots and from the rows; without it there is no warning."""
    columns, suspicious = drawn
    more = {name: suspicious[name][1]} if name else {}
    data = write(tmp_path / "a.parquet", pa.table({**columns, **more}))
    train(data, "--label", "y", "--rule", rule, "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    sizes = (
        scales_of_shards(model.plan, str(data)) if source == "rows" else scales_from_slots(model)
    )
    found = find_data_warnings(model, sizes, weigh(model, sizes))
    expected = [(name, suspicious[name][0])] if name else []
    assert [(one.name, one.title) for one in found] == expected


@pytest.mark.parametrize(
    "code, low, high, warned",
    [(-99, 0, 50, True), (-1, 18, 90, True), (9999, 0, 1, True), (-1, -4, 4, False),
     (99, 0, 200, False), (-1, 0, 50, False), (-1, 0, 1, False)],
)  # fmt: skip
def test_a_code_for_missing_values_is_reported(
    code: int, low: int, high: int, warned: bool, tmp_path: Path
) -> None:
    """Where it is far outside of all other values, and nowhere else."""
    draw = np.random.default_rng(8)
    x = draw.integers(low, high + 1, 400).astype(float)
    x[:2], x[::10] = (low, high), code
    x[1] = high
    columns = {"y": draw.integers(0, 2, 400), "x": x}
    data = write(tmp_path / "a.parquet", pa.table(columns))
    train(data, "--label", "y", "--numeric", "x", "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    sizes = scales_of_shards(model.plan, str(data))
    titles = [one.title for one in find_data_warnings(model, sizes, weigh(model, sizes))]
    assert (f"{code} looks like a code for a missing value" in titles) == warned


@pytest.mark.parametrize("rule", ["nag", "auto"])
def test_a_column_off_centre_with_missing_values_is_no_leak(rule: str, tmp_path: Path) -> None:
    """Its contribution is centred, a missing value counts as the mean, and the loss is near the
    constant's: no warning of a leak, and the spread is numpy's of the filled column."""
    draw = np.random.default_rng(7)
    x, lat = draw.normal(size=ROWS), draw.normal(40.7, 0.1, ROWS)
    y = (0.5 * x + draw.normal(size=ROWS) > 0.0).astype(np.int64)
    gone = draw.random(ROWS) < 0.2
    columns = {"y": y, "x": x, "lat": pa.array(lat, mask=gone)}
    data = write(tmp_path / "a.parquet", pa.table(columns))
    flags = ["--label", "y", "--rule", rule, "--set", "data.nulls=mean"]
    train(data, *flags, "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    measured = scales_of_shards(model.plan, str(data))
    filled = np.where(gone, lat[~gone].mean(), lat)
    at = model.plan.numeric.index("lat") + 1
    assert measured.unit[at] == pytest.approx(filled.std(), rel=1e-6)
    for sizes in (measured, scales_from_slots(model)):
        found = find_data_warnings(model, sizes, weigh(model, sizes))
        assert "it outweighs all others together" not in [one.title for one in found]


@pytest.mark.parametrize(
    "name", ["instance weight", "weight", "w_weight", "MARSUPWT", "fnlwgt", "sample-wt", "wgt"]
)
def test_names_of_weights(name: str) -> None:
    """As surveys call them."""
    assert WEIGHTY.search(name.lower())


@pytest.mark.parametrize("name", ["weightless", "height", "newt x", "lightweight_score", "growth"])
def test_names_of_no_weights(name: str) -> None:
    """A part of another word is none."""
    assert not WEIGHTY.search(name.lower())


@pytest.mark.parametrize("name, expected", [("id", 1), ("user id", 1), ("paid", 0), ("width", 0)])
def test_names_of_ids(name: str, expected: bool) -> None:
    """As words of their own."""
    assert bool(IDS.search(name)) == expected


def test_importances_that_are_all_0_are_no_divergence(tmp_path: Path) -> None:
    """No loss is known then: the warning names the column of importances, not the step size."""
    x = np.random.default_rng(0).normal(size=60)
    columns = {"y": (x > 0.0).astype(np.int64), "x": x, "h": np.zeros(60)}
    write(tmp_path / "0.parquet", pa.table(columns))
    train(tmp_path / "0.parquet", "--label", "y", "--weight", "h", "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    weights = weigh(model, scales_from_slots(model))
    found = {
        one.title: one.text for one in find_data_warnings(model, scales_from_slots(model), weights)
    }
    assert "diverged" not in found
    assert "column 'h'" in found["all importances are 0"]
