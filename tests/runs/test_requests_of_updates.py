"""How many requests an update of a source of many directories makes, and for what."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamomd

pytest.importorskip("s3fs", reason="s3fs is not installed")
from s3_server import PAGE, S3Server

RUN, DIRECTORIES = "s3://bucket/runs/a", 30


def shard(seed: int) -> bytes:
    """A few rows, their words among them: names are saved too."""
    draw, out = np.random.default_rng(seed), io.BytesIO()
    x = draw.normal(size=40)
    words = draw.choice(["a", "b", "c"], 40)
    pq.write_table(pa.table({"x": x, "word": words, "y": (x > 0).astype(int)}), out)
    return out.getvalue()


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


def arrive(server: S3Server, numbers: range) -> None:
    for at in numbers:
        server.objects[f"bucket/rows/day={at % DIRECTORIES:02}/{at:05}.parquet"] = shard(at)


def options(server: S3Server) -> dict[str, Any]:
    given = {key: one for key, one in server.options.items() if key != "skip_instance_cache"}
    return {"storage_options": given, "checkpoint_storage_options": given, "quiet": True}


def update(server: S3Server) -> Counter[str]:
    """The requests of an update; those of the checkpoint with the folder."""
    server.count()
    streamomd.update(RUN, settle=0, **options(server))
    return Counter(
        f"{operation} {key.removeprefix('bucket/runs/a/').partition('/')[0]}"
        for operation, key, *_ in server.log
    )


@pytest.mark.parametrize(
    "files, updates", [(60, 8), pytest.param(2 * PAGE, 12, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("source", ["rows/", "rows", "rows/*/*.parquet"])
def test_an_update_takes_few_requests(
    server: S3Server, source: str, files: int, updates: int
) -> None:
    """One new file: 11, and nothing new: 4, whatever the numbers of directories and of commits;
    and one listing for each further 1,000 files."""
    arrive(server, range(files))
    streamomd.train(f"s3://bucket/{source}", label="y", checkpoint=RUN, **options(server))
    more = files // PAGE
    for at in range(files, files + updates):
        arrive(server, range(at, at + 1))
        found = update(server)
        assert found.total() <= 11 + more, found
    assert found == {
        "LIST bucket": 3 + more,  # the run, its source, and the run's commits after the last one
        "GET commits": 1,
        "GET data": 1,
        "GET bucket": 1,  # the new shard
        "PUT FORMAT.json": 1,  # does the store refuse to overwrite?
        "PUT commits": 2,  # the list of new shards, and the model that learned them
        "PUT data": 1,
        "POST bucket": 1,  # an older commit is deleted
    }
    nothing = {"LIST bucket": 2 + more, "GET commits": 1, "GET data": 1}
    assert update(server) == nothing
    model = streamomd.load(RUN, storage_options=options(server)["storage_options"])
    assert model.metrics.total_rows == 40 * (files + updates)


def test_a_poll_that_finds_nothing_is_one_listing(server: S3Server) -> None:
    """``follow`` lists the source alone, as long as nothing is new."""
    arrive(server, range(60))
    streamomd.train("s3://bucket/rows/", label="y", checkpoint=RUN, **options(server))
    server.count()
    streamomd.follow(RUN, every=0.05, settle=0, idle_exit=1.0, **options(server))
    found = Counter(operation for operation, *_ in server.log)
    assert found["LIST"] >= 2  # the first is that of the run
    assert found == {"LIST": found["LIST"], "GET": 2}


def test_what_a_manifest_holds_is_read_from_a_copy(server: S3Server, tmp_path: Any) -> None:
    """A run that is copied to a disk continues there; its documents are in files again."""
    arrive(server, range(5))
    streamomd.train("s3://bucket/rows/", label="y", checkpoint=RUN, **options(server))
    arrive(server, range(5, 6))
    update(server)
    for key, data in server.objects.items():
        if key.startswith("bucket/runs/a/"):
            to = tmp_path / "copy" / key.removeprefix("bucket/runs/a/")
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
    assert not (tmp_path / "copy" / "segments").exists()
    arrive(server, range(6, 7))
    given = options(server)
    del given["checkpoint_storage_options"]
    model = streamomd.update(str(tmp_path / "copy"), settle=0, **given)
    assert model.metrics.total_rows == 7 * 40
    assert (tmp_path / "copy" / "segments").is_dir()
    update(server)
    there = streamomd.load(RUN, storage_options=given["storage_options"])
    assert there.state_sha256 == model.state_sha256
