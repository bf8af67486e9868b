"""Models with weights drawn at random, in plain Python, to be exported: nothing is compiled."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamomd.config.spec import Spec
from streamomd.features import encode, make_plan
from streamomd.integrations.export import FORMATS
from streamomd.training.model import Model
from streamomd.training.predict import columns
from streamomd.training.warm_start.weights import weight_slot

CITIES = ["Zürich", "a=b", "", "x y", "Łódź", "7"]
LABELS = {"two": ["no", "yes"], "three": ["a", "b", "c"], "numbers": []}


def table(count: int = 30, *, seed: int = 0, labels: str = "two") -> pa.Table:
    """Rows: y, numbers n and f (float32), a truth t, words h, whole numbers k, a vector e."""
    draw = np.random.default_rng(seed)
    y = draw.choice(LABELS[labels], count) if LABELS[labels] else draw.normal(size=count)
    vectors = pa.array(draw.normal(size=(count, 3)).tolist(), pa.list_(pa.float32(), 3))
    return pa.table(
        {
            "y": y,
            "n": draw.normal(size=count) * 1000,
            "f": draw.normal(size=count).astype(np.float32),
            "t": draw.random(count) < 0.5,
            "h": pa.array(draw.choice(CITIES, count)),
            "k": draw.integers(-9, 9, count),
            "e": vectors,
        }
    )


def model_of(
    rows: pa.Table, *, seed: int = 0, shapes: dict[str, Any] | None = None, **job: dict[str, Any]
) -> Model:
    """A model of a job's tables, as if trained on these rows: weights drawn, no slot else. shapes:
    curves, trees, bins and pairs of its plan."""
    data = {"shards": "none", "label": "y", "bits": 10, **job.get("data", {})}
    described = {"rule": "ogd", **job.get("model", {})}
    spec = Spec.parse({"data": data, "model": described})
    labels = sorted(set(rows["y"].to_pylist()))
    plan = make_plan(spec.data, spec.model, rows.schema, lambda: labels)
    model = Model.new(spec, replace(plan, **(shapes or {})))
    model.engine = replace(model.engine, compiled=False)
    slot = weight_slot(model.engine.layout.rule)
    assert slot is not None
    cells = model.state.slot(slot)
    cells[...] = np.random.default_rng(seed).normal(size=cells.shape)
    model.metrics.begin(0)
    return model


def batch_of(model: Model, rows: pa.Table) -> Any:
    """The rows as the engine learns them."""
    whole = rows.combine_chunks().to_batches()[0]
    return encode(model.plan, whole, shard="here", row=0, labelled=False)


def answers(model: Model, rows: pa.Table) -> dict[str, Any]:
    """What ``streamomd predict`` writes of the rows."""
    margins = model.engine.predict(model.state, np.zeros(3), batch_of(model, rows))
    told = columns(model.plan, model.engine, model.state, margins, model.calibration)
    return {name: np.asarray(value) for name, value in told.items()}


def session_of(model: Model) -> Any:
    """An onnxruntime session of a model's graph; skips the test where there is no onnxruntime."""
    pytest.importorskip("onnx", reason="needs streamomd[onnx]")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, as the tests do")
    file = io.BytesIO()
    FORMATS["onnx"].write(model, file)
    return onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])


def fed(session: Any, rows: pa.Table) -> dict[str, Any]:
    """The columns that a session asks for, of the types that it asks for."""
    kinds = {"tensor(double)": np.float64, "tensor(string)": object, "tensor(bool)": bool,
             "tensor(int64)": np.int64}  # fmt: skip
    feeds = {}
    for one in session.get_inputs():
        column = rows[one.name].combine_chunks()
        values = column.to_pylist()
        feeds[one.name] = np.array(values, dtype=kinds[one.type]).reshape(len(values), -1)
    return feeds


def onnx_scores(model: Model, rows: pa.Table) -> Any:
    """The margins of rows by a model's graph."""
    session = session_of(model)
    (found,) = session.run(["score"], fed(session, rows))
    return found
