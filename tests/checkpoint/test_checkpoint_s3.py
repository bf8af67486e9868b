"""Checkpoints in S3, as far as a server in this process behaves like it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partialmethod

import numpy as np
import pytest
from checkpoint_helpers import a_run, begin, holds, load_all, numbers
from moto_bucket import moto_bucket

from streamomd.checkpoint import (
    Store,
    Writer,
    list_commits,
    open_store,
    read_document,
    write_document,
)
from streamomd.core.errors import ConcurrentWriterError, NoCommitError, StorageError

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
BUCKET = "bucket"
PIECE = 5 << 20  # the least that S3 allows


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, object]]:
    """Storage options of a server with one bucket."""
    with moto_bucket(BUCKET) as made:
        yield made


@pytest.fixture
def store(options: dict[str, object]) -> Store:
    return open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}/run/", options)


def test_a_run_in_a_bucket(store: Store) -> None:
    """Commits, shared documents, retention, loading and verifying work as on disk."""
    assert store.exclusive
    writer = begin(store, keep=2)
    dataset = write_document(store, "dataset", [1, 2])
    for at in range(1, 4):
        writer.commit({"rows": 10 * at, "dataset": dataset}, numbers(at))
    holds(store, 3)
    assert [one["sequence"] for one in list_commits(store, deep=True) if one["ok"]] == [2, 3]
    assert read_document(store, "dataset", dataset) == [1, 2]
    assert store.size("data") is None
    assert store.names("probe/") == []


def test_the_later_writer_wins_in_a_bucket(store: Store) -> None:
    """An older writer is stopped by put-if-absent."""
    old = a_run(store, 1)
    Writer.take_over(store, load_all(store)[0])
    with pytest.raises(ConcurrentWriterError):
        old.commit({"rows": 20}, numbers(2))
    holds(store, 1)


def test_a_large_part_is_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is uploaded in pieces is the same part."""
    pieces = partialmethod(s3fs.S3FileSystem._pipe_file, chunksize=PIECE)
    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", pieces)
    array = np.arange(3 * PIECE // 8, dtype=np.float64)
    Writer.begin(store, {"rows": 0}, [(0, 1, {"w": array})])
    [(_, _, found)] = load_all(store)[1]
    assert found["w"] == ("<f8", array.shape, array.tobytes())


def test_other_processes_listings_are_seen(store: Store, options: dict[str, object]) -> None:
    """What another store object commits is visible immediately: no cached listing is used."""
    other = open_store(store.url, options)
    with pytest.raises(NoCommitError):
        load_all(other)
    writer = begin(store)
    holds(other, 0)
    writer.commit({"rows": 10}, numbers(1))
    holds(other, 1)


def test_a_missing_bucket_is_reported(options: dict[str, object]) -> None:
    """Writing to a bucket that does not exist is StorageError without the secret."""
    with pytest.raises(StorageError, match="s3://nobucket/run") as error:
        begin(open_store("s3://nobucket/run", options))
    assert "canary" not in str(error.value)
