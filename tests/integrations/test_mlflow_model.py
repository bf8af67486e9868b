"""MLflow models: what was logged predicts as the model, from one file without pickle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from later_imports import later
from running import everything, shards, train

import streamomd
import streamomd.integrations.mlflow as streamomd_mlflow
from streamomd.core.errors import InputNotFoundError, OutputExistsError

mlflow = later("mlflow", "needs streamomd[mlflow]")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, and a tracking store of files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    shards(tmp_path / "data")
    train(tmp_path / "data", *everything(), "--checkpoint", tmp_path / "run")
    return tmp_path


def frame_of(folder: Path) -> Any:
    """The features of a shard."""
    return pq.read_table(folder / "data" / "a.parquet").drop_columns(["y", "w", "c"]).to_pandas()


def test_a_logged_model_predicts_as_the_model(run_folder: Path) -> None:
    """By pyfunc as a frame, by load_model as a Scorer; with signature and description."""
    model = streamomd.load(str(run_folder / "run"))
    with mlflow.start_run():
        info = streamomd_mlflow.log_model(model, name="bank", metadata={"team": "x"})
    frame = frame_of(run_folder)
    found = mlflow.pyfunc.load_model(info.model_uri).predict(frame)
    assert list(found.columns) == ["prediction", "score", "probability"]
    rows = frame.to_dict("records")
    assert found["prediction"].tolist() == model.predict(rows).tolist()
    assert found["score"].tolist() == model.decision_function(rows).tolist()
    likely = model.predict_proba(rows)[:, 1]
    np.testing.assert_array_max_ulp(found["probability"].to_numpy(), likely, maxulp=1)
    scorer = streamomd_mlflow.load_model(info.model_uri)
    assert [scorer.score(row) for row in rows] == found["score"].tolist()
    kinds = {one["name"]: one["type"] for one in info.signature.inputs.to_dict()}
    assert kinds == {"n": "double", "k": "long", "h": "string", "i": "array", "v": "array"}
    assert info.metadata["team"] == "x"
    assert info.metadata["streamomd.commit"] == model.sequence
    assert info.metadata["streamomd.dataset_sha256"] == streamomd_mlflow.dataset_fingerprint(model)


def test_the_files_of_a_saved_model(run_folder: Path) -> None:
    """No pickle, no place of the run, and an empty directory is needed."""
    model = streamomd.load(str(run_folder / "run"))
    streamomd_mlflow.save_model(model, str(run_folder / "saved"))
    names = {file.name for file in (run_folder / "saved").iterdir()}
    assert names == {"MLmodel", "python_env.yaml", "requirements.txt", streamomd_mlflow.SCORER}
    for name in names - {streamomd_mlflow.SCORER}:
        assert str(run_folder) not in (run_folder / "saved" / name).read_text()
    with pytest.raises(OutputExistsError, match="not empty"):
        streamomd_mlflow.save_model(model, str(run_folder / "saved"))
    again = mlflow.pyfunc.load_model(str(run_folder / "saved"))
    frame = frame_of(run_folder)
    assert (
        again.predict(frame)["score"].tolist()
        == model.decision_function(frame.to_dict("records")).tolist()
    )
    frame.index = pd.Index(range(100, 100 + len(frame)))
    assert again.predict(frame).index[0] == 100


def test_the_fingerprint_is_of_the_rows(run_folder: Path) -> None:
    """Equal files elsewhere have the same; other rows another."""
    made = {}
    for name in ("same", "other"):
        shards(run_folder / name)
        if name == "other":
            (run_folder / name / "c.parquet").unlink()
        train(run_folder / name, *everything(), "--checkpoint", run_folder / f"run-{name}")
        made[name] = streamomd_mlflow.dataset_fingerprint(
            streamomd.load(str(run_folder / f"run-{name}"))
        )
    first = streamomd_mlflow.dataset_fingerprint(streamomd.load(str(run_folder / "run")))
    assert first == made["same"] != made["other"]
    assert len(first) == 64


def test_regression_and_several_classes(run_folder: Path) -> None:
    """The signature has numbers for a regression, and lists for several classes."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=60)
    for loss, y in (("softmax", np.digitize(x, [-0.5, 0.5])), ("square", 2.5 * x)):
        frame = pd.DataFrame({"x": x, "y": y})
        frame.to_parquet(run_folder / f"{loss}.parquet")
        train(run_folder / f"{loss}.parquet", "--label", "y", "--rule", "nag", "--loss", loss,
              "--checkpoint", run_folder / loss)  # fmt: skip
        model = streamomd.load(str(run_folder / loss))
        streamomd_mlflow.save_model(model, str(run_folder / f"saved-{loss}"))
        again = mlflow.pyfunc.load_model(str(run_folder / f"saved-{loss}"))
        found = again.predict(frame[["x"]])
        kinds = {one["name"]: one["type"] for one in again.metadata.signature.outputs.to_dict()}
        if loss == "softmax":
            assert kinds == {"prediction": "long", "score": "array", "probability": "array"}
            assert len(found["probability"][0]) == 3
        else:
            assert kinds == {"prediction": "double", "score": "double"}
            assert list(found.columns) == ["prediction", "score"]


def test_a_model_of_another_flavor_is_refused(run_folder: Path) -> None:
    """By name."""
    mlflow.models.Model().save(str(run_folder / "MLmodel"))
    with pytest.raises(InputNotFoundError, match="not one of streamomd"):
        streamomd_mlflow.load_model(str(run_folder))


def test_importing_the_module_does_not_import_mlflow() -> None:
    """It is slow to import."""
    code = "import sys, streamomd.integrations.mlflow; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
