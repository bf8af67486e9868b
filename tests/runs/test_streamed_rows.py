"""A stream of rows is learned as it comes: the bits of a file's rows, and known again on resume."""

from __future__ import annotations

import datetime
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from any_columns import worlds
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import streamomd
from streamomd.core.errors import (
    BadRowError,
    ChangedDataError,
    DataError,
    SchemaError,
    StoppedError,
    UsageError,
)
from streamomd.sources.memory import row_streams
from streamomd.sources.memory.row_streams import block_rows

ROWS = 1_000


@pytest.fixture(autouse=True)
def small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Blocks of 64 rows, a head of 100; the cache folder."""
    monkeypatch.setattr(row_streams, "LEAST_ROWS", 1)
    monkeypatch.setattr(row_streams, "MOST_ROWS", 64)
    monkeypatch.setattr(row_streams, "HEAD_ROWS", 100)
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def table() -> pa.Table:
    """Columns of many kinds, some rows bad."""
    draw, rows = np.random.default_rng(3), ROWS
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=n % 50) for n in range(rows)]
    numbers = draw.normal(size=rows)
    return pa.table({
        "y": draw.integers(0, 3, rows),
        "x": pa.array(numbers, mask=draw.random(rows) < 0.05),
        "w": np.where(draw.random(rows) < 0.05, -1.0, 1.0),
        "city": pa.array(draw.choice(["Rome", "Oslo", "Bern"], rows)).dictionary_encode(),
        "words": draw.choice(["a b c", "b c", "d"], rows),
        "day": days,
        "list": [[float(n), 1.0] for n in numbers],
        "inner": [{"z": float(n)} for n in numbers],
        "tags": [["u", "v"][: n % 3] for n in range(rows)],
    })  # fmt: skip


JOB: dict[str, Any] = {
    "label": "y", "weight": "w", "numeric": ["x", "inner.z"], "hashed": ["city", "tags"],
    "text": ["words"], "dates": ["day"], "vectors": ["list"], "nulls": "mean",
    "on_bad_row": "skip", "bits": 8, "quiet": True,
}  # fmt: skip


def cut(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Batches, an empty one among them."""
    yield from rows.to_batches(max_chunksize=size)[:1]
    yield rows.to_batches()[0].slice(0, 0)
    yield from rows.to_batches(max_chunksize=size)[1:]


@pytest.mark.parametrize("size", [1, 7, 64, 65, 400, ROWS])
def test_the_bits_are_those_of_a_file(size: int, tmp_path: Path, small_blocks: Path) -> None:
    """Wherever the stream's batches end; of the figures, too; and no file is written."""
    pq.write_table(table(), tmp_path / "a.parquet")
    expected = streamomd.train(str(tmp_path / "a.parquet"), **JOB, checkpoint="none").result()
    found = streamomd.train(shards=cut(table(), size), **JOB, checkpoint="none").result()
    for key in ("state_sha256", "rows", "skipped", "progressive_loss"):
        assert found.get(key) == expected.get(key), key
    assert not small_blocks.exists()


NO_NUMBER = pa.table({"ragged": pa.array([None, [], None], pa.list_(pa.float64())), "y": [0, 0, 1]})


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(world=worlds(), size=st.integers(1, 12))
@example(world=(NO_NUMBER, {"vectors": ["ragged"]}), size=1)
def test_any_columns_are_those_of_a_file(tmp_path_factory: Any, world: Any, size: int) -> None:
    """Of any types, in structs, with nulls; dictionaries and lists, too. Lists without a number are
    refused in the same words."""
    rows, data = world
    path = tmp_path_factory.mktemp("rows") / "a.parquet"
    pq.write_table(rows, path)
    job = {"data": {**data, "label": "y"}, "model": {"classes": [0, 1]}}
    given: dict[str, Any] = {"checkpoint": "none", "quiet": True}
    results: list[Any] = []
    for shards in (str(path), iter(rows.to_batches(max_chunksize=size))):
        try:
            model = streamomd.train(job, shards=shards, **given)
        except SchemaError as error:
            results.append(str(error).replace("element:", "item:"))  # the file's name of it
        else:
            families = [(column.name, column.family) for column in model.plan.types]
            results.append((model.state_sha256, model.metrics.total_rows, families))
    assert results[0] == results[1]
    if isinstance(results[0], str):
        assert "all of its lists are empty or null" in results[0]


class BreaksError(Exception):
    """What a query raises."""


def broken(rows: pa.Table, after: int) -> Iterator[pa.RecordBatch]:
    yield from rows.slice(0, after).to_batches(max_chunksize=50)
    raise BreaksError("connection lost")


def interrupted(url: str, after: int = 700) -> None:
    more: dict[str, Any] = {"checkpoint": url, "sets": {"checkpoint.every_rows": 30}}
    with pytest.raises(DataError, match="failed after 700 rows: connection lost"):
        streamomd.train(shards=broken(table(), after), **JOB, **more)


@pytest.mark.parametrize("size", [3, 128, ROWS])
def test_a_killed_run_resumes_with_the_same_rows(size: int, tmp_path: Path) -> None:
    """Cut in another way, of another type; the state is that of a run without interruption. The
    commit names the row that it reached, and rows that were learned are not learned again."""
    whole = streamomd.train(shards=table(), **JOB, checkpoint="none").result()
    url = str(tmp_path / "run")
    interrupted(url)
    stopped = streamomd.load(url)
    assert 0 < stopped.cursor.row < ROWS
    assert stopped.cursor.place == stopped.cursor.epoch == 0
    found = streamomd.resume(url, shards=cut(table(), size), quiet=True).result()
    assert found["state_sha256"] == whole["state_sha256"]
    assert found["rows"] == whole["rows"]


