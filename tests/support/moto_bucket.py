"""moto's server of S3 with an empty bucket."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

KEYS = {"key": "id", "secret": "canary"}


@contextmanager
def moto_bucket(bucket: str = "bucket") -> Iterator[dict[str, Any]]:
    """Storage options of a server with this bucket alone; skips the test without moto or s3fs."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    # Buckets are the process's: those of other tests are still there.
    urllib.request.urlopen(f"{endpoint}/moto-api/reset", data=b"").close()
    client = {"endpoint_url": endpoint, "client_kwargs": {"region_name": "eu-west-1"}}
    options: dict[str, Any] = {**KEYS, **client}
    s3fs.S3FileSystem(**options, skip_instance_cache=True).mkdir(bucket)
    try:
        yield options
    finally:
        server.stop()
