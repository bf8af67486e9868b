"""Which pairs of columns act together, by the labels of the first rows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import curve_oracle as oracle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import write

import streamomd
from streamomd.core.errors import DataError, DivergedError
from streamomd.core.scalars import Bins
from streamomd.features import Plan
from streamomd.features.curves import MOST_BINS, codes_of, edges_of
from streamomd.training import column_pairs
from streamomd.training.column_pairs import CELLS, _together

N = 3_000


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_scores_are_those_of_the_oracle(seed: int) -> None:
    """Least squares with a cell for each pair of values, beyond one for each value."""
    draw = np.random.default_rng(seed)
    codes, g = draw.integers(0, 3, (2, 200)), draw.normal(size=200)
    sums = np.zeros((2, 1, CELLS, CELLS))
    for a, b, slope in zip(*codes, g, strict=True):
        sums[:, 0, a, b] += slope, slope**2
    (X,), (k,) = _together(*sums)
    rows, columns = (np.eye(3)[one] for one in codes)
    assert (X, k) == pytest.approx(oracle.pair_score(g, rows, columns), rel=1e-6)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=40))
def test_bins_do_not_depend_on_the_unit_of_weights(rows: list[tuple[int, int]]) -> None:
    """Few values have a bin each; bins of many have at most twice their share and one value."""
    values, weights = np.array(rows, float).T
    edges = edges_of(values, weights)
    assert edges == edges_of(values, 0.37 * weights)
    used = np.unique(values[weights > 0.0])
    assert len(edges) < MOST_BINS
    assert set(edges) <= set(used[1:])
    if len(used) <= MOST_BINS:
        assert len(edges) == max(0, len(used) - 1)
        return
    mass = np.bincount(codes_of(values, edges), weights)
    heaviest = max(weights[values == value].sum() for value in used)
    assert mass.max() <= weights.sum() * 2 / MOST_BINS + heaviest + 1e-9


def table(label: str, count: int = N) -> pa.Table:
    """The label depends on a times b, on h of each g, on c by category k, and on d alone."""
    draw = np.random.default_rng(count)
    a, b, c, d = draw.normal(size=(4, count))
    g, h, k = draw.integers(0, 3, (3, count))
    score = 1.5 * a * b + np.where(g == h, 2.0, 0.0) + np.where(k == 0, 2.0, -1.0) * c + 0.5 * d
    y: Any = score + 0.3 * draw.normal(size=count)
    if label != "number":
        y = np.digitize(y, np.quantile(y, [0.5] if label == "two" else [0.3, 0.6]))
    named = {"g": [f"g{j}" for j in g], "h": [f"h{j}" for j in h], "k": [f"k{j}" for j in k]}
    return pa.table({"a": a, "b": b, "c": c, "d": d, **named, "y": y})


def paired(source: Path, **more: Any) -> set[tuple[str, str]]:
    """The pairs of a model of these rows."""
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none", "quiet": True}
    return {*streamomd.train(str(source), **{**job, **more}).plan.pairs}


WANTED = {("a", "b"), ("c", "k"), ("g", "h")}


@pytest.mark.parametrize("rule", ["auto", "nag"])
@pytest.mark.parametrize("label", ["number", "two", "three"])
def test_columns_that_act_together_are_paired(label: str, rule: str, tmp_path: Path) -> None:
    """Two numbers, two categories, one of each: by every kind of label, whatever rule learns."""
    shard = write(tmp_path / "0.parquet", table(label))
    assert paired(shard, rule=rule) == WANTED


@pytest.mark.parametrize("loss", ["huber", "pinball", "hinge", "squared_hinge"])
def test_every_kind_of_loss_tells(loss: str, tmp_path: Path) -> None:
    """Losses without curvature, too."""
    label = "number" if loss in ("huber", "pinball") else "two"
    shard = write(tmp_path / "0.parquet", table(label, 5_000))
    assert paired(shard, loss=loss) >= {("a", "b"), ("c", "k")}


def test_pairs_do_not_depend_on_the_unit_of_weights(tmp_path: Path) -> None:
    """Nor on a job that stops: they are in each commit."""
    rows, plans = table("two"), []
    draw = np.random.default_rng(0)
    weights = draw.integers(1, 4, N) * 1.0
    for at, w in enumerate((weights, 0.37 * weights)):
        shard = write(tmp_path / f"{at}.parquet", rows.append_column("w", pa.array(w)))
        job = {"label": "y", "weight": "w", "shapes": "pairs", "quiet": True}
        model = streamomd.train(str(shard), checkpoint=str(tmp_path / f"run{at}"), **job)
        assert streamomd.load(model.url).plan == model.plan
        plans.append((model.plan.bins, model.plan.pairs))
    assert plans[0] == plans[1]


def test_crosses_of_the_job_are_not_paired_again(tmp_path: Path) -> None:
    """Nor a number that is a category in one of them."""
    rows = table("number")
    rows = rows.append_column("i", pa.array(np.arange(N) % 5))
    crosses = {"data.crosses": [["h", "g"], ["i", "k"]]}
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none", "quiet": True, "sets": crosses}
    plan = streamomd.train(str(write(tmp_path / "0.parquet", rows)), **job).plan
    assert {*plan.pairs} == WANTED - {("g", "h")}
    assert plan.crossed == (("h", "g"), ("i", "k"), *plan.pairs)


def test_of_many_columns_those_that_alone_tell_most_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are."""
    monkeypatch.setattr(column_pairs, "MOST_COLUMNS", 2)
    draw = np.random.default_rng(0)
    X = draw.normal(size=(N, 9))
    y = X[:, 3] + X[:, 7] + X[:, 3] * X[:, 7] + X[:, 1] * X[:, 2] + 0.3 * draw.normal(size=N)
    rows = pa.table({**{f"x{j}": X[:, j] for j in range(9)}, "y": y})
    assert paired(write(tmp_path / "0.parquet", rows)) == {("x3", "x7")}


