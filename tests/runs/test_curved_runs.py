"""``model.shapes = "columns"``: one map from columns to coordinates from the first row on, in every
way to train, continue, predict and export."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exporting import onnx_scores
from in_memory import assert_same_scores
from running import Impatient, in_parts, run, write
from sweeping import plain

import streamomd
from streamomd import OMDClassifier, OMDRegressor
from streamomd.config.spec import Spec
from streamomd.core.errors import StoppedError, UnsupportedError, UsageError
from streamomd.integrations.export import FORMATS
from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn
from streamomd.rules import all_rules
from streamomd.training.model import Model

N = 300
SOME = {"numeric": ["a", "b"], "hashed": ["h"], "bits": 4}


def table(count: int = N, seed: int = 0) -> pa.Table:
    """A label that is curved in a, a column with gaps, a list and a category."""
    draw = np.random.default_rng(seed)
    a = draw.normal(size=count)
    y = a**2 + 0.3 * draw.normal(size=count) > 1.0
    lists = pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=2 * count)), 2)
    return pa.table({
        "a": a, "b": pa.array(draw.normal(size=count), mask=draw.random(count) < 0.2), "v": lists,
        "h": [f"h{k % 3}" for k in range(count)], "w": draw.integers(1, 4, count) * 1.0,
        "y": y.astype(np.int64),
    })  # fmt: skip


def learn(shards: Any, **more: Any) -> Model:
    """A model with curves of these shards."""
    job = {"label": "y", "weight": "w", "shapes": "columns", "nulls": "indicator", "quiet": True}
    return streamomd.train(str(shards), **{"checkpoint": "none", **job, **SOME, **more})


@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_cuts_and_interruptions_change_no_bit(rule: str, tmp_path: Path) -> None:
    """Shards, row groups, commits and a stop that is resumed leave the state as it is."""
    with plain():
        whole = learn(in_parts(tmp_path / "one", table(), N, N), rule=rule)
        cut = learn(in_parts(tmp_path / "many", table(), 70, 11), rule=rule)
        assert whole.plan.curves == cut.plan.curves != ()
        assert whole.state_sha256 == cut.state_sha256
        url, often = str(tmp_path / "run"), {"checkpoint.every_rows": 40}
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
            patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(100))
            learn(tmp_path / "many", rule=rule, checkpoint=url, sets=often, quiet=False)
        assert streamomd.load(url).plan == cut.plan
        assert streamomd.resume(url, quiet=True).state_sha256 == whole.state_sha256


def test_knots_do_not_depend_on_the_unit_of_weights(tmp_path: Path) -> None:
    """A constant factor changes no knot; weights do."""
    rows = table()
    plans = []
    for k, w in enumerate((rows["w"], pa.array(rows["w"].to_numpy() * 0.37), pa.array(np.ones(N)))):
        place = rows.schema.get_field_index("w")
        shard = write(tmp_path / f"{k}.parquet", rows.set_column(place, "w", w))
        plans.append(learn(shard, rule="nag").plan.curves)
    assert plans[0] == plans[1] != plans[2]


def test_an_update_continues_the_same_map(tmp_path: Path) -> None:
    """With the knots of the first run; a warm start has them, too, also from exported weights."""
    folder, url = tmp_path / "data", str(tmp_path / "run")
    write(folder / "0.parquet", table())
    first = learn(folder, checkpoint=url, rule="nag")
    write(folder / "1.parquet", table(seed=1))
    both = streamomd.update(url, settle=0, quiet=True)
    assert both.plan == first.plan
    assert both.metrics.total_rows == 2 * N
    again = learn(folder / "1.parquet", start=url, rule="nag")
    assert again.plan.curves == first.plan.curves
    weights = tmp_path / "w.parquet"
    with weights.open("wb") as file:
        FORMATS["parquet"].write(first, file)
    assert learn(folder / "0.parquet", start=str(weights), rule="nag").plan == first.plan
    with pytest.raises(UsageError, match=r"its coordinates are not this job's \(curves: "):
        learn(folder / "1.parquet", start=str(weights), rule="nag")


def test_learners_of_a_sweep_share_them(tmp_path: Path) -> None:
    """Each ends with the bits of one trained alone; a grid of shapes is refused."""
    shard = write(tmp_path / "0.parquet", table())
    job = {"label": "y", "weight": "w", "nulls": "indicator", "quiet": True, "checkpoint": "none"}
    given = {**job, **SOME, "shapes": "columns", "rule": "nag"}
    with plain():
        found = streamomd.sweep(str(shard), grid={"eta": [0.1, 1.0]}, **given)
        alone = [learn(shard, rule="nag", eta=eta) for eta in (0.1, 1.0)]
    assert [one.state_sha256 for one in found] == [one.state_sha256 for one in alone]
    with pytest.raises(UsageError, match=r"model.shapes changes how rows are read"):
        streamomd.sweep(str(shard), grid={"shapes": ["none", "columns"]}, **job, **SOME)


def test_a_filter_decides_which_rows_are_the_first(tmp_path: Path) -> None:
    """Rows that ``data.where`` drops choose no knots."""
    shard = write(tmp_path / "0.parquet", table())
    found = learn(shard, rule="nag", where="a > 0").plan.curves
    assert found[0].least > 0.0


def test_the_rows_that_are_read_for_knots_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those that a filter drops, too; of very wide tables none is read."""
    rows = table().sort_by("a")
    shard = write(tmp_path / "0.parquet", rows, row_group_size=30)
    monkeypatch.setattr("streamomd.training.curved_columns.MOST_READ", 100)
    (curve, _) = learn(shard, rule="nag", where="w > 1").plan.curves
    assert curve.most <= rows["a"][119].as_py()
    monkeypatch.setattr("streamomd.training.curved_columns.MOST_NUMBERS", 1)
    assert learn(shard, rule="nag").plan.curves == ()


