"""A run that wrong input ended before it saved a row is started over; any other one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

import streamomd
from streamomd.checkpoint import Writer, load, open_store
from streamomd.checkpoint.commit_writer import newest_replaceable
from streamomd.core.errors import (
    BadRowError,
    ConcurrentWriterError,
    DataError,
    OutputExistsError,
    StorageError,
    StreamomdError,
)
from streamomd.training.checkpoint_manager import WRONG_INPUT, record_failure

FAILED = {"rows": 0, "failed": "row 22: null"}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job whose 23rd row has a null, which is an error by default."""
    ages = [float(age) for age in range(20, 60)]
    rows = {"age": [*ages[:22], None, *ages[23:]], "y": [age % 2 for age in range(40)]}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=5)
    shards, url = str(tmp_path / "rows.parquet"), str(tmp_path / "run")
    return {"shards": [shards], "label": "y", "rule": "nag", "checkpoint": url, "quiet": True}


def test_a_corrected_job_starts_over(job: dict[str, Any]) -> None:
    """The retry needs no flag, its state is that of a first attempt, and a third is refused."""
    for _ in range(2):
        with pytest.raises(BadRowError):
            streamomd.train(**job)
    model = streamomd.train(**job, nulls="zero")
    fresh = streamomd.train(**{**job, "checkpoint": "none"}, nulls="zero")
    assert model.result()["rows"] == 40
    assert model.result()["state_sha256"] == fresh.result()["state_sha256"]
    assert streamomd.load(job["checkpoint"]).result()["rows"] == 40
    with pytest.raises(OutputExistsError):
        streamomd.train(**job, nulls="zero")


def test_the_retry_is_reported(job: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    """A line names the checkpoint, so that nothing is overwritten without a word."""
    with pytest.raises(BadRowError):
        streamomd.train(**job)
    streamomd.train(**{**job, "quiet": False}, nulls="zero")
    text = f"{job['checkpoint']}: the run there failed before it saved a row; it is started over"
    assert text in capfd.readouterr().err


def test_a_failed_run_still_resumes(job: dict[str, Any]) -> None:
    """It meets the same error, and a retry may follow that too."""
    with pytest.raises(BadRowError):
        streamomd.train(**job)
    with pytest.raises(BadRowError):
        streamomd.resume(job["checkpoint"], quiet=True)
    assert streamomd.train(**job, nulls="zero").result()["rows"] == 40


def test_saved_rows_stay(job: dict[str, Any]) -> None:
    """After a commit with rows the same error leaves a run that train does not overwrite."""
    with pytest.raises(BadRowError):
        streamomd.train(**job, sets={"checkpoint.every_rows": 10})
    with pytest.raises(OutputExistsError, match="already holds a run: continue"):
        streamomd.train(**job, nulls="zero")
    assert streamomd.load(job["checkpoint"]).result()["rows"] in (10, 20)


def test_a_corrected_sweep_starts_over(job: dict[str, Any]) -> None:
    """A sweep's first commit is treated as that of a run."""
    flags = {key: job[key] for key in ("shards", "label", "checkpoint", "quiet")}
    grid = {"rule": ["nag", "adagrad"]}
    with pytest.raises(DataError):
        streamomd.sweep(grid=grid, **flags)
    made = streamomd.sweep(grid=grid, **flags, nulls="zero")
    assert made.result()["rows"] == 40
    with pytest.raises(OutputExistsError):
        streamomd.sweep(grid=grid, **flags, nulls="zero")


@pytest.mark.parametrize(
    ("document", "starts"),
    [
        (FAILED, True),
        ({"rows": 0, "diverged": "weight 3 is inf"}, True),
        ({"rows": 0}, False),  # it may be learning now, or was killed
        ({**FAILED, "rows": 7}, False),
    ],
)
def test_what_is_started_over(tmp_path: Path, document: dict[str, Any], starts: bool) -> None:
    """Only a run without saved rows whose own writer recorded its end."""
    store = open_store(str(tmp_path))
    Writer.begin(store, document, ())
    if starts:
        assert Writer.begin(store, {"rows": 0}, ()).sequence == 1
        with pytest.raises(OutputExistsError, match="that has saved no rows yet"):
            Writer.begin(store, {"rows": 0}, ())
    else:
        with pytest.raises(OutputExistsError, match="already holds a run"):
            newest_replaceable(store, restart=False)


def test_a_resumed_run_is_not_started_over(tmp_path: Path) -> None:
    """A writer that took over a failed run may be learning: train refuses to replace it."""
    store = open_store(str(tmp_path))
    Writer.begin(store, FAILED, ())
    Writer.take_over(store, load(store, lambda commit: lambda part: None))
    with pytest.raises(OutputExistsError):
        Writer.begin(store, {"rows": 0}, ())


def test_one_of_two_retries_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that see the failed commit make the same sequence: the store lets one create it."""
    store = open_store(str(tmp_path))
    Writer.begin(store, FAILED, ())
    seen = newest_replaceable(store, restart=False)
    first = Writer.begin(store, {"rows": 0}, ())
    patched = "streamomd.checkpoint.commit_writer.newest_replaceable"
    monkeypatch.setattr(patched, lambda *_, **__: seen)
    with pytest.raises(ConcurrentWriterError):
        Writer.begin(store, {"rows": 0}, ())
    assert first.commit({"rows": 5}, ()).sequence == 2


def test_a_fenced_run_records_no_failure(tmp_path: Path) -> None:
    """What another writer saves since stays the newest commit, and no second error is raised."""
    store = open_store(str(tmp_path))
    first = Writer.begin(store, {"rows": 0}, ())
    Writer.begin(store, {"rows": 0}, (), restart=True)
    record_failure(first, DataError("bad"))
    with pytest.raises(OutputExistsError):
        Writer.begin(store, {"rows": 0}, ())


@pytest.mark.parametrize("error", [StorageError("no answer"), StreamomdError("?")])
def test_other_errors_are_not_recorded(tmp_path: Path, error: StreamomdError) -> None:
    """A run that a store or a defect ended is resumed, so that nothing is lost."""
    assert error.exit_code not in WRONG_INPUT
    store = open_store(str(tmp_path))
    writer = Writer.begin(store, {"rows": 0}, ())
    record_failure(writer, error)
    assert writer.sequence == 0


def test_a_model_without_rows_is_named(
    job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """evaluate and inspect print a line; not once rows are learned, nor after a warm start."""
    with pytest.raises(BadRowError):
        streamomd.train(**job)
    assert run("inspect", job["checkpoint"]).err.count("predicts the same for every row") == 1
    streamomd.train(**job, nulls="zero")
    assert run("inspect", job["checkpoint"]).err == ""
    assert streamomd.load(job["checkpoint"], at=0).is_untrained
    shard = f"{job['checkpoint']}.parquet"
    warm = {**job, "shards": [shard], "checkpoint": f"{job['checkpoint']}-2"}
    pq.write_table(pa.table({"age": [2.0, 1.0], "y": [None, 1]}), shard)
    with pytest.raises(BadRowError):
        streamomd.train(**warm, start=job["checkpoint"])
    assert not streamomd.load(warm["checkpoint"]).is_untrained