def test_a_column_of_the_middle_class_alone_is_informative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells have one mean number of the class, and different classes."""
    monkeypatch.setattr(column_pairs, "MOST_COLUMNS", 2)
    draw = np.random.default_rng(0)
    g, h = draw.integers(0, 3, (2, N))
    X = draw.normal(size=(N, 5))
    y = np.where((g == 0) ^ (h == 0), 1, draw.choice([0, 2], N))
    columns = {f"x{j}": X[:, j] for j in range(5)}
    named = {"g": [f"g{k}" for k in g], "h": [f"h{k}" for k in h]}
    rows = pa.table({**columns, **named, "y": y})
    assert paired(write(tmp_path / "0.parquet", rows)) == {("g", "h")}


@pytest.mark.parametrize("wide", ["numbers", "categories", "one"])
def test_too_many_columns_are_not_read(
    wide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one alone: a line says so, and the advice reads nothing either."""
    monkeypatch.setattr(column_pairs, "MOST_NUMBERS", 3)
    rows = {
        "numbers": table("two").select(["a", "b", "c", "d", "y"]),
        "categories": table("two").select(["a", "g", "h", "k", "y"]),
        "one": table("two").select(["g", "y"]),
    }[wide]
    monkeypatch.setattr(column_pairs, "_members", None)
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none"}
    streamomd.train(str(write(tmp_path / "0.parquet", rows)), **job)
    assert f"{len(rows.column_names) - 1} column" in capsys.readouterr().err


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_large_labels_and_weights_of_0(scale: float, tmp_path: Path) -> None:
    """Of more columns than are tested: without a warning of numpy's."""
    draw = np.random.default_rng(0)
    rows = {f"g{k}": [f"v{j}" for j in draw.integers(0, 3, N)] for k in range(70)}
    y, w = 1e160 * draw.normal(size=N), np.full(N, scale)
    shard = write(tmp_path / "0.parquet", {**rows, "y": y, "w": w})
    with suppress(DivergedError):
        paired(shard, weight="w", task="regress", loss="absolute")


def test_what_adds_to_the_loss_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a line, and the model is the one of curves, to the bit."""
    shard = write(tmp_path / "0.parquet", table("two"))
    job = {"label": "y", "checkpoint": "none"}
    learned = column_pairs.learned_first
    monkeypatch.setattr(
        column_pairs, "learned_first",
        lambda spec, plan, first: (1.0 + len(plan.pairs), learned(spec, plan, first)[1]),
    )  # fmt: skip
    found = streamomd.train(str(shard), shapes="pairs", **job)
    assert "no pairs of columns (model.shapes): they add 300.0% to" in capsys.readouterr().err
    curved = streamomd.train(str(shard), shapes="columns", **job, quiet=True)
    assert found.state_sha256 == curved.state_sha256


def test_what_only_follows_the_latest_rows_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells whose effects change every 500 rows save the next row's loss, not that of later rows;
    those that stay save both."""
    draw = np.random.default_rng(0)
    g, h = draw.integers(0, 3, (2, 4 * N))
    table_of = {"g": [f"g{k}" for k in g], "h": [f"h{k}" for k in h]}
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none", "task": "regress"}
    for changes, pairs in ((500, ()), (4 * N, (("g", "h"),))):
        cells = draw.normal(size=(4 * N // changes, 3, 3))
        y = cells[np.arange(4 * N) // changes, g, h] + 0.1 * draw.normal(size=4 * N)
        shard = write(tmp_path / f"{changes}.parquet", {**table_of, "y": y})
        assert streamomd.train(str(shard), **job).plan.pairs == pairs
        assert ("by a model of earlier rows" in capsys.readouterr().err) == (not pairs)


def test_lines_say_why_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few rows; nothing that acts together, as of columns that say the same."""
    rows = table("two")
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none"}
    streamomd.train(str(write(tmp_path / "few.parquet", rows.slice(0, 900))), **job)
    assert "(model.shapes): there are 900 rows, fewer than 1,000" in capsys.readouterr().err
    some = rows.select(["d", "g", "y"])
    some = some.append_column("same", some["g"]).append_column("one", pa.array(["1"] * N))
    plan = streamomd.train(str(write(tmp_path / "same.parquet", some)), **job).plan
    assert plan.pairs == ()
    assert "first 3,000 rows show none that act together" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": [["a", "new"]]}, {"pairs": [["a"]]}, {"pairs": [[1, 2]]}, {"bins": [[0, []]]},
        {"bins": [[0, [1.0, 1.0]]]}, {"bins": [[99, [1.0]]]}, {"bins": [["a", [1.0]]]},
        {"bins": [[0, ["1"]]]}, {"bins": [[0, [float("nan")]]]},
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """By name, as other parts of plans are."""
    shard = write(tmp_path / "0.parquet", table("two"))
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none", "quiet": True}
    plan = streamomd.train(str(shard), **job).plan
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(DataError, match="expected a feature plan"):
        Plan.from_json({**plan.to_json(), **change})


def test_bins_are_named_by_their_numbers() -> None:
    """As short as they differ."""
    assert Bins(0, (30.0, 42.5)).names == ["..30", "30..42.5", "42.5.."]
    assert Bins(0, (1.0, 1.0 + 1e-9)).names == ["..1.0", "1.0..1.000000001", "1.000000001.."]
