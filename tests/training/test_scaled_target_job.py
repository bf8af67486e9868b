"""model.scale_target in a job: commits, resume, predictions, exports, quality, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_diabetes

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.integrations.export import export

SCALED = {"model.scale_target": True}


def shard(path: Path, count: int = 400) -> str:
    draw = np.random.default_rng(5)
    x, job = draw.normal(size=count), draw.choice(["a", "b"], count)
    y = 1000.0 + 30.0 * x + 40.0 * (job == "a") + draw.normal(size=count)
    table = pa.table({"x": x, "job": job, "y": y})
    pq.write_table(table, path / "rows.parquet", row_group_size=100)
    return str(path / "rows.parquet")


def trained(shards: str, url: str, loss: str = "square", **more: Any) -> streamomd.Model:
    given: dict[str, Any] = {"rule": "nag", "quiet": True, "checkpoint": url, "bits": 4}
    sets = SCALED | more.pop("sets", {})
    return streamomd.train(shards, label="y", loss=loss, sets=sets, **given | more)


@pytest.mark.parametrize("rule, loss", [("nag", "square"), ("ftrl_proximal", "huber")])
def test_commits_and_resume(rule: str, loss: str, tmp_path: Path) -> None:
    """A run that is resumed from any commit ends in the same bits, columns standardised too."""
    shards = shard(tmp_path)
    sets = {"data.standardize": "running"}
    whole = trained(shards, "none", loss, rule=rule, epochs=2, sets=sets)
    every = sets | {"checkpoint.every_rows": 37, "checkpoint.keep": 99}
    trained(shards, str(tmp_path / "run"), loss, rule=rule, sets=every)
    again = streamomd.resume(str(tmp_path / "run"), sets={"train.epochs": 2}, quiet=True)
    assert again.state_sha256 == whole.state_sha256
    loaded = streamomd.load(str(tmp_path / "run"))
    assert loaded.state.extra["target"].tobytes() == whole.state.extra["target"].tobytes()
    assert again.result()["loss"] == whole.result()["loss"]
    begun = {"start": str(tmp_path / "run"), "checkpoint": "none", "rule": rule}
    more = trained(shards, "none", loss, **{**begun, "sets": sets})
    assert more.result()["rmse"] < whole.result()["rmse"]
    with pytest.raises(UsageError, match="scale_target: True there, False here"):
        trained(shards, "none", loss, **{**begun, "sets": sets | {"model.scale_target": False}})


def test_everything_is_in_raw_units(tmp_path: Path) -> None:
    """Progressive and held-out loss, predictions, weights, evaluation and exports."""
    shards = shard(tmp_path)
    model = trained(shards, str(tmp_path / "run"), epochs=3, sets={"data.holdout": 5})
    result = model.result()
    rows = pq.read_table(shards).to_pydict()
    y = np.array(rows["y"])
    assert result["loss"] == pytest.approx(0.5 * result["rmse"] ** 2, rel=1e-9)
    assert 1.0 < result["rmse"] < 100.0
    written = model.predict(shards, to=str(tmp_path / "out"))
    shown = pq.read_table(written[0])
    predicted = shown.column("prediction").to_numpy()
    assert abs(predicted.mean() - 1050.0) < 50.0
    assert np.array_equal(shown.column("score").to_numpy(), predicted)
    rmse = float(np.sqrt(np.mean((predicted - y) ** 2)))
    assert model.evaluate(shards)["rmse"] == pytest.approx(rmse, rel=1e-9)
    exported = export(model, "sklearn", str(tmp_path / "model.pickle"))
    assert exported
    export(model, "parquet", str(tmp_path / "w.parquet"))
    table = pq.read_table(tmp_path / "w.parquet")
    assert table.column_names == ["coordinate", "feature", "weight"]
    weights = dict(zip(table["coordinate"].to_pylist(), table["weight"].to_pylist(), strict=True))
    of_job = predicted - (weights[0] + weights[1] * np.array(rows["x"]))
    jobs = np.array(rows["job"])
    assert all(np.ptp(of_job[jobs == job]) < 1e-9 for job in "ab")
    assert abs(of_job[jobs == "a"][0] - of_job[jobs == "b"][0]) > 10.0
    with pytest.raises(UnsupportedError, match="scale_target has no reference"):
        trained(shards, "none", start=str(tmp_path / "w.parquet"))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_it_learns_targets_far_from_0(shift: float, tmp_path: Path) -> None:
    """scikit-learn's diabetes in one pass: RMSE of the remaining rows, 158 and 1143 without."""
    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    X, y = data.data[order], data.target[order] + shift
    columns = {f"x{j}": X[:331, j] for j in range(X.shape[1])}
    pq.write_table(pa.table({**columns, "y": y[:331]}), tmp_path / "rows.parquet")
    found = {}
    for scales in (False, True):
        model = trained(str(tmp_path / "rows.parquet"), "none", sets={"model.scale_target": scales})
        w = model.engine.weights(model.state, 0, 11)[:, 0]
        found[scales] = float(np.sqrt(np.mean((w[0] + X[331:] @ w[1:] - y[331:]) ** 2)))
    assert found[True] < 60.0
    assert found[False] > 150.0


@pytest.mark.parametrize(
    "sets, words",
    [
        ({"model.loss": "poisson"}, "the target of loss 'poisson' has no scale; losses whose"),
        ({"model.loss": "logistic"}, "huber, pinball, square"),
        ({"model.rule": "auto", "model.scale_target": False}, "'auto' always learns the target"),
        ({"model.rule": "da"}, "its weights cannot be set. Rules that can: adagrad, ftrl_proximal"),
        ({"model.rule": "rls"}, "a matrix"),
        ({"model.rule": "adagrad_da", "model.loss": "absolute"}, "a bound on the loss's slope"),
        ({"train.mode": "averaged"}, "not averaged"),
        ({"train.mode": "sharded"}, "not sharded"),
        ({"model.bias": False}, "without a bias"),
        ({"model.task": "classify"}, "the labels are classes"),
        ({"model.rule": "ftrl_proximal", "model.certificate": True}, "fixed targets"),
    ],
)
def test_what_is_refused(sets: dict[str, Any], words: str) -> None:
    """With the reason, and what learns with it."""
    tables: dict[str, dict[str, Any]] = {"model": {"rule": "nag", "loss": "square"}, "train": {}}
    for key, value in (SCALED | sets).items():
        table, name = key.split(".")
        tables[table][name] = value
    with pytest.raises((UsageError, UnsupportedError)) as error:
        Spec.parse(tables)
    assert words in str(error.value)


def test_the_default_is_the_rules_own() -> None:
    """auto scales the target and may be asked to; nag does not; a saved job stays as it is."""
    for rule, given, refers in (
        ("auto", None, False), ("auto", True, False), ("nag", None, False), ("nag", True, True),
        ("nag", False, False),
    ):  # fmt: skip
        tables = {"model": {"rule": rule, "loss": "square", "scale_target": given}}
        spec = Spec.parse(tables)
        assert spec.refers_target is refers
        assert Spec.parse(spec.to_json()) == spec


def test_a_sweep_compares_both(tmp_path: Path) -> None:
    """Each of its models is that of a run alone; what cannot be learned is left out."""
    shards = shard(tmp_path)
    models = streamomd.sweep(
        shards, label="y", loss="square", checkpoint="none", bits=4, quiet=True,
        grid={"rule": ["nag", "da"], "model.scale_target": [True, False]},
    )  # fmt: skip
    assert len(models) == 3
    assert models[0].state_sha256 == trained(shards, "none").state_sha256
    assert models.best is models[0]