@pytest.mark.parametrize("rule", all_rules())
def test_every_rule_learns_them(rule: str, tmp_path: Path) -> None:
    """Its loss is finite, and a scorer of it reads rows as ``predict`` does."""
    shard = write(tmp_path / "0.parquet", table(60))
    known = all_rules()[rule].losses.names
    loss = "logistic" if not known or "logistic" in known else known[0]
    with plain():
        model = learn(shard, rule=rule, loss=loss, task="classify", weight="", bits=3)
        assert model.plan.curves
        assert_same_scores(model, table(20).drop_columns(["w", "v"]))


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_scorers_and_explanations_are_those_of_predict(
    nulls: str, rule: str, tmp_path: Path
) -> None:
    """To the bit; an explanation has one contribution a column, which sum to the score."""
    shard = write(tmp_path / "0.parquet", table(100))
    with plain():
        more = {"numeric": ["a", "b"], "vectors": ["v"]}
        for model in (
            learn(shard, rule=rule, nulls=nulls),
            learn(shard, rule=rule, nulls=nulls, **more, hashed=[]),
        ):
            assert_same_scores(model, table(20, seed=2).drop_columns(["w"]))
            row = table(1).to_pylist()[0]
            names = [name for name, _, _ in model.scorer().explain(row).contributions]
            assert len(names) == len({*names})
            assert not any(".." in name for name in names)
            saved = tmp_path / "scorer"
            model.scorer().save(saved)
            assert streamomd.Scorer.load(saved).score(row) == model.scorer().score(row)


def test_inspect_and_plan_name_them(tmp_path: Path) -> None:
    """Each hat by the knots around it."""
    shard = write(tmp_path / "0.parquet", table())
    url = tmp_path / "run"
    learn(shard, checkpoint=str(url))
    assert "a[.." in run("inspect", url, "--top", 40).out
    words = ["--label", "y", "--shapes", "columns", "--ignore", "v,w", "--nulls", "indicator"]
    planned = run("plan", shard, *words).out
    assert "curved, 16 coordinates more (2): a, b" in planned
    assert re.search(r"^a\s+double\s+curve\s+8\s*$", planned, re.M)


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
def test_onnx_has_them(nulls: str, tmp_path: Path) -> None:
    """The graph's scores are those of ``predict``, with missing numbers and beyond the knots."""
    shard = write(tmp_path / "0.parquet", table(100))
    with plain():
        model = learn(shard, nulls=nulls, vectors=["v"])
    rows = table(50, seed=3)
    rows = rows.set_column(0, "a", [pa.array(rows["a"].to_numpy() * 3.0)])
    found = onnx_scores(model, rows)
    np.testing.assert_allclose(found, model.decision_function(rows), rtol=1e-9, atol=1e-9)


