"""Which numbers get curves: those whose effect is no line, by the labels of the first rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
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
from streamomd import OMDClassifier
from streamomd.core.errors import DivergedError
from streamomd.core.scalars import Curve
from streamomd.features.curves import BUDGET, MOST, best_curves
from streamomd.shards.encoded_rows import encode_rows
from streamomd.sources.find import find
from streamomd.training.curved_columns import FEWEST_ROWS, _score, first_pieces, rows_of

N = 3_000


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_scores_are_those_of_the_oracle(seed: int, learners: int) -> None:
    """Of each learner by least squares; a missing number counts as the mean, and has no hats."""
    draw = np.random.default_rng(seed)
    knots = np.array([-1.0, 0.0, 2.0])
    x = draw.normal(size=60) * 2.0
    hats = np.array([oracle.hats(value, knots) for value in x])
    gone = draw.random(60) < 0.2
    hats[gone] = 0.0
    slopes = draw.normal(size=(60, learners))
    X, k = _score(slopes, np.where(gone, np.nan, x), hats)
    filled = np.where(gone, x[~gone].mean(), x)
    found = [oracle.score(column, filled, hats) for column in slopes.T]
    assert pytest.approx(sum(one for one, _ in found), rel=1e-6) == X
    assert k == sum(rank for _, rank in found)
    doubled = _score(3.7 * slopes, np.where(gone, np.nan, x), hats)
    assert doubled == (pytest.approx(X, rel=1e-9), k)


def table(label: str, count: int = N, columns: int = 0) -> pa.Table:
    """The label is curved in c, linear in a, by category h; b says nothing. More columns say
    nothing either."""
    draw = np.random.default_rng(count)
    a, b, c = draw.normal(size=(3, count))
    h = draw.integers(0, 3, count)
    score = a + 2.0 * np.abs(c) + h
    y: Any = score + 0.3 * draw.normal(size=count)
    if label != "number":
        y = np.digitize(y, np.quantile(y, [0.5] if label == "two" else [0.3, 0.6]))
    more = {f"x{k}": draw.normal(size=count) for k in range(columns)}
    return pa.table({**more, "a": a, "b": b, "c": c, "h": [f"h{k}" for k in h], "y": y})


@pytest.mark.parametrize("shapes", ["columns", "all"])
def test_a_model_without_a_bias(shapes: str, tmp_path: Path) -> None:
    """The rule that decides has one."""
    shard = write(tmp_path / "0.parquet", table("number"))
    job = {"shapes": shapes, "checkpoint": "none", "quiet": True, "label": "y"}
    model = streamomd.train(str(shard), **job, sets={"model.bias": False})
    assert not model.plan.bias
    assert model.plan.curves == streamomd.train(str(shard), **job).plan.curves


def curved(source: Path, **more: Any) -> list[str]:
    """The columns with curves."""
    job = {"label": "y", "shapes": "columns", "checkpoint": "none", "quiet": True}
    plan = streamomd.train(str(source), **job, **more).plan
    return [plan.numeric[curve.place] for curve in plan.curves]


@pytest.mark.parametrize("rule", ["auto", "nag"])
@pytest.mark.parametrize("label", ["number", "two", "three"])
def test_numbers_whose_effect_is_no_line_are_curved(label: str, rule: str, tmp_path: Path) -> None:
    """By every kind of label, whatever rule learns them."""
    shard = write(tmp_path / "0.parquet", table(label))
    found = curved(shard, rule=rule)
    assert "c" in found
    assert "b" not in found
    assert label != "number" or found == ["c"]


@pytest.mark.parametrize(
    "sets",
    [
        {"data.standardize": "running"},
        {"model.dtype": "float32"},
        {"model.rule": "ons"},
        {"model.rule": "nag_projected", "model.certificate": True},
    ],
)
def test_whatever_the_job_says_the_default_rule_decides(
    sets: dict[str, Any], tmp_path: Path
) -> None:
    """Not with the job's standardization, parameters or certificate."""
    shard = write(tmp_path / "0.parquet", table("number"))
    assert curved(shard, sets={"model.rule": "nag", "data.bits": 4} | sets) == ["c"]


