"""Texts, crosses, dates and indicators wherever rows are learned: the bits of one process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, run, write

import streamomd
from streamomd.features import name_of

ROWS = 600
COLUMNS = {
    "label": "y",
    "numeric": ["n"],
    "hashed": ["h"],
    "dates": ["d"],
    "text": [{"column": "t", "ngrams": 2, "counts": "log"}],
    "crosses": [["h", "g"], ["g", "d.hour"]],
    "nulls": "indicator",
    "bits": 8,
}
NOWHERE = {"url": "none"}


def table() -> pa.Table:
    """Rows with nulls of every kind, and labels that a word and a cross tell."""
    draw = np.random.default_rng(5)
    words = [[f"w{k}" for k in draw.integers(0, 30, size)] for size in draw.integers(0, 9, ROWS)]
    h, g = ([f"{name}{k}" for k in draw.integers(0, 5, ROWS)] for name in "hg")
    y = [int("w3" in row or (a[1] == b[1])) for row, a, b in zip(words, h, g, strict=True)]
    ticks = draw.integers(0, 10**9, ROWS)
    gone = draw.random((4, ROWS)) < 0.1
    return pa.table(
        {
            "y": y,
            "n": pa.array(draw.normal(size=ROWS), mask=gone[0]),
            "h": pa.array(h, mask=gone[1]),
            "g": g,
            "t": pa.array([" ".join(row) for row in words], mask=gone[2]),
            "d": pa.array(ticks, mask=gone[3]).cast(pa.timestamp("s")).cast(pa.timestamp("us")),
        }
    )


def cut(folder: Path, edges: tuple[int, ...], group: int) -> Path:
    """The rows in shards cut at ``edges``."""
    for n, (low, high) in enumerate(itertools.pairwise((0, *edges, ROWS))):
        write(folder / f"{n}.parquet", table().slice(low, high - low), row_group_size=group)
    return folder


def job(data: Any, **tables: Any) -> dict[str, Any]:
    tables = {"checkpoint": NOWHERE, **tables}
    model = {"rule": "nag", "loss": "logistic", **tables.pop("model", {})}
    return {"data": {"shards": [str(data)], **COLUMNS}, "model": model, **tables}


def learned(data: Any, *, client: Any = None, **tables: Any) -> Any:
    return streamomd.train(job(data, **tables), client=client, quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut(tmp_path_factory.mktemp("rows") / "data", (200, 400), 70)


@pytest.fixture(scope="module")
def whole(data: Path) -> Any:
    return learned(data, train={"epochs": 2})


@pytest.mark.parametrize("edges, group", [((), ROWS), ((1, 599), 7)])
def test_cuts_change_no_bit(edges: Any, group: int, whole: Any, tmp_path: Path) -> None:
    """Other shards, other row groups, a commit and a resume between: the same state."""
    other = cut(tmp_path / "data", edges, group)
    begun = learned(other, checkpoint={"url": str(tmp_path / "run"), "every_rows": 97})
    model = streamomd.resume(begun.url, sets={"train.epochs": 2}, quiet=True)
    assert model.state_sha256 == whole.state_sha256
    assert [*model.names.to_json()] == [
        *whole.names.to_json()
    ]  # of many, which is first may differ


def test_what_is_learned_has_names(whole: Any) -> None:
    """The heaviest features are called by their words, crosses, parts and columns."""
    told = " ".join(name_of(whole.plan, whole.names, at) for at in range(whole.plan.size))
    for name in ("t=w3", "t=w3 w", "h^g=h1^g1", "h^g=\\N^g", "g^d.hour=g0^", "d.weekday=7"):
        assert name in told
    assert "d.month is null" in told
    assert told.endswith(" n is null")


def test_predictions_need_no_label(data: Path, tmp_path: Path) -> None:
    """A model that is loaded scores rows without labels as it evaluates those with."""
    url = learned(data, checkpoint={"url": str(tmp_path / "run")}).url
    bare = write(tmp_path / "bare" / "a.parquet", table().drop_columns(["y"]))
    files = alone(run("predict", url, bare, "--to", tmp_path / "out", "--json"))["files"]
    found = pq.read_table(files[0]).column("prediction").to_numpy()
    wrong = np.mean(found != table().column("y").to_numpy())
    told = alone(run("evaluate", url, data, "--json"))
    assert told["error"] == pytest.approx(wrong)
    assert told["error"] < 0.2


@pytest.mark.slow
def test_sharded_mode(data: Path, whole: Any) -> None:
    """Owners of ranges learn the same rows: one owner, a row at a time, is exact mode."""
    train = {"epochs": 2, "mode": "sharded", "batch_rows": 1, "parts": 1}
    assert learned(data, train=train).state_sha256 == whole.state_sha256


def cluster(workers: int) -> Any:
    from distributed import Client

    return Client(
        processes=False,
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=":0",
        set_as_default=False,
    )


def test_a_cluster_decodes(data: Path, whole: Any) -> None:
    """The plan travels; what workers hash is what this process hashes, names too."""
    with cluster(2) as client:
        found = learned(data, client=client, train={"epochs": 2}, cluster={"decode": "remote"})
    assert found.state_sha256 == whole.state_sha256
    assert [*found.names.to_json()] == [*whole.names.to_json()]


@pytest.mark.slow
def test_averaged_mode(data: Path, tmp_path: Path) -> None:
    """The same bits with one worker and with two."""
    train, found = {"mode": "averaged", "parts": 3, "rounds_per_epoch": 2}, []
    for workers in (1, 2):
        kept = {"url": str(tmp_path / f"run{workers}")}
        with cluster(workers) as client:
            found.append(learned(data, client=client, train=train, checkpoint=kept))
    assert found[0].state_sha256 == found[1].state_sha256
    assert found[0].result()["error"] < 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_collections(data: Path, whole: Any) -> None:
    """A Dask DataFrame of the shards, whose dates, texts and nulls come through pandas."""
    import dask.dataframe as dd

    ddf = dd.read_parquet(sorted(map(str, data.iterdir())))
    tables = job("unused", train={"epochs": 2})
    del tables["data"]["shards"]
    found = streamomd.train(tables, shards=ddf, quiet=True)
    assert found.state_sha256 == whole.state_sha256
    scores = streamomd.predict_collection(found, ddf).compute()
    assert len(scores) == ROWS


BAD = {
    "text not UTF-8": (pa.array([b"ok", b"\xff"]), "row 1, column 't': found b'\\xff', expected"),
    "a number as text": (pa.array([1, 2]), "column 't' is int64: text takes string, binary"),
    "a list as text": (pa.array([["a"], ["b"]]), "column 't' is list<"),
}


@pytest.mark.parametrize("line", BAD)
def test_bad_texts(line: str, tmp_path: Path) -> None:
    """Told in one message with exit code 2; a bad row is left out if that is asked for."""
    column, words = BAD[line]
    good = pa.table({"y": [0, 1], "t": ["a", "b"]})
    write(tmp_path / "data" / "a.parquet", good.set_column(1, "t", column))
    given = [tmp_path / "data", "--label", "y", "--set", 'data.text=["t"]', "--checkpoint", "none"]
    done = run("train", *given)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    if "UTF-8" in line:
        told = alone(run("train", *given, "--on-bad-row", "skip", "--json"))
        assert (told["rows"], told["skipped"]) == (1, {"utf8": 1})


def test_texts_that_are_unusual_and_good(tmp_path: Path) -> None:
    """Line ends, zeros, no words, nulls, and a text of two megabytes: rows like others."""
    texts = ["two\nlines\x00", "", None, "?!", "long " * 400_000]
    columns = {"y": [0, 1, 0, 1, 1], "t": texts}
    write(tmp_path / "data" / "a.parquet", columns)
    given = ["--label", "y", "--set", 'data.text=["t"]', "--checkpoint", tmp_path / "run"]
    assert alone(run("train", tmp_path / "data", *given, "--json"))["rows"] == 5
    names = {one["name"] for one in streamomd.load(str(tmp_path / "run")).inspect()}
    assert names == {"bias", "t=two", "t=lines", "t=long"}
