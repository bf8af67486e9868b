"""Dask collections: the bits of the same rows in shards, a shard a partition."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from framed import NOWHERE, PARTS, ROWS, arrays, as_shards, collection, frame, job, learn
from running import rows, write

import streamomd
from streamomd.core.errors import BadRowError, DataError, UnsupportedError, UsageError
from streamomd.distributed.collections import partition_source
from streamomd.distributed.collections.collection import Collection
from streamomd.training.progress import verbose_output

# Of what Dask itself calls in pandas.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection's rows in shards."""
    return as_shards(tmp_path_factory.mktemp("rows") / "data", [frame(i) for i in range(PARTS)])


@pytest.fixture(scope="module")
def alone(shards: Path) -> Any:
    """The run of one process on the shards."""
    return streamomd.train(job(str(shards), checkpoint=NOWHERE), quiet=True)


def test_bits_are_those_of_shards(alone: Any) -> None:
    """Computed by this process: state, loss, names, also in shuffled order."""
    found = learn(collection())
    assert found.state_sha256 == alone.state_sha256
    assert found.result()["loss"] == alone.result()["loss"]
    assert found.names.to_json() == alone.names.to_json()
    assert found.metrics.total_rows == 2 * PARTS * ROWS


def test_arrays(tmp_path: Path) -> None:
    """X is a column of lists; dense, cut by rows; the lengths of chunks need not be known."""
    plain = arrays(tmp_path / "data")
    data = {"label": "y", "weight": "w", "vectors": ["X"], "shards": str(tmp_path / "data")}
    alone = streamomd.train({"data": data, "checkpoint": NOWHERE}, quiet=True)
    X, y, w = (da.from_array(one, chunks=(300, *one.shape[1:])) for one in plain)
    for given in ((X, y, w), (X[X[:, 0] < 9], y[X[:, 0] < 9], w[X[:, 0] < 9])):
        found = streamomd.train(shards=given, checkpoint="none", quiet=True)
        assert found.state_sha256 == alone.state_sha256
    assert found.inspect(1)[0]["name"].startswith("X[")
    unweighted = streamomd.train(shards=(X, y), checkpoint="none", quiet=True)
    assert unweighted.state_sha256 != alone.state_sha256


@pytest.mark.parametrize("fs", ["arrow", None])
def test_small_files_are_not_joined(shards: Path, alone: Any, fs: str | None) -> None:
    """Dask joins them when it optimises; a cursor would then name other partitions."""
    read = dd.read_parquet(shards, filesystem=fs)
    made = read.assign(k=read["k"] + 0)
    assert made[["y", "k"]].optimize().npartitions < PARTS
    reader = partition_source.LocalPartitions(Collection(made).graph(["y", "k"]), 0)
    for number in range(PARTS):
        found = reader.call(number, lambda _, part: part["k"].to_list())
        assert found == made.partitions[number]["k"].compute().to_list()
    if fs is None:  # Arrow's own takes files as the disk lists them
        assert learn(made).state_sha256 == alone.state_sha256


def test_nulls_are_those_of_shards(tmp_path: Path) -> None:
    """A missing word is a category; a missing number is refused, with its partition and row."""
    frames = [frame(1), frame(0)]
    frames[0].loc[1003, "h"] = None
    frames[1]["h"] = pd.Series([None] * ROWS, dtype="string[pyarrow]")
    here, there = both(frames, tmp_path)
    assert here == there
    frames[1].loc[7, "n"] = np.nan
    (reason, _, text), (why, whole, same) = both(frames, tmp_path)
    assert (reason, text) == (why, same)
    assert reason == "null"
    assert whole.startswith("shard dask partition 1, row 7, column 'n'")


def both(frames: list[pd.DataFrame], folder: Path) -> list[Any]:
    """What comes of shards, and of a collection in which words are Python's objects."""
    told, results = {"label": "y", "numeric": ["n"], "hashed": ["h"]}, []
    with dask.config.set({"dataframe.convert-string": False}):
        untyped = [one.assign(h=one["h"].astype(object)) for one in frames]
        made = dd.concat([dd.from_pandas(one, npartitions=1) for one in untyped])
    for shards in (str(as_shards(folder / "data", frames)), made):
        table = {"data": {**told, "shards": shards}, "checkpoint": NOWHERE}
        try:
            results.append(streamomd.train(table, quiet=True).state_sha256)
        except BadRowError as error:
            results.append((error.reason, str(error), str(error).split(", ", 1)[1]))
    return results


def test_empty_partitions() -> None:
    """The columns are those of the first partition with rows; labels are sought until two."""
    parts = [frame(0).iloc[:0], frame(0), frame(1).iloc[:0], frame(1)]
    parts[1] = parts[1][parts[1]["c"] == "job 1"]
    parts[3] = parts[3][parts[3]["c"] != "job 2"]
    made = dd.concat([dd.from_pandas(one, npartitions=1) for one in parts])
    found = streamomd.train(made, label="c", numeric="n", checkpoint="none", quiet=True)
    assert found.metrics.total_rows == sum(map(len, parts))
    assert found.plan.classes == ("job 0", "job 1")
    with pytest.raises(DataError, match="all 2 partitions are empty"):
        streamomd.train(made.partitions[[0, 2]], label="y", checkpoint="none", quiet=True)


def test_shards_continue_with_shards(shards: Path, tmp_path: Path) -> None:
    """A collection can't take their place."""
    url = str(tmp_path / "kept")
    streamomd.train(job(str(shards), epochs=1, checkpoint={"url": url}), quiet=True)
    with pytest.raises(UsageError, match="resumes on the shards it started with"):
        streamomd.resume(url, shards=collection(), sets={"train.epochs": 2}, quiet=True)