@pytest.mark.parametrize("loss", ["huber", "pinball", "hinge", "squared_hinge"])
def test_every_kind_of_loss_tells(loss: str, tmp_path: Path) -> None:
    """Losses without curvature, too."""
    label = "number" if loss in ("huber", "pinball") else "two"
    assert curved(write(tmp_path / "0.parquet", table(label)), loss=loss) == ["c"]


def test_of_many_numbers_the_best_are_curved(tmp_path: Path) -> None:
    """However many there are."""
    shard = write(tmp_path / "0.parquet", table("number", columns=300))
    assert curved(shard, rule="nag") == ["c"]


def test_the_best_candidates_share_the_budget() -> None:
    """Those worth nothing have none; the order of columns stays."""
    every = [Curve(k, 0.0, 9.0, tuple(map(float, range(MOST)))) for k in range(40)]
    worth = [float(k % 7) for k in range(40)]
    found = best_curves(every, worth, len(every))
    assert len(found) == BUDGET // MOST
    assert [curve.place for curve in found] == sorted(curve.place for curve in found)
    assert {worth[curve.place] for curve in found} == {2.0, 3.0, 4.0, 5.0, 6.0}
    assert best_curves(every, [0.0] * 40, 40) == ()


def test_a_line_says_that_all_effects_are_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the model is the one without shapes, to the bit."""
    shard = write(tmp_path / "0.parquet", table("two").drop_columns(["c"]))
    job = {"label": "y", "checkpoint": "none"}
    with_shapes = streamomd.train(str(shard), shapes="columns", **job)
    assert "curved (model.shapes): the first 3,000 rows show no effect" in capsys.readouterr().err
    assert with_shapes.state_sha256 == streamomd.train(str(shard), **job).state_sha256


def test_curves_that_add_to_the_loss_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every candidate is taken, of rows that a line explains."""
    monkeypatch.setattr("streamomd.training.curved_columns.CREDIBLE", -1e9)
    shard = write(tmp_path / "0.parquet", table("two", columns=20).drop_columns(["c"]))
    assert streamomd.train(
        str(shard), label="y", shapes="columns", checkpoint="none"
    ).plan.curves == ()  # fmt: skip
    assert "to the loss of the first 3,000 rows" in capsys.readouterr().err


def test_cuts_and_the_unit_of_weights_choose_the_same(tmp_path: Path) -> None:
    """Shards, row groups, bad rows that are skipped, and weights times a constant."""
    rows = table("three").append_column("w", pa.array(np.arange(N) % 5 * 0.7))
    given = {"rule": "nag", "on_bad_row": "skip", "weight": "w", "shapes": "columns"}
    given |= {"label": "y", "checkpoint": "none", "quiet": True}
    bad = rows.slice(0, 1).set_column(0, "a", pa.array([None], pa.float64()))
    found = []
    for kind in ("whole", "cut", "bad", "unit"):
        some = rows
        if kind == "bad":
            some = pa.concat_tables([rows.slice(0, 50), bad, rows.slice(50)])
        elif kind == "unit":
            some = rows.set_column(5, "w", pa.array(rows["w"].to_numpy() * 8.0))
        size = 700 if kind == "cut" else N + 1
        for k, low in enumerate(range(0, len(some), size)):
            shard = tmp_path / kind / f"{k}.parquet"
            write(shard, some.slice(low, size), row_group_size=91 if kind == "cut" else N)
        found.append(streamomd.train(str(tmp_path / kind), **given).plan.curves)
    assert found[0] == found[1] == found[2] == found[3] != ()


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_estimators_choose_as_train_does(kind: str, tmp_path: Path) -> None:
    """Of the same rows."""
    rows = table("two").select(["a", "b", "c", "y"])
    model = streamomd.train(
        str(write(tmp_path / "0.parquet", rows)), label="y", shapes="columns", checkpoint="none",
        quiet=True,
    )  # fmt: skip
    X = rows.drop_columns(["y"])
    X = X if kind == "frame" else np.column_stack([X[name] for name in "abc"])
    fitted = OMDClassifier(shapes="columns", shuffle=False, early_stopping=False)
    found = fitted.fit(X, rows["y"].to_numpy())
    assert found.decision_function(X).tobytes() == model.decision_function(rows).tobytes()
    assert 2 in [curve.place for curve in model.plan.curves]


