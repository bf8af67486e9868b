"""Where the time went: every stage is told, none twice, and telling changes nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from caching import settled
from running import everything, rows, run, train, write

import streamomd
from streamomd.core.profiling import STAGES, Profile, Stage, current, profiled, staged
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.io_costs import shares
from streamomd.sources.find import find

READING = {"read": 0.25, "decompress": 0.25, "decode": 0.5}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A processor's clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr("time.thread_time", lambda: now[0])
    return now


def test_an_inner_stage_takes_its_time_from_the_outer_one(clock: list[float]) -> None:
    """Seconds belong to one stage alone, so that they sum to what passed."""
    with profiled() as profile:
        with Stage("gather"):
            clock[0] += 1.0
            with Stage("hash"):
                clock[0] += 4.0
            clock[0] += 2.0
        with Stage("hash"):
            clock[0] += 8.0
    assert profile.seconds == {"gather": 3.0, "hash": 12.0}


def test_making_items_is_the_stage_and_using_them_is_not(clock: list[float]) -> None:
    """Of a generator only what passes within it counts, and its items come unchanged."""

    def made() -> Any:
        for item in (1, None, 3):
            clock[0] += 1.0
            yield item

    with profiled() as profile:
        found = []
        for item in staged("decode", made()):
            clock[0] += 100.0
            found.append(item)
    assert (found, profile.seconds) == ([1, None, 3], {"decode": 3.0})


def test_an_error_ends_its_stage(clock: list[float]) -> None:
    """What raises was worked at, too; the stage outside goes on with its own time."""
    with profiled() as profile, Stage("gather"):
        with pytest.raises(ValueError, match="bad row"), Stage("hash"):
            clock[0] += 2.0
            raise ValueError("bad row")
        clock[0] += 1.0
    assert profile.seconds == {"hash": 2.0, "gather": 1.0}


def test_nothing_is_kept_where_nobody_asks() -> None:
    """Outside of ``profiled``, and in a thread that was not made within, a stage is nothing."""
    with Stage("learn"):
        assert current() is None
    with profiled() as profile:
        other = threading.Thread(target=lambda: Stage("learn").__enter__())
        other.start()
        other.join()
    assert profile.seconds == {}


def test_reading_is_shared_out_and_the_rest_is_all_else() -> None:
    """Stages sum to the processors' time of the run, without that of finding the shares."""
    profile = Profile({"decode": 8.0, "learn": 3.0}, cpu=14.0, excluded=1.0, shares=READING)
    assert profile.stages() == {
        "read": 2.0, "decompress": 2.0, "decode": 4.0, "learn": 3.0, "all else": 2.0
    }  # fmt: skip
    assert sum(profile.stages().values()) == profile.to_json()["cpu"]


@pytest.mark.parametrize(("waited", "limit"), [(0.2, "learning"), (3.0, "reading")])
def test_the_limit_is_named(waited: float, limit: str) -> None:
    """A learner that waits for rows is limited by reading."""
    told = str(Profile({"learn": 1.0}, waited=waited, wall=10.0, cpu=1.0, rows=1_000_000))
    assert f"{limit} is the limit here" in told
    assert "1,000 100.0%" in " ".join(told.split())


def test_every_stage_of_a_training_is_told(tmp_path: Path) -> None:
    """A run with columns of every kind names all stages, and learns the same bits as without."""
    table = rows(400).append_column("t", pa.array(["a word", "or two"] * 200))
    write(tmp_path / "data" / "0.parquet", table.drop(["c"]))
    words = [tmp_path / "data", *everything(), "--set", "data.text=t", "--where", "k is not null"]
    plain = train(*words, "--checkpoint", tmp_path / "plain")
    settled(tmp_path / "data")  # else nothing is kept of it
    kept = ["--cache", tmp_path / "kept", "--profile"]
    told = train(*words, "--checkpoint", tmp_path / "told", *kept)
    assert set(told["profile"]["stages"]) == {*STAGES, "all else"}
    assert told["profile"]["rows"] == 400
    assert told["state_sha256"] == plain["state_sha256"]


def test_uncompressed_pages_are_taken_apart(tmp_path: Path) -> None:
    """Footers have another name for no compression than pyarrow writes by."""
    table = rows(50).select(["y", "n"])
    pq.write_table(table, tmp_path / "0.parquet", compression={"y": "none", "n": "zstd"})
    found = shares(find(str(tmp_path)), ReadRequest(("y", "n"), (), 1 << 20, 1 << 20))
    assert {*found} == {"read", "decompress", "decode"}


def test_shards_without_pages_are_decoded_alone(tmp_path: Path) -> None:
    """An Arrow shard has no pages: its reading is not taken apart."""
    table = rows(50).select(["y", "w", "n"])
    path = tmp_path / "0.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with streamomd.profiled() as profile:
        streamomd.train(shards=[str(path)], label="y", weight="w", checkpoint="none", quiet=True)
    assert profile.shares == {"decode": 1.0}
    assert profile.rows == 50


def test_a_resumed_run_is_told_of_too(tmp_path: Path) -> None:
    """``resume --profile`` counts the rows it learned itself."""
    write(tmp_path / "data" / "0.parquet", rows(60).select(["y", "w", "n"]))
    train(tmp_path / "data", "--label", "y", "--weight", "w", "--checkpoint", tmp_path / "run")
    done = run("resume", tmp_path / "run", "--epochs", 3, "--profile", "--json").result
    assert done["profile"]["rows"] == 120


def test_reading_is_taken_apart_where_most_columns_are_read() -> None:
    """A look at the labels, before the rows, does not stand for them."""
    profile = Profile()
    for columns, parts in ((1, {"decode": 1.0}), (3, READING), (2, {"read": 1.0})):
        profile.split(columns, lambda parts=parts: parts)
    assert profile.shares == READING
