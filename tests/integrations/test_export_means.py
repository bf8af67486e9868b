"""Exports of a model whose missing numbers become means: they are in it, or it is refused."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run, write

import streamomd
from streamomd.core.errors import UnsupportedError
from streamomd.integrations.export import FORMATS
from streamomd.integrations.export.to_sklearn import matrix_of, to_sklearn
from streamomd.training.model import Model

N = 60
NULLS = {"a": "mean", "b": "zero", "c": "indicator", "e": "mean"}
JOB = {"label": "y", "numeric": ["a", "b", "c"], "vectors": ["e"]}


def rows(hashed: bool) -> pa.Table:
    """Numbers far from 0 with gaps."""
    draw = np.random.default_rng(3)

    def gaps(values: Any) -> list[float | None]:
        return [None if draw.random() < 0.3 else float(value) for value in values]

    lists = [gaps(draw.normal(5, 1, 2)) for _ in range(N)]
    columns = {"y": draw.integers(0, 2, N), "e": pa.array(lists, pa.list_(pa.float64(), 2))}
    columns |= {name: gaps(draw.normal(7, 2, N)) for name in "abc"}
    return pa.table(columns | ({"h": [f"h{at % 5}" for at in range(N)]} if hashed else {}))


def trained(
    folder: Path, rule: str, hashed: bool = False, **more: Any
) -> tuple[Model, pa.Table, Path]:
    """A model of these rows, and the shard."""
    table = rows(hashed)
    shard = write(folder / "rows" / "a.parquet", table)
    words = {"hashed": ["h"], "bits": 8} if hashed else {}
    model = streamomd.train(
        shard, rule=rule, nulls=NULLS, quiet=True, **JOB, **words, **{"checkpoint": "none", **more}
    )
    return model, table, shard


def scores(model: Model, shard: Path, to: Path) -> Any:
    """The margins that predict writes."""
    (path,) = model.predict(str(shard), to=str(to), overwrite=True)
    return pq.read_table(path)["score"].to_numpy()


@pytest.mark.parametrize("rule", ["nag", "auto"])
def test_onnx_replaces_them(rule: str, tmp_path: Path) -> None:
    """NaN of a raw column becomes the mean, also of an element of a vector."""
    pytest.importorskip("onnx", reason="needs streamomd[onnx]")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, as the tests do")
    model, table, shard = trained(tmp_path, rule, hashed=True)
    file = io.BytesIO()
    FORMATS["onnx"].write(model, file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    feeds: dict[str, Any] = {
        name: np.array(table[name].to_pylist(), np.float64).reshape(N, -1) for name in "abce"
    }
    feeds["h"] = np.array(table["h"].to_pylist(), object).reshape(N, 1)
    (found,) = session.run(["score"], feeds)
    np.testing.assert_allclose(found.reshape(-1), scores(model, shard, tmp_path / "to"), rtol=1e-9)


@pytest.mark.parametrize("hashed", [False, True])
def test_scikit_learn_gets_filled_rows(hashed: bool, tmp_path: Path) -> None:
    """The matrix of rows for the fitted model has the means in it."""
    pytest.importorskip("sklearn", reason="needs streamomd[sklearn]")
    model, table, shard = trained(tmp_path, "nag", hashed)
    found = to_sklearn(model).decision_function(matrix_of(model, table))
    np.testing.assert_allclose(found, scores(model, shard, tmp_path / "to"), rtol=1e-9)


def test_vw_is_refused(tmp_path: Path) -> None:
    """The message names the columns."""
    model, _, _ = trained(tmp_path, "nag")
    with pytest.raises(UnsupportedError, match="missing numbers in a, e, and to VW"):
        FORMATS["vw"].write(model, io.BytesIO())


def test_a_start_from_parquet_continues_them(tmp_path: Path) -> None:
    """Rows after an export of weights see the means of the rows before it."""
    model, _, shard = trained(tmp_path, "ogd")
    with (tmp_path / "w.parquet").open("wb") as file:
        FORMATS["parquet"].write(model, file)
    again, _, _ = trained(tmp_path, "ogd", start=str(tmp_path / "w.parquet"))
    expected = model.state.copy()
    model.metrics.begin(0)
    twice, _, _ = trained(tmp_path, "ogd", epochs=2)
    np.testing.assert_array_equal(again.state.means, twice.state.means)
    assert (again.state.means[1] == 2 * expected.means[1]).all()
    bad = pq.read_table(tmp_path / "w.parquet")
    for text in ("[[1.0], [2.0]]", '"x"', "[[1, 1, 1], [1, 1, -1]]", "[[1, 1, NaN], [1, 1, 1]]"):
        meta = bad.schema.metadata[b"streamomd.weights"].decode()
        before = meta.partition('"means": ')[0]
        changed = f'{before}"means": {text}}}'.encode()
        pq.write_table(
            bad.replace_schema_metadata({b"streamomd.weights": changed}), tmp_path / "x.parquet"
        )
        words = ["--label", "y", "--numeric", "a,b,c", "--vectors", "e", "--rule", "ogd"]
        words += ["--nulls", "a=mean,b=zero,c=indicator,e=mean", "--checkpoint", "none"]
        done = run("train", shard, *words, "--start", tmp_path / "x.parquet")
        assert done.code == 2
        assert "means of missing numbers" in done.err


def test_they_are_printed(tmp_path: Path) -> None:
    """inspect and the report show the means, and inspect --json has them by column."""
    model, _, _ = trained(tmp_path, "nag", checkpoint=str(tmp_path / "run"))
    means = run("inspect", tmp_path / "run", "--json").result["means"]
    fill = model.fill_values()
    assert means == {name: fill[name] for name in "ae"}
    assert isinstance(means["a"], float)
    assert math.isclose(means["a"], 7.0, abs_tol=1.0)
    shown = f"a = {means['a']:.6g}"
    assert shown in run("inspect", tmp_path / "run").out
    assert run("report", tmp_path / "run", "-o", tmp_path / "r.html").code == 0
    assert shown in (tmp_path / "r.html").read_text()
