"""Arrow IPC streams as sources: their rows exactly, or an error with the file's name."""

from __future__ import annotations

import datetime
import io
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, train

import streamomd
from streamomd.cli import main
from streamomd.core.errors import DataError, UsageError
from streamomd.sources.memory.row_streams import is_row_stream, write_rows
from streamomd.sources.text.convert import convert
from streamomd.training.load_model import load_model

WORDS = pa.array(["u", None, "v", "u"])
ROWS = pa.table({
    "y": [0, 1, 1, 0],
    "x": [0.5, None, 2.0, -1.0],
    "c": WORDS.dictionary_encode(),
    "v": WORDS.cast(pa.string_view()),
    "d": [datetime.date(2026, 1, day) for day in (1, 2, 3, 4)],
    "m": pa.array([Decimal("1.5")] * 4),
    "l": [[1], [], [2, 3], [4]],
})  # fmt: skip
PLAIN = ROWS.set_column(2, "c", WORDS).set_column(3, "v", WORDS.cast(pa.large_string()))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def stream(*batches: pa.RecordBatch, end: bool = True) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue() if end else sink.getvalue()[:-8]


def converted(path: Path, to: Path) -> pa.Table:
    convert([str(path)], source_format="arrows", to=str(to))
    return pq.read_table(to)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(-(2**63), 2**63 - 1),
                st.none() | st.floats(allow_nan=False),
                st.none() | st.text(max_size=3),
            )
        ),
        min_size=1,
        max_size=4,
    )
)
def test_rows_are_those_that_were_written(tmp_path_factory: Any, parts: list[Any]) -> None:
    """Any batches, empty ones too, of one stream or of streams one after the other in a file."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    batches = [
        pa.RecordBatch.from_pylist([dict(zip("abc", row, strict=True)) for row in part], schema)
        for part in parts
    ]
    folder = tmp_path_factory.mktemp("rows")
    for name, data in (("one", stream(*batches)), ("all", b"".join(map(stream, batches)))):
        path = folder / f"{name}.arrows"
        path.write_bytes(data)
        if not any(parts):
            with pytest.raises(DataError, match="no rows"):
                converted(path, folder / name)
        else:
            assert converted(path, folder / name) == pa.Table.from_batches(batches)


def test_types_of_shards_are_plain(tmp_path: Path) -> None:
    """Dictionaries, which may change from batch to batch, and views are texts in shards."""
    path, other = tmp_path / "a.arrows", ROWS.slice(1).to_batches()[0]
    own = pa.array(["w", "v", None]).dictionary_encode()
    other = other.set_column(2, "c", own)
    path.write_bytes(stream(*ROWS.to_batches(), other))
    found = converted(path, tmp_path / "to")
    assert found.slice(0, 4).to_pylist() == PLAIN.to_pylist()
    assert found["c"].to_pylist()[4:] == ["w", "v", None]


def test_damaged_streams_are_errors(tmp_path: Path) -> None:
    """Cut off anywhere, or of other columns: DataError with the name, and no shard."""
    batch = pa.RecordBatch.from_pylist([{"a": 1}, {"a": 2}])
    whole, path = stream(batch, batch), tmp_path / "a.arrows"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"a.arrows"):
            converted(path, tmp_path / "to")
    path.write_bytes(stream(batch) + stream(pa.RecordBatch.from_pylist([{"b": 1}])))
    with pytest.raises(DataError, match="have the same ones"):
        converted(path, tmp_path / "to")
    path.write_bytes(stream(batch, end=False))
    with pytest.raises(DataError, match="without the end of a stream"):
        converted(path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_types_that_parquet_lacks_are_named(tmp_path: Path) -> None:
    """All of them, of a stream and of rows in Python; runs are decoded."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"]))
    strange = {"i": pa.nulls(2, pa.month_day_nano_interval()), "e": pa.nulls(2, pa.struct([]))}
    path = tmp_path / "a.arrows"
    path.write_bytes(stream(pa.RecordBatch.from_pydict({"r": runs})))
    assert converted(path, tmp_path / "to")["r"].to_pylist() == ["x", "x"]
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], **strange})
    path.write_bytes(stream(batch))
    with pytest.raises(DataError, match=r"a.arrows has columns of types .*: i .*, e \(struct"):
        converted(path, tmp_path / "other")
    with pytest.raises(DataError, match="given as shards has columns of types"):
        write_rows(iter([batch]), tmp_path / "other")


