"""Exports of learners on standardised inputs: one linear model in raw units, in every format."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from estimating import uncompiled
from exporting import answers, batch_of, fed, table
from running import run, write

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.engine import state as states
from streamomd.features import encode, make_plan
from streamomd.integrations.export import FORMATS, export, matrix_of, scorer_reader
from streamomd.integrations.export.contract import pieces, weights_of
from streamomd.training.model import Model

DATA = {"shards": "none", "label": "y", "bits": 12, "numeric": ["n", "f", "t"], "vectors": ["e"]}
HASHED = ["h", "k"]
TASKS = {
    "two": {"loss": "logistic"},
    "three": {"loss": "logistic"},
    "three together": {"loss": "softmax"},
    "numbers": {"loss": "square"},
    "two, first order": {"loss": "hinge"},
    "numbers, few in the block": {"loss": "square", "rule": "auto", "params": {"block": 9}},
}


def learned(task: str) -> tuple[Model, pa.Table]:
    """A model that learned the rows in plain Python, and the rows. A column is far from 0."""
    rows = table(40, labels=task.split(",")[0].split()[0])
    rows = rows.set_column(1, "n", pa.array(rows["n"].to_numpy() + 1e5))
    spec = Spec.parse({"data": {**DATA, "hashed": HASHED}, "model": TASKS[task]})
    labels = sorted(set(rows["y"].to_pylist()))
    model = Model.new(spec, make_plan(spec.data, spec.model, rows.schema, lambda: labels))
    model.engine = replace(model.engine, compiled=False)
    whole = rows.combine_chunks().to_batches()[0]
    batch = encode(model.plan, whole, shard="here", row=0, names=model.names)
    model.learn(batch)
    assert model.spec.model.rule == "auto"
    return model, rows


def margins_of(model: Model, rows: pa.Table, weights: np.ndarray) -> np.ndarray:
    """(rows, learners) of weights (learners, coordinates), the bias first."""
    batch = batch_of(model, rows)
    found = np.tile(weights[:, 0], (len(batch), 1))
    for i in range(len(batch)):
        some = slice(batch.indptr[i], batch.indptr[i + 1])
        found[i] += weights[:, batch.indices[some] + 1] @ batch.values[some]
    return found


def of_parquet(model: Model, rows: pa.Table, file: bytes) -> np.ndarray:
    found = pq.read_table(io.BytesIO(file))
    columns = [name for name in found.column_names if name.startswith("weight")]
    weights = np.zeros((len(columns), model.plan.size))
    weights[:, found["coordinate"].to_numpy()] = [found[name].to_numpy() for name in columns]
    return margins_of(model, rows, weights)


def of_onnx(model: Model, rows: pa.Table, file: bytes) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (score,) = session.run(["score"], fed(session, rows))
    if model.engine.loss.probabilistic:
        (found,) = session.run(["probabilities"], fed(session, rows))
        found = found[:, 1] if model.engine.layout.learners == 1 else found
        np.testing.assert_allclose(found, answers(model, rows)["probability"], rtol=1e-9)
    return score.reshape(len(rows), -1)


def of_sklearn(model: Model, rows: pa.Table, file: bytes) -> np.ndarray:
    skops = pytest.importorskip("skops.io", reason="needs skops")
    fitted, X = skops.loads(file), matrix_of(model, rows)
    values = fitted.decision_function(X) if model.plan.classes else fitted.predict(X)
    return values.reshape(len(rows), -1)


def of_vw(model: Model, rows: pa.Table, file: bytes) -> np.ndarray:
    from test_export_vw import margin, read

    bits, weights, _ = read(file.decode())
    return np.array([[margin(row, weights, bits)] for row in rows.to_pylist()])


def of_scorer(model: Model, rows: pa.Table, file: bytes) -> np.ndarray:
    predict = scorer_reader.load(io.BytesIO(file))
    return np.array([np.atleast_1d(predict(row)["score"]) for row in rows.to_pylist()])


READERS: dict[str, Callable[[Model, pa.Table, bytes], np.ndarray]] = {
    "parquet": of_parquet,
    "onnx": of_onnx,
    "sklearn": of_sklearn,
    "vw": of_vw,
    "scorer": of_scorer,
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.sample(6)
def test_every_format_has_our_margins(form: str, task: str) -> None:
    """Of numbers far from 0 and hashed values, in the block and outside."""
    if form == "vw" and task.startswith("three"):
        pytest.skip("VW's text holds one learner")
    model, rows = learned(task)
    file = io.BytesIO()
    FORMATS[form].write(model, file)
    ours = np.asarray(answers(model, rows)["score"]).reshape(len(rows), -1)
    found = READERS[form](model, rows, file.getvalue())
    np.testing.assert_allclose(found, ours, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.sample(3)
def test_weights_are_one_linear_model(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece, in pieces, and of an estimator."""
    model, rows = learned(task)
    whole = weights_of(model)
    ours = np.asarray(answers(model, rows)["score"]).reshape(len(rows), -1)
    np.testing.assert_allclose(margins_of(model, rows, whole), ours, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(states, "CHUNK_BYTES", 4096)
    assert len([*pieces(model)]) > 1
    np.testing.assert_array_equal(weights_of(model), whole)
    estimator = model.to_estimator()
    coefficients = np.atleast_2d(estimator.coef_)
    np.testing.assert_array_equal(np.column_stack([estimator.intercept_, coefficients]), whole)


def test_a_state_left_in_its_checkpoint_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part by part, as the state in memory; its hash, too; and a start from weights is refused."""
    uncompiled(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(states, "CHUNK_BYTES", 4096)
    write(tmp_path / "data" / "a.parquet", table(40).drop_columns(["e", "t"]))
    given = {"label": "y", "hashed": HASHED, "bits": 8, "quiet": True}
    model = streamomd.train("data", checkpoint="kept", **given)
    assert model.spec.model.rule == "auto"
    export(model, "parquet", "near.parquet")
    assert run("export", "kept", "--as", "parquet", "--to", "far.parquet").code == 0
    assert pq.read_table("near.parquet") == pq.read_table("far.parquet")
    from streamomd.training.load_model import load_model

    left, _ = load_model("kept", remote=lambda spec: True)
    assert left.state_sha256 == model.state_sha256
    for (_, _, one), (_, _, other) in zip(left.state.parts(), model.state.parts(), strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
    loaded = left.state.load()
    assert all(np.array_equal(loaded.extra[name], model.state.extra[name]) for name in loaded.extra)
    with pytest.raises(
        UnsupportedError, match=r"'auto' .* cannot start from given weights: use ada"
    ):
        streamomd.train("data", start="near.parquet", checkpoint="none", **given)
    with pytest.raises(UsageError, match=r"rule: 'auto' there, 'nag' here.*: --rule auto"):
        streamomd.train("data", start="kept", rule="nag", checkpoint="none", **given)
