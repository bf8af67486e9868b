"""Shards of a web server, which may answer a request for a range with the whole file."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.core.errors import InputNotFoundError, StorageError
from streamomd.shards.reader import read_batches
from streamomd.shards.stored_object import WHOLE_BYTES, forget_recent
from streamomd.sources.find import find

pytest.importorskip("aiohttp", reason="fsspec's http needs aiohttp")


def parquet(count: int) -> bytes:
    out = io.BytesIO()
    table = pa.table({"x": np.random.default_rng(0).normal(size=count), "y": np.zeros(count)})
    pq.write_table(table, out, row_group_size=count // 4, compression="none")
    return out.getvalue()


@contextmanager
def served(data: bytes, *, ranges: bool) -> Iterator[str]:
    """The URL of a file with this content."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            if self.path != "/a.parquet":
                self.send_error(404)
                return
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
            part = data
            if ranges and wanted:
                low, high = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
                part = data[low : high + 1]
                self.send_response(206)
                self.send_header("content-range", f"bytes {low}-{high}/{len(data)}")
            else:
                self.send_response(200)
            if ranges:
                self.send_header("accept-ranges", "bytes")
            self.send_header("content-length", str(len(part)))
            self.end_headers()
            if body:
                self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    forget_recent()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/a.parquet"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def column(url: str) -> list[float]:
    found = read_batches(find(url), places=[0], columns=["x"])
    return [value for one in found for value in one.batch.column(0).to_pylist()]


@pytest.mark.parametrize("count", [40, 20_000, 1_000_000])
def test_ranges_are_read(count: int) -> None:
    """Of small objects, of those read at once, and of those read in ranges."""
    data = parquet(count)
    assert (len(data) > WHOLE_BYTES) == (count == 1_000_000)
    expected = pq.read_table(io.BytesIO(data)).column("x").to_pylist()
    with served(data, ranges=True) as url:
        assert column(url) == expected


def test_without_ranges() -> None:
    """A small file is read at once; for a larger one the error says what the server lacks."""
    for count in (40, 20_000):
        with served(parquet(count), ranges=False) as url:
            assert len(column(url)) == count
    with (
        served(parquet(1_000_000), ranges=False) as url,
        pytest.raises(StorageError, match="range"),
    ):
        column(url)


def test_a_file_that_is_not_there() -> None:
    with served(b"", ranges=True) as url, pytest.raises(InputNotFoundError, match="no such file"):
        find(url.replace("a.parquet", "b.parquet"))