def test_scikit_learn_has_them_and_vw_is_refused(tmp_path: Path) -> None:
    """The matrix of rows has the hats."""
    shard = write(tmp_path / "0.parquet", table())
    model = learn(shard, rule="nag", hashed=[], numeric=["a"])
    fitted = to_sklearn(model)
    assert not hasattr(fitted, "feature_names_in_")
    found = fitted.decision_function(matrix_of(model, table()))
    np.testing.assert_allclose(found, model.decision_function(table()), rtol=1e-9, atol=1e-9)
    with pytest.raises(UnsupportedError, match=r"VW has no curves of numbers \(model.shapes\)"):
        FORMATS["vw"].write(model, io.BytesIO())


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_estimators_are_bit_identical_to_train(kind: str, tmp_path: Path) -> None:
    """Of a frame and of an array, without a shuffle; curves are of the first rows."""
    rows = table().select(["a", "y"])
    shard = write(tmp_path / "0.parquet", rows)
    given = {"shapes": "columns", "shuffle": False, "early_stopping": False}
    X = rows.select(["a"]) if kind == "frame" else np.array(rows["a"]).reshape(-1, 1)
    y = rows["y"].to_numpy()
    with plain():
        model = streamomd.train(
            str(shard), label="y", shapes="columns", checkpoint="none", quiet=True
        )
        fitted = OMDClassifier(**given).fit(X, y)
        part = OMDClassifier(shapes="columns").partial_fit(X, y, classes=[0, 1])
    expected = model.decision_function(rows)
    assert fitted.decision_function(X).tobytes() == expected.tobytes()
    assert part.decision_function(X).tobytes() == expected.tobytes()
    made = OMDClassifier.from_model(model)
    assert made.shapes == "columns"
    assert made.n_features_in_ == 1
    assert fitted.score(X, y) > 0.8
    with pytest.raises(UsageError, match="shapes was 'columns' and is 'none' now"):
        part.set_params(shapes="none").partial_fit(X, y)


def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    """Sharded mode, sparse matrices, Dask collections, other words."""
    shard = write(tmp_path / "0.parquet", table())
    with pytest.raises(UnsupportedError, match="sharded mode learns no curves; use mode averaged"):
        learn(shard, mode="sharded", rule="nag")
    with pytest.raises(UsageError, match=r"model.shapes = 'curves'"):
        Spec.parse({"model": {"shapes": "curves"}})
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(UsageError, match="X is a sparse matrix: pass a frame or an array"):
        OMDRegressor(shapes="columns").fit(sparse.csr_matrix(np.eye(4)), np.arange(4.0))
    frame = pytest.importorskip("dask.dataframe").from_pandas(table().to_pandas(), npartitions=2)
    with pytest.raises(UnsupportedError, match="a Dask collection is read once; write it as Par"):
        streamomd.train(None, shards=frame, label="y", shapes="columns", ignore=["v"], quiet=True)


def test_a_line_says_that_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no number has three values."""
    shard = write(tmp_path / "0.parquet", {"a": [0.0, 1.0] * 9, "y": [0, 1, 1] * 6})
    job = {"label": "y", "shapes": "columns", "checkpoint": "none", "rule": "nag"}
    assert streamomd.train(str(shard), **job).plan.curves == ()
    assert "no column is curved (model.shapes): of 1 number none has 3" in capsys.readouterr().err


@pytest.mark.parametrize("hashed", [[], ["h"]])
def test_a_line_says_that_rows_leave_the_range_of_the_first(
    hashed: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where more than 5 % of the values do: rows that begin with one kind."""
    monkeypatch.setattr("streamomd.training.curved_columns.ROWS", 100)
    rows = table(200)
    mixed = write(tmp_path / "mixed.parquet", rows)
    given = {"rule": "nag", "numeric": ["a"], "hashed": hashed, "quiet": False}
    learn(mixed, **given)
    assert "below or above" not in capsys.readouterr().err
    learn(write(tmp_path / "sorted.parquet", rows.sort_by("a")), **given)
    assert "which decided the knots, in a (50%); there the effect is" in capsys.readouterr().err
