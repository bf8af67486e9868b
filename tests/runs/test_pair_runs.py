"""``model.shapes = "pairs"``: one map from columns to coordinates from the first row on, in every
way to train, continue, predict and export."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exporting import onnx_scores
from in_memory import assert_same_scores
from running import Impatient, in_parts, run, write

import streamomd
from streamomd import OMDClassifier
from streamomd.core.errors import StoppedError, UnsupportedError, UsageError
from streamomd.integrations.export import FORMATS
from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn
from streamomd.training.model import Model

N = 1_200


def table(count: int = N, seed: int = 0) -> pa.Table:
    """A label that depends on a times b, on c and h together; numbers, a list and a category with
    gaps, dates."""
    draw = np.random.default_rng(seed)
    a, b, c = draw.normal(size=(3, count))
    h = draw.integers(0, 3, count)
    y = 2.0 * a * b + np.where(h == 0, 2.0, -1.0) * c + 0.5 * draw.normal(size=count) > 0.0
    lists = [None if k % 17 == 0 else [x, -x] for k, x in enumerate(a.tolist())]
    return pa.table({
        "a": a, "b": pa.array(b, mask=draw.random(count) < 0.1), "c": c.astype(np.float32),
        "h": [None if k % 19 == 0 else f"h{j}" for k, j in enumerate(h)], "v": lists,
        "d": pa.array(np.arange(count) * 37 % 1000, pa.int32()).cast(pa.date32()),
        "w": draw.integers(1, 4, count) * 1.0, "y": y.astype(np.int64),
    })  # fmt: skip


SOME = {"numeric": ["a", "b", "c"], "hashed": ["h"], "bits": 8}


def learn(shards: Any, **more: Any) -> Model:
    """A model with pairs of these shards."""
    job = {"label": "y", "weight": "w", "shapes": "pairs", "nulls": "indicator", "quiet": True}
    return streamomd.train(str(shards), **{"checkpoint": "none", **job, **SOME, **more})


@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_cuts_and_interruptions_change_no_bit(rule: str, tmp_path: Path) -> None:
    """Shards, row groups, commits and a stop that is resumed leave the state as it is."""
    folder = in_parts(tmp_path / "many", table(), 350, 90)
    whole = learn(write(tmp_path / "one.parquet", table()), rule=rule)
    cut = learn(folder, rule=rule)
    assert {("a", "b"), ("c", "h")} <= {*whole.plan.pairs}
    assert whole.plan == cut.plan
    assert whole.state_sha256 == cut.state_sha256
    url, often = str(tmp_path / "run"), {"checkpoint.every_rows": 200}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(700))
        learn(folder, rule=rule, checkpoint=url, sets=often, quiet=False)
    assert streamomd.load(url).plan == cut.plan
    assert streamomd.resume(url, quiet=True).state_sha256 == whole.state_sha256


def test_an_update_continues_the_same_map(tmp_path: Path) -> None:
    """With the pairs of the first run; a warm start has them, too."""
    folder, url = tmp_path / "data", str(tmp_path / "run")
    write(folder / "0.parquet", table())
    first = learn(folder, checkpoint=url, rule="nag")
    write(folder / "1.parquet", table(seed=1))
    both = streamomd.update(url, settle=0, quiet=True)
    assert both.plan == first.plan
    assert both.metrics.total_rows == 2 * N
    again = learn(folder / "1.parquet", start=url, rule="nag")
    assert (again.plan.bins, again.plan.pairs) == (first.plan.bins, first.plan.pairs)
    few = write(tmp_path / "few.parquet", table(9))
    again = learn(few, start=url, rule="nag")
    assert (again.plan.bins, again.plan.pairs) == (first.plan.bins, first.plan.pairs)
    with pytest.raises(UsageError, match=r"cannot start from .*; pairs: \(.*\) there, None here"):
        learn(few, start=url, rule="nag", shapes="columns")


def test_learners_of_a_sweep_share_them(tmp_path: Path) -> None:
    """Each ends with the bits of one trained alone."""
    shard = write(tmp_path / "0.parquet", table())
    job = {"label": "y", "weight": "w", "nulls": "indicator", "quiet": True, "checkpoint": "none"}
    found = streamomd.sweep(
        str(shard), grid={"eta": [0.1, 1.0]}, **job, **SOME, shapes="pairs", rule="nag"
    )
    alone = [learn(shard, rule="nag", eta=eta) for eta in (0.1, 1.0)]
    assert [one.state_sha256 for one in found] == [one.state_sha256 for one in alone]


@pytest.mark.parametrize("nulls", ["zero", "mean", "indicator"])
@pytest.mark.parametrize("rule", ["auto", "nag"])
def test_scorers_and_explanations_are_those_of_predict(
    nulls: str, rule: str, tmp_path: Path
) -> None:
    """To the bit, of columns, elements of lists, parts of dates; a pair is named by its values."""
    shard = write(tmp_path / "0.parquet", table())
    more = {"vectors": ["v"], "dates": ["d"]}
    for model in (learn(shard, rule=rule, nulls=nulls), learn(shard, rule=rule, **more)):
        assert model.plan.pairs
        assert_same_scores(model, table(40, seed=2).drop_columns(["w"]))
        row = table(2).to_pylist()[1]
        names = [name for name, _, _ in model.scorer().explain(row).contributions]
        assert any(name.startswith("a^b=") and name.count("..") == 2 for name in names)
        model.scorer().save(tmp_path / "scorer")
        loaded = streamomd.Scorer.load(tmp_path / "scorer")
        assert loaded.score(row) == model.scorer().score(row)


def test_inspect_and_plan_name_them(tmp_path: Path) -> None:
    """By both columns, and the values of both."""
    shard, url = write(tmp_path / "0.parquet", table()), tmp_path / "run"
    learn(shard, checkpoint=str(url))
    assert "a^b=.." in run("inspect", url, "--top", 400).out
    found = json.loads(run("inspect", url, "--json").out)["pairs"]
    assert {tuple(one["columns"]) for one in found} >= {("a", "b"), ("c", "h")}
    assert re.search(r"^a × b +\.\.", run("inspect", url).out, re.MULTILINE)
    words = ["--label", "y", "--shapes", "pairs", "--ignore", "v,w,d", "--nulls", "indicator"]
    assert "pairs of columns, hashed (" in run("plan", shard, *words).out


def test_exports_have_them_or_name_what_has(tmp_path: Path) -> None:
    """The matrix of rows for scikit-learn has their coordinates."""
    model = learn(write(tmp_path / "0.parquet", table()), rule="nag")
    found = to_sklearn(model).decision_function(matrix_of(model, table()))
    np.testing.assert_allclose(found, model.decision_function(table()), rtol=1e-9, atol=1e-9)
    with pytest.raises(UnsupportedError, match=r"VW has no .*\(model.shapes\)"):
        FORMATS["vw"].write(model, io.BytesIO())


@pytest.mark.parametrize(("nulls", "rule"), [("zero", "nag"), ("mean", "auto")])
def test_onnx_has_them(nulls: str, rule: str, tmp_path: Path) -> None:
    """The graph's scores are those of ``predict``, with missing numbers and beyond the bins."""
    rows = table()
    rows = rows.set_column(3, "h", rows["h"].fill_null("none"))
    model = learn(write(tmp_path / "0.parquet", rows), rule=rule, nulls=nulls)
    assert {("a", "b"), ("c", "h")} <= {*model.plan.pairs}
    rows = rows.set_column(0, "a", pa.array(rows["a"].to_numpy() * 3.0))
    rows = rows.set_column(3, "h", pa.array([f"h{k % 5}" for k in range(N)]))
    found = onnx_scores(model, rows)
    np.testing.assert_allclose(found, model.decision_function(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["frame", "array"])
@pytest.mark.parametrize("nulls", ["zero", "mean"])
def test_estimators_are_bit_identical_to_train(kind: str, nulls: str, tmp_path: Path) -> None:
    """Of a frame and of an array, without a shuffle."""
    rows = table().select(["a", "b", "y"])
    shard = write(tmp_path / "0.parquet", rows)
    given = {"shapes": "pairs", "nulls": nulls}
    X: Any = rows.select(["a", "b"])
    if kind == "array":
        X = np.column_stack([X[name].to_numpy() for name in X.column_names])
    y = rows["y"].to_numpy()
    model = streamomd.train(str(shard), label="y", checkpoint="none", quiet=True, **given)
    fitted = OMDClassifier(**given, shuffle=False, early_stopping=False).fit(X, y)
    part = OMDClassifier(**given).partial_fit(X, y, classes=[0, 1])
    assert model.plan.pairs == (("a", "b"),)
    expected = model.decision_function(rows)
    assert fitted.decision_function(X).tobytes() == expected.tobytes()
    assert part.decision_function(X).tobytes() == expected.tobytes()


def test_parts_of_averaged_mode_share_them(tmp_path: Path) -> None:
    """The common first part decides."""
    shard = write(tmp_path / "0.parquet", table())
    url = str(tmp_path / "run")
    averaged = learn(shard, mode="averaged", rule="nag", checkpoint=url, sets={"train.parts": 2})
    assert averaged.plan == learn(shard, rule="nag").plan


def test_sharded_mode_refuses(tmp_path: Path) -> None:
    """By name."""
    shard = write(tmp_path / "0.parquet", table())
    with pytest.raises(UnsupportedError, match=r"model.shapes = 'pairs': sharded mode"):
        learn(shard, mode="sharded", rule="nag")
