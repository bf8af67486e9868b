"""What stores that fail do to a checkpoint and to shards, one truth at a time."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from faults.http_faults import directed, peace
from faults.kinds import Unavailable
from faults.remote_s3 import S3, bucket
from streamomd.checkpoint import open_store
from streamomd.checkpoint.remote import RemoteStore
from streamomd.errors import StorageError


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
        with mock.patch("faults.proxy.PATIENCE", 30), pytest.raises(StorageError, match="Timeout"):
            found.put("data/a", b"x")
    finally:
        s3.proxy.schedule = peace
