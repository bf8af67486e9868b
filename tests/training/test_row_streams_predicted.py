"""Streams of Arrow batches are predicted and explained as they come; a notebook shows a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamomd
from streamomd.core.errors import DataError, UsageError


def table(rows: int = 300, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    x, job = draw.normal(size=rows), draw.choice(["a<b>", "c", "d"], rows)
    y = (x + (job == "c") + 0.3 * draw.normal(size=rows) > 0.3).astype(int)
    return pa.table({"x": x, "job": job, "y": y})


class Capsule:
    """What a query of a database returns: Arrow's C stream, and no more."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._rows.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def model() -> Any:
    return streamomd.train(table(), label="y", checkpoint="none", quiet=True)


STREAMS = {
    "reader": lambda rows: rows.to_reader(max_chunksize=70),
    "capsule": Capsule,
    "iterator": lambda rows: iter(rows.to_batches(max_chunksize=70)),
    "list of batches": lambda rows: rows.to_batches(max_chunksize=70),
    "lazy frame": lambda rows: pl.from_arrow(rows).lazy(),
    "polars": pl.from_arrow,
    "pandas": lambda rows: rows.to_pandas(),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_predicted_as_its_table(kind: str, model: Any) -> None:
    """Labels and explanations in the order of the rows, from any number of batches."""
    rows = table(seed=1)
    assert model.predict(STREAMS[kind](rows)).tolist() == model.predict(rows).tolist()
    few = rows.slice(0, 150)
    found, expected = model.explain(STREAMS[kind](few)), model.explain(few)
    assert [one.margin for one in found] == [one.margin for one in expected]


def test_one_batch_is_in_memory_at_a_time(model: Any) -> None:
    """The next is taken when the one before was predicted."""
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(table().to_batches(max_chunksize=100)):
            taken.append(at)
            yield batch

    assert len(model.predict(batches())) == 300
    assert taken == [0, 1, 2]
    assert len(model.predict(iter(()))) == 0


def test_errors_of_a_stream(model: Any) -> None:
    """One that fails names the row; what is no batch is refused."""

    def fails() -> Iterator[pa.RecordBatch]:
        yield from table().to_batches()
        raise OSError("gone")

    with pytest.raises(DataError, match=r"generator given as rows failed after 300 rows: gone"):
        model.predict(fails())
    with pytest.raises(UsageError, match=r"rows is a .*iterator of int: expected Arrow record"):
        model.predict(iter([1, 2]))


def test_a_function_for_sparks_map_in_arrow(model: Any) -> None:
    """``DataFrame.mapInArrow`` gives an iterator of batches and takes one."""

    def predict(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"prediction": model.predict(batch)})

    rows = table(seed=2)
    found = pa.Table.from_batches(predict(iter(rows.to_batches(max_chunksize=64))))
    assert found["prediction"].to_pylist() == model.predict(rows).tolist()


@pytest.mark.parametrize("kind", [lambda rows: rows, lambda rows: rows.to_pandas()])
def test_a_function_for_rays_map_batches(kind: Any, model: Any) -> None:
    """``Dataset.map_batches`` with batch_format "pyarrow" or "pandas": a block at a time."""

    class Predictor:
        def __call__(self, block: Any) -> Any:
            if isinstance(block, pd.DataFrame):
                return block.assign(prediction=model.predict(block))
            return block.append_column("prediction", pa.array(model.predict(block)))

    rows, predictor = table(seed=3), Predictor()
    blocks = [predictor(kind(rows.slice(at, 100))) for at in range(0, 300, 100)]
    found = [value for block in blocks for value in list(block["prediction"])]
    assert [int(str(value)) for value in found] == model.predict(rows).tolist()


def test_a_notebook_shows_a_model(model: Any) -> None:
    """Rule, rows, metrics, whether it is better than a constant, and the heaviest names, escaped;
    what ``inspect`` returns is a table there, with errors of the weights."""
    text = model._repr_html_()
    parts = ("<th>rule</th><td>auto</td>", "<th>loss", "<td>300</td>", "<th>error", "constant")
    for part in (*parts, " ± "):
        assert part in text
    assert "job=a&lt;b&gt;" in text
    assert "a<b>" not in text
    assert text.endswith(model.inspect(10)._repr_html_())
    assert model.inspect(3) == list(model.inspect(3))


def test_estimators_take_streams() -> None:
    """fit, predict and predict_proba, as of the table; scikit-learn's checks need all rows."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rows = table().select(["x", "job"])
    y = table()["y"].to_numpy()
    one = streamomd.OMDClassifier(random_state=0).fit(rows, y)
    other = streamomd.OMDClassifier(random_state=0).fit(rows.to_reader(max_chunksize=70), y)
    expected = one.predict_proba(rows)
    assert np.array_equal(other.predict_proba(iter(rows.to_batches(max_chunksize=70))), expected)
    assert other.predict(Capsule(rows)).tolist() == one.predict(rows).tolist()