@pytest.mark.parametrize(
    "call, tables",
    [
        (streamomd.train, {"train": {"mode": "averaged"}}),
        (streamomd.train, {"train": {"mode": "sharded"}}),
        (streamomd.train, {"cluster": {"learner": "worker"}}),
        (streamomd.submit, {}),
    ],
)
def test_what_is_not_done_says_what_to_do(
    call: Callable[..., Any], tables: dict[str, Any], tmp_path: Path
) -> None:
    """Other modes, a learner on a worker, a job that is left behind."""
    table = {**job(collection()), "checkpoint": {"url": str(tmp_path / "kept")}, **tables}
    with pytest.raises(UnsupportedError, match=r"needs shards.*ddf\.to_parquet\(URL\)"):
        call(table)
    assert not (tmp_path / "kept").exists()


X = da.zeros((6, 4), chunks=(3, 4))
BAD = {
    "2 chunks of columns": (X.rechunk({1: 2}), X[:, 0]),
    r"y 3 \(2, 2, 2\)": (X, X[:, 0].rechunk(2)),
    r"\[1, 1\] dimensions": (X[:, 0], X[:, 0]),
    "got Array$|got Array ": X,
    "got Array, ndarray": (X, np.zeros(6)),
    "got Series": collection()["n"],
    "column 0 of the DataFrame has a name of type int": dd.from_pandas(pd.DataFrame({0: [1]})),
}


@pytest.mark.parametrize("told", BAD)
def test_a_collection_that_is_none(told: str) -> None:
    """It is refused before anything is computed, and the message says what would do."""
    with pytest.raises(UsageError, match=told):
        streamomd.train(shards=BAD[told], label="y", checkpoint="none", quiet=True)


def test_partitions_of_another_kind() -> None:
    """What is computed is not what Dask said it would be: named with its partition."""
    wrong = dd.from_map(_number, range(2), meta=frame(0).iloc[:0])
    with pytest.raises(DataError, match="dask partition 0 is a int, expected a pandas DataFrame"):
        learn(wrong)
    with dask.config.set({"dataframe.convert-string": False}):
        mixed = dd.from_map(_mixed, range(1), meta=frame(0).iloc[:0])
    with pytest.raises(DataError, match="dask partition 0 cannot be converted to Arrow"):
        learn(mixed)


def _number(part: int) -> int:
    return part


def _mixed(part: int) -> pd.DataFrame:
    return frame(part).assign(h=["a", 1] * (ROWS // 2))


def test_pandas_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the message says what to install; arrays do without."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    made, zeros = collection(), da.zeros(6, chunks=3, dtype=np.int64)
    monkeypatch.setattr("streamomd.sources.memory.frames.import_module", missing)
    with pytest.raises(UsageError, match=r"streamomd\[collections\]"):
        learn(made)
    found = streamomd.train(shards=(X, zeros), checkpoint="none", quiet=True)
    assert found.metrics.total_rows == 6


@pytest.mark.parametrize("fs", ["arrow", None])
def test_files_that_changed_are_others(tmp_path: Path, fs: str | None) -> None:
    """Read by the same steps, they have another name; unchanged, the same."""
    tokens = []
    for count in (9, 9, 10):
        if len(tokens) != 1:
            write(tmp_path / "a.parquet", rows(count))
        tokens.append(Collection(dd.read_parquet(tmp_path, filesystem=fs)[["n", "y"]]).token)
    assert tokens[0] == tokens[1] != tokens[2]


@pytest.mark.slow
def test_names_are_those_of_any_process(tmp_path: Path) -> None:
    """Of data that Dask reads, makes from memory and maps; delayed() makes new names."""
    write(tmp_path / "a.parquet", rows(9))
    code = """
import sys, dask, dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd
from streamomd.distributed.collections.collection import Collection
frame = pd.DataFrame({"y": range(6)})
made = [
    dd.concat([dd.read_parquet(sys.argv[1])] * 2).assign(z=1),
    dd.read_parquet(sys.argv[1], filesystem="arrow").query("y > 0"),
    tuple(dd.read_parquet(sys.argv[1], filesystem="arrow")[c].values for c in (["n", "k"], "y")),
    dd.from_pandas(frame, npartitions=2).query("y > 1"),
    dd.from_map(lambda i: frame * i, range(3), meta=frame),
    (da.from_array(np.eye(4), chunks=(2, 4)), da.arange(4, chunks=2)),
    (da.random.default_rng(1).normal(size=(4, 2), chunks=2).rechunk({1: -1}), da.ones(4, chunks=2)),
    dd.from_delayed([dask.delayed(frame.copy, pure=True)()], meta=frame),
    dd.from_delayed([dask.delayed(frame.copy)()], meta=frame),
]
print(*(Collection(one).token for one in made))
"""
    ran = [sys.executable, "-c", code, str(tmp_path)]
    first, second = (subprocess.check_output(ran, text=True).split() for _ in range(2))
    assert [a == b for a, b in zip(first, second, strict=True)] == [True] * 8 + [False]


def test_progress_without_a_total(capfd: pytest.CaptureFixture[str]) -> None:
    """The number of rows is unknown, so no share of them is reported."""
    with verbose_output():
        streamomd.train(job(collection(), epochs=1, checkpoint=NOWHERE))
    told = capfd.readouterr().err
    assert "%" not in told
    assert f"{PARTS * ROWS:,}" in told