def changed(row: int) -> pa.Table:
    rows = table()
    at = rows.schema.get_field_index("inner")
    values = rows["inner"].to_pylist()
    values[row] = {"z": 7.5}
    return rows.set_column(at, "inner", pa.array(values))


def test_other_rows_are_refused(tmp_path: Path) -> None:
    """Exit code 3, with the rows that differ; and the run still resumes with the right ones."""
    url = str(tmp_path / "run")
    interrupted(url)
    row = streamomd.load(url).cursor.row
    with pytest.raises(ChangedDataError, match=r"Table given as shards, rows 128 to 191: ") as said:
        streamomd.resume(url, shards=changed(130), quiet=True)
    assert said.value.exit_code == 3
    full = row // 64 * 64
    with pytest.raises(ChangedDataError):
        streamomd.resume(url, shards=table().slice(0, full), quiet=True)
    with pytest.raises(streamomd.core.errors.ResumeRefusedError, match="column -tags"):
        streamomd.resume(url, shards=table().drop_columns(["tags"]), quiet=True)
    with pytest.raises(UsageError, match="pass the same rows again"):
        streamomd.resume(url, quiet=True)
    with pytest.raises(UsageError, match=r"train.epochs needs files"):
        streamomd.resume(url, shards=table(), sets={"train.epochs": 3}, quiet=True)
    assert streamomd.resume(url, shards=table(), quiet=True).finished


def test_a_shorter_stream_is_refused(tmp_path: Path) -> None:
    """Where it ends at the end of a block, before the row that the run reached."""
    url = str(tmp_path / "run")
    interrupted(url)
    assert streamomd.load(url).cursor.row > 128
    with pytest.raises(ChangedDataError, match=r"ends after row 128, and the run has learned"):
        streamomd.resume(url, shards=table().slice(0, 128), quiet=True)


def test_an_update_is_refused(tmp_path: Path) -> None:
    """A stream lists no files."""
    url = str(tmp_path / "run")
    streamomd.train(shards=table(), **JOB, checkpoint=url)
    with pytest.raises(streamomd.core.errors.UnsupportedError, match="lists no files"):
        streamomd.update(url)


NEEDS = {
    "epochs": {"epochs": 2},
    "hold-out": {"holdout": 5},
    "filter": {"where": "x > 0"},
    "shapes": {"shapes": "columns"},
    "certificate": {"rule": "adagrad", "sets": {"model.certificate": True}},
}


@pytest.mark.parametrize("need", NEEDS)
def test_rows_that_are_read_again_are_written(
    need: str, tmp_path: Path, small_blocks: Path
) -> None:
    """To the cache folder, which a checkpoint retains."""
    url, job = str(tmp_path / "run"), {**JOB, **NEEDS[need]}
    streamomd.train(shards=cut(table(), 100), **job, checkpoint=url)
    assert [*small_blocks.rglob("*.parquet")]


def test_a_stopped_run_says_how_to_resume(tmp_path: Path) -> None:
    """With the same rows, which no command line has."""

    def stopping() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(cut(table(), 100)):
            if number == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    url = str(tmp_path / "run")
    with pytest.raises(StoppedError, match=r"streamomd.resume\('.*run', shards=the same rows\)"):
        streamomd.train(shards=stopping(), **JOB, checkpoint=url)
    assert streamomd.resume(url, shards=table(), quiet=True).finished


def test_the_stream_is_read_by_the_calling_thread() -> None:
    """A connection of sqlite3 belongs to the thread that made it."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (y integer, x real)")
    values = [(n % 2, float(n % 7)) for n in range(500)]
    connection.executemany("insert into t values (?, ?)", values)

    def batches() -> Iterator[pa.RecordBatch]:
        cursor = connection.execute("select y, x from t")
        while some := cursor.fetchmany(90):
            yield pa.RecordBatch.from_pylist([{"y": y, "x": x} for y, x in some])

    given: dict[str, Any] = {"label": "y", "checkpoint": "none", "quiet": True}
    assert streamomd.train(shards=batches(), **given).result()["rows"] == 500


def test_labels_are_those_of_the_first_rows() -> None:
    """Of a stream; of what is in memory, of all rows."""
    rows = pa.table({"y": ["a", "b"] * 100 + ["c"], "x": [float(n) for n in range(201)]})
    given: dict[str, Any] = {"label": "y", "checkpoint": "none", "quiet": True}
    assert streamomd.train(shards=rows, **given).classes == ("a", "b", "c")
    with pytest.raises(BadRowError, match=r"arrow-stream://iterator, row 200, .*'c'"):
        streamomd.train(shards=cut(rows, 50), **given)
    named = {**given, "sets": {"model.classes": ["a", "b", "c"]}}
    assert streamomd.train(shards=cut(rows, 50), **named).classes == ("a", "b", "c")


def test_blocks_have_about_the_bytes_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within bounds: wide rows make small blocks."""
    monkeypatch.setattr(row_streams, "LEAST_ROWS", 256)
    monkeypatch.setattr(row_streams, "MOST_ROWS", 1 << 16)
    narrow = pa.record_batch({"x": np.zeros(1_000)})
    wide = pa.record_batch({f"x{n}": np.zeros(1_000) for n in range(100)})
    widest = pa.record_batch({"x": [["word"] * 50_000] * 3})
    assert [block_rows([one], 4 << 20) for one in (narrow, wide, widest)] == [1 << 16, 5242, 256]