def test_few_rows_curve_every_number(tmp_path: Path) -> None:
    """They cannot tell which."""
    shard = write(tmp_path / "0.parquet", table("two", FEWEST_ROWS - 1))
    assert curved(shard, rule="nag") == ["a", "b", "c"]


def test_rows_that_are_all_skipped_choose_nothing(tmp_path: Path) -> None:
    """A shard that begins with a piece of bad rows chooses as the rest does."""
    shard, good = tmp_path / "both", table("number")
    bad = good.set_column(good.num_columns - 1, "y", pa.array(np.full(N, np.nan)))
    write(shard / "0.parquet", bad)
    write(shard / "1.parquet", good)
    alone = write(tmp_path / "1.parquet", good)
    assert curved(shard, on_bad_row="skip") == curved(alone)


@pytest.mark.parametrize("more", [{}, {"shapes": "columns"}, {"epochs": 2}])
def test_a_run_of_some_seconds_says_that_curves_would_help(
    more: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its end, unless it has them."""
    shard = write(tmp_path / "0.parquet", table("two"))
    job = {"label": "y", "checkpoint": "none", **more}
    line = "curved columns: --shapes columns lowers the loss of rows 1,501 to 3,000 by "
    streamomd.train(str(shard), **job)
    assert line not in capsys.readouterr().err
    monkeypatch.setattr("streamomd.runs.modes.WORTH_ADVICE", 0.0)
    streamomd.train(str(shard), **job)
    assert (line in capsys.readouterr().err) == ("shapes" not in more)


@pytest.mark.parametrize("few", ["where", "skip"])
def test_batches_without_a_row_that_is_learned_say_nothing(few: str, tmp_path: Path) -> None:
    """A filter, or bad rows, may drop all rows of the first batches."""
    rows = table("two", 4_000)
    a = rows["a"].to_numpy().copy()
    a[:2_000] = np.nan
    day = np.where(np.arange(4_000) < 2_000, np.arange(4_000) % 2 * 2, 1)
    rows = rows.set_column(0, "a", pa.array(a)).append_column("day", pa.array(day))
    write(tmp_path / "0.parquet", rows.slice(0, 2_000))
    write(tmp_path / "1.parquet", rows.slice(2_000))
    more = {"where": "day == 1"} if few == "where" else {"on_bad_row": "skip"}
    assert curved(tmp_path, ignore=["day"], **more) == ["c"]


@pytest.mark.parametrize("unit", [1e-310, 1e-165, 1e-158, 1e-150, 1e150, 1e153, 1e300])
def test_labels_of_any_size_end_no_run_with_another_error(unit: float, tmp_path: Path) -> None:
    """Their squares may be 0 or infinite: then the run diverges, or no number is curved."""
    rows = table("number")
    y = pa.array(rows["y"].to_numpy() * unit)
    shard = write(tmp_path / "0.parquet", rows.set_column(4, "y", y))
    with suppress(DivergedError):
        curved(shard, task="regress")


def test_first_rows_are_encoded_by_any_plan(tmp_path: Path) -> None:
    """Categories follow the hats of each plan, also where a row group shares a dictionary."""
    shard = write(tmp_path / "0.parquet", table("number"))
    plan = streamomd.train(str(shard), label="y", checkpoint="none", quiet=True).plan
    trial = replace(plan, curves=(Curve(2, -1.0, 1.0, (-1.0, 0.0, 1.0)),))
    shards = find(str(write(tmp_path / "1.parquet", table("number", 60_000))))
    pieces = [*first_pieces(plan, shards)]
    assert pieces[0].hashed is not None
    (found,) = rows_of(plan, pieces[:1]).encode(trial)
    fresh = encode_rows(trial, next(first_pieces(trial, shards))).value.batch
    assert found.indices.tolist() == fresh.indices.tolist()
