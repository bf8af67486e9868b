"""What stores that fail do to a checkpoint and to shards, one truth at a time."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_faults import directed, peace
from kinds import Unavailable, Verdict
from remote_race import Race, race
from remote_s3 import S3, bucket, taken_out
from running import rows

from streamomd.checkpoint import open_store
from streamomd.checkpoint.stores.remote import RemoteStore
from streamomd.core.errors import StorageError
from streamomd.sources.find import find


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    try:
        with bucket() as found:
            yield found
    except Unavailable as why:
        pytest.skip(str(why))


def store(s3: S3, name: str) -> RemoteStore:
    found = open_store(f"s3://struck/{name}", s3.options)
    assert isinstance(found, RemoteStore)
    return found


def test_an_upload_that_nobody_listens_to_has_an_end(s3: S3) -> None:
    """The store takes the connection and reads nothing more: StorageError, and no hang.

    aiohttp starts its clock when a request is sent, and this one never is.
    """
    found = store(s3, "deaf")
    assert found.exclusive
    s3.proxy.schedule = directed("PUT", "stall", 0, 99)
    try:
        with mock.patch("proxy.PATIENCE", 30), pytest.raises(StorageError, match="Timeout"):
            found.put("data/a", b"x")
    finally:
        s3.proxy.schedule = peace


def test_a_store_that_does_not_say_which_condition_failed_excludes_all_the_same(s3: S3) -> None:
    """S3 as others make it answers 412 and no more: that is put-if-absent, and it is used."""
    s3.proxy.schedule = directed("PUT", "bare", 0, 10**6)
    try:
        assert store(s3, "bare").exclusive
        run = Race(lambda: store(s3, "bare"))
        assert race(run, 7, lambda: taken_out("bare/")) is Verdict.NAMED
        assert ("PUT", "bare") in s3.proxy.struck
    finally:
        s3.proxy.schedule = peace


def test_a_glob_never_gives_fewer_shards_than_there_are(s3: S3) -> None:
    """Whichever listing fails: both shards, or StorageError; fsspec's own glob leaves one out."""
    fs = fsspec.filesystem("s3", **s3.calm)
    shard = pa.BufferOutputStream()
    pq.write_table(rows(3), shard)
    for folder in "ab":
        fs.pipe_file(f"struck/globbed/{folder}/x.parquet", shard.getvalue().to_pybytes())
    counts = set()
    for first in (*range(10), 99):  # the first ones look for tables
        s3.proxy.schedule = directed("LIST", "403", first, 1)
        try:
            counts.add(len(find("s3://struck/globbed/*/*.parquet", storage_options=s3.options)))
        except StorageError:
            counts.add(0)
        finally:
            s3.proxy.schedule = peace
    assert counts == {0, 2}