def test_standard_input_is_a_source(tmp_path: Path) -> None:
    """Of every format, read once."""
    data = stream(*ROWS.to_batches())
    for form, sent, to in (("arrows", data, "to"), ("csv", b"a,b\n1,2\n", "csv")):
        words = ["convert", "-", "--from", form, "-o", str(tmp_path / to)]
        done = CliRunner().invoke(main, words, input=sent, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
    assert pq.read_table(tmp_path / "to").to_pylist() == PLAIN.to_pylist()
    assert pq.read_table(tmp_path / "csv").to_pylist() == [{"a": 1, "b": 2}]
    with pytest.raises(UsageError, match="standard input is read once"):
        convert(["-"], source_format="csv", to=str(tmp_path / "b"), shards=2)


@pytest.mark.slow
def test_a_pipe_is_a_source(tmp_path: Path) -> None:
    """In a process of its own."""
    words = [sys.executable, "-m", "streamomd", "convert", "-", "--from", "arrows", "-o"]
    subprocess.run([*words, tmp_path], input=stream(*ROWS.to_batches()), check=True)
    assert pq.read_table(tmp_path).to_pylist() == PLAIN.to_pylist()


def test_a_run_reads_a_stream(tmp_path: Path) -> None:
    """A file of that name is trained on as the shards that convert makes of it."""
    path = tmp_path / "a.arrows"
    rows = pa.table({"y": [0, 1] * 20, "x": [float(n) for n in range(40)]})
    path.write_bytes(stream(*rows.to_batches(max_chunksize=7)))
    pq.write_table(rows, tmp_path / "a.parquet")
    job = ("--label", "y", "--rule", "nag", "--checkpoint")
    expected = train(tmp_path / "a.parquet", *job, "none")["state_sha256"]
    assert train(path, *job, tmp_path / "run")["state_sha256"] == expected
    assert run("evaluate", tmp_path / "run", path, "--json").result["rows"] == 40


def lazy(rows: pa.Table) -> Any:
    polars = pytest.importorskip("polars")
    return polars.from_arrow(rows).lazy().filter(polars.col("x") >= 0)


def one_by_one(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=3)


STREAMS = {
    "LazyFrame": lazy,
    "Dataset": lambda rows: ds.dataset(rows),
    "Scanner": lambda rows: ds.dataset(rows).scanner(),
    "RecordBatchReader": lambda rows: rows.to_reader(max_chunksize=5),
    "generator": one_by_one,
    "list": lambda rows: rows.to_batches(max_chunksize=6),
    "Table": lambda rows: rows,
    "pandas": lambda rows: rows.to_pandas().set_index(pd.Index(range(7, 47), name="at")),
    "polars": lambda rows: pytest.importorskip("polars").from_arrow(rows),
}


QUICK = ("LazyFrame", "generator", "pandas")


@pytest.mark.parametrize(
    "kind",
    [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in STREAMS],
)
def test_streams_of_rows_are_trained_on(kind: str, tmp_path: Path, cache: Path) -> None:
    """With the result of the same rows in a file; resumed; and nothing left of a run without a
    checkpoint, or of one that could not begin."""
    rows = pa.table({"y": [0, 1] * 20, "x": [float(n) for n in range(40)]})
    pq.write_table(rows, tmp_path / "a.parquet")
    job: dict[str, Any] = {"label": "y", "rule": "nag", "quiet": True}
    expected = streamomd.train(str(tmp_path / "a.parquet"), **job, checkpoint="none").result()
    found = streamomd.train(STREAMS[kind](rows), **job, checkpoint="none").result()
    assert found["state_sha256"] == expected["state_sha256"]
    assert not [*cache.rglob("*.parquet")]
    with pytest.raises(streamomd.core.errors.StreamomdError):
        streamomd.train(STREAMS[kind](rows), **{**job, "label": "z"}, checkpoint="none")
    assert not [*cache.rglob("*.parquet")]
    url = str(tmp_path / "run")
    streamomd.train(shards=STREAMS[kind](rows), **job, checkpoint=url)
    assert not [*cache.rglob("*.parquet")]
    again = {"sets": {"train.epochs": 2}, "quiet": True}
    assert streamomd.resume(url, shards=STREAMS[kind](rows), **again).result()["rows"] == 80
    streamomd.train(shards=STREAMS[kind](rows), **job, epochs=2, checkpoint=url, restart=True)
    assert streamomd.resume(url, sets={"train.epochs": 3}, quiet=True).result()["rows"] == 120
    assert load_model(url)[0].spec.data.shards[0].startswith(str(cache))


def failing(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=3)
    raise OSError(5, "the disk of s3://key:secret@bucket/rows")


def lazily_failing(rows: pa.Table) -> Any:
    polars, seen = pytest.importorskip("polars"), list[int]()

    def check(frame: Any) -> Any:
        seen.append(len(frame))
        if len(seen) > 1:
            raise RuntimeError("no more of s3://key:secret@bucket/rows")
        return frame

    frames = [polars.from_arrow(rows).lazy().map_batches(check) for _ in range(3)]
    return polars.concat(frames)


@pytest.mark.parametrize(("make", "name"), [(failing, "iterator"), (lazily_failing, "LazyFrame")])
def test_a_stream_that_fails_half_way_leaves_nothing(
    make: Any, name: str, tmp_path: Path, cache: Path
) -> None:
    """The error names the stream, not the folder that it was written to; an older run stands."""
    rows = pa.table({"y": [0, 1] * 20, "x": [float(n) for n in range(40)]})
    url, job = str(tmp_path / "run"), {"label": "y", "rule": "nag", "quiet": True}
    pq.write_table(rows, tmp_path / "a.parquet")
    streamomd.train(str(tmp_path / "a.parquet"), **job, checkpoint=url)
    with pytest.raises(DataError, match=rf"the {name} given as shards failed after \d+ rows: .* of"
                       ) as caught:  # fmt: skip
        streamomd.train(shards=make(rows), **job, checkpoint=url, restart=True)
    assert "secret" not in str(caught.value)
    assert str(cache) not in str(caught.value)
    assert not [one for one in cache.rglob("*") if one.name != "rows"]
    assert streamomd.load(url).result()["rows"] == 40


def test_iterators_of_names_are_names(tmp_path: Path, cache: Path) -> None:
    """Such as of a glob: nothing is written."""
    pq.write_table(pa.table({"y": [0, 1] * 20, "x": [1.0, 2.0] * 20}), tmp_path / "a.parquet")
    job: dict[str, Any] = {"label": "y", "rule": "nag", "quiet": True, "checkpoint": "none"}
    for names in (tmp_path.glob("*.parquet"), iter([str(tmp_path / "a.parquet")])):
        assert streamomd.train(shards=names, **job).result()["rows"] == 40
    assert not cache.exists()


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    """Iterators of other values, of other columns, of nothing; a name is no stream."""
    one = pa.RecordBatch.from_pylist([{"a": 1}])
    for rows, words in (
        (iter([]), "is empty"),
        (iter([1]), "iterator of int"),
        (iter([one, pa.RecordBatch.from_pylist([{"b": 1}])]), "after 1 rows: other columns"),
        (iter([one.slice(1)]), "empty batches only"),
        (pd.DataFrame({1: [2.0]}), "column names are not all text"),
        (pd.DataFrame({"a": []}), "is empty"),
    ):
        with pytest.raises((DataError, UsageError), match=words):
            write_rows(rows, tmp_path / "to")
    assert not any(map(is_row_stream, ("a.parquet", ["a"], [], (), {"data": {}}, None, Path("a"))))


def test_two_columns_of_a_name_in_a_stream_are_refused(tmp_path: Path) -> None:
    """As in a file: the error names the stream and the column."""
    path, names = tmp_path / "a.arrows", ["x", "y", "x"]
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])] * 3, names=names)
    with pa.ipc.new_stream(str(path), batch.schema) as stream:
        stream.write(batch)
    for words in (("plan", path, "--label", "y"), ("convert", path, "--to", tmp_path / "out")):
        done = run(*words)
        assert done.code == 2
        assert "a.arrows has several columns named 'x': rename them" in done.err
