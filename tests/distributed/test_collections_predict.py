"""Predictions of a Dask collection: lazy, and those of shards."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pyarrow.parquet as pq
import pytest
from clustered import long
from framed import PAIR, PARTS, arrays, as_shards, collection, frame

import streamomd
from streamomd.core.errors import BadRowError, SchemaError, UsageError

# Of what Dask itself calls in pandas.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
COLUMNS = {"numeric": ["n", "k"], "hashed": ["h", "c"]}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection's rows in shards."""
    return as_shards(tmp_path_factory.mktemp("rows") / "data", [frame(i) for i in range(PARTS)])


def model_of(shards: Path, label: str = "y", **more: Any) -> streamomd.Model:
    data = {"shards": str(shards), "label": label, "bits": 8, **COLUMNS, **more.pop("data", {})}
    return streamomd.train({"data": data, "checkpoint": {"url": "none"}, **more}, quiet=True)


JOBS = {
    "two classes": {"data": {"sparse": PAIR}},
    "words for classes": {"label": "c", "data": {"hashed": "h"}},
    "regression": {"label": "n", "data": {"numeric": "k"}, "model": {"loss": "square"}},
}


@pytest.mark.parametrize("kind", ["words for classes", *long("two classes", "regression")])
@pytest.mark.slow
def test_predictions_are_those_of_shards(kind: str, shards: Path, tmp_path: Path) -> None:
    """Columns, types and values of the files that Model.predict writes; the index is preserved."""
    model = model_of(shards, **JOBS[kind])
    files = model.predict(str(shards), str(tmp_path / "out"), keep=["w"])
    made = collection()
    lazy = streamomd.predict_collection(model, made, keep=["w"])
    assert lazy.npartitions == PARTS
    for part, file in enumerate(files):
        expected = pq.read_table(file).drop_columns(["row"])
        found = lazy.partitions[part].compute()
        assert list(found.columns) == expected.schema.names == list(lazy.columns)
        assert list(found.dtypes) == list(lazy.dtypes)
        assert found.index.equals(frame(part).index)
        for name in expected.schema.names:
            assert found[name].to_list() == expected.column(name).to_pylist()
            if name != "w":
                assert found[name].dtype.pyarrow_dtype == expected.schema.field(name).type


def test_nothing_is_computed_before_it_is_asked_for(shards: Path, tmp_path: Path) -> None:
    """And what was asked for is predicted by the model as it was then."""
    model = model_of(shards)
    (tmp_path / "obstacle").touch()
    lazy = streamomd.predict_collection(model, collection(str(tmp_path / "obstacle")))
    with pytest.raises(OSError, match="in the way"):
        lazy.compute()
    (tmp_path / "obstacle").unlink()
    expected = lazy["score"].compute().to_list()
    model.state.cells[:] = 0.0
    for array in model.state.extra.values():
        array[...] = 0
    model.state.totals[...] = 0.0
    assert lazy["score"].compute().to_list() == expected
    assert any(expected)
    assert not any(streamomd.predict_collection(model, collection())["score"].compute())


def test_the_model_travels_once(shards: Path) -> None:
    """However many partitions there are."""
    model = model_of(shards, data={"bits": 14})
    many = dd.from_map(frame, [0] * 50, meta=frame(0).iloc[:0])
    lazy = streamomd.predict_collection(model, many)
    tasks = dict(lazy.optimize().__dask_graph__())
    sizes = sorted(len(pickle.dumps(task)) for task in tasks.values())
    assert len(tasks) <= 2 * 50 + 1
    assert sizes[-1] > model.state.nbytes
    assert sum(sizes[:-1]) < model.state.nbytes / 2


def test_arrays(tmp_path: Path) -> None:
    """Of X alone; what is known of one class's rows is what shards say of them."""
    X, y, _ = arrays(tmp_path / "data")
    model = streamomd.train(
        str(tmp_path / "data"), label="y", sets={"data.vectors": ["X"]}, checkpoint="none",
        quiet=True,
    )  # fmt: skip
    files = model.predict(str(tmp_path / "data"), str(tmp_path / "out"))
    expected = np.concatenate([pq.read_table(file)["score"].to_numpy() for file in files])
    lazy = streamomd.predict_collection(model, da.from_array(X, chunks=(120, 3)))
    found = lazy.compute()
    assert np.array_equal(found["score"].to_numpy(), expected)
    assert found.index[:121].to_list() == [*range(120), 0]
    for bad in (da.from_array(X, chunks=(120, 2)), da.from_array(y, chunks=120)):
        with pytest.raises(UsageError, match="cut by rows alone"):
            streamomd.predict_collection(model, bad)


def test_what_cannot_be_predicted(shards: Path) -> None:
    """Missing columns immediately, bad rows when they are computed, other errors by name."""
    model, made = model_of(shards), collection()
    with pytest.raises(SchemaError, match="no column 'k'; it has y, w"):
        streamomd.predict_collection(model, made.drop(columns="k"))
    with pytest.raises(UsageError, match="keep 'score'"):
        streamomd.predict_collection(model, made.assign(score=1.0), keep=["score"])
    for given in (frame(0), str(shards), made["n"]):
        with pytest.raises(UsageError, match="takes a Dask DataFrame"):
            streamomd.predict_collection(model, given)
    for given in ((made,), (made, "out")):
        with pytest.raises(UsageError, match=r"streamomd\.predict_collection\(model, ddf\)"):
            model.predict(*given)
    with pytest.raises(UsageError, match=r"ddf\.to_parquet\(URL\)"):
        model.evaluate(made)
    holed = frame(0)
    holed.loc[[0, 7], "n"] = 5.0, np.nan
    lazy = streamomd.predict_collection(model, dd.from_pandas(holed, npartitions=1))
    with pytest.raises(BadRowError, match="partition whose first row is 0, row 7, column 'n'"):
        lazy.compute()
