"""What does a store's latency cost when shards are read?

A store (S3's GET, HEAD and LIST, in a process of its own, on this machine) that answers every
request 30 ms later. Against it, in turn: this package's reader, and plain pyarrow, which knows the
paths and reads one file after another with ``pre_buffer=True``, each into record batches of all
columns. Both through s3fs. Requests are counted by the store.

    python benchmarks/cloud.py [--latency 0.03] [--times 5] [--json]

Target: ≤ 1.3 × plain pyarrow, for the median of the pairs' ratios of wall time.
"""

from __future__ import annotations

import http.server
import io
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import common
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.shards import stored_object
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find
from streamomd.training.row_stream import REMOTE_AHEAD_BYTES, UNIT_BYTES

BUCKET = "bucket"
COLUMNS = 55
TIMED = "Mon, 23 Nov 2026 00:00:00 GMT"


def numbers(rows: int, seed: int = 0) -> pa.Table:
    """Columns that do not compress."""
    draw = np.random.default_rng(seed)
    return pa.table({f"x{at}": draw.normal(size=rows) for at in range(COLUMNS)})


def parquet(table: pa.Table, group: int) -> bytes:
    """A file in memory."""
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=group)
    return out.getvalue()


SETS: Mapping[str, Callable[[], dict[str, bytes]]] = {
    "1 of 2.5 MB, 8 row groups": lambda: {"a.parquet": parquet(numbers(5_600), 700)},
    "100 of 20 rows": lambda: {
        f"{at:03}.parquet": parquet(numbers(20, at), 20) for at in range(100)
    },
    "8 of 8 MB": lambda: {f"{at}.parquet": parquet(numbers(17_000, at), 17_000) for at in range(8)},
    "1 of 100 MB, 8 row groups": lambda: {"a.parquet": parquet(numbers(220_000), 27_500)},
    "1 of 48 MB, 100 row groups": lambda: {"a.parquet": parquet(numbers(100_000), 1_000)},
}


class Store(http.server.BaseHTTPRequestHandler):
    """Objects in memory, each request answered after a while."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer with a body waits 40 ms for an ACK
    objects: Mapping[str, bytes]
    latency: float
    count: Any

    def do_GET(self) -> None:
        """A range of an object, or a list of objects."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """An object's size."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        with self.count.get_lock():
            self.count.value += 1
        time.sleep(self.latency)
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").strip("/")
        if "list-type" in parts.query:
            return self._send(200, self._listed(parse_qs(parts.query)), {}, body=body)
        data = self.objects.get(key)
        if data is None:
            return self._send(404, b"", {}, body=body)
        head = {"ETag": f'"{len(data)}-{key}"', "Last-Modified": TIMED, "Accept-Ranges": "bytes"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None:
            return self._send(200, data, head, body=body)
        low, high = int(found[1]), min(int(found[2]), len(data) - 1)
        head["Content-Range"] = f"bytes {low}-{high}/{len(data)}"
        return self._send(206, memoryview(data)[low : high + 1], head, body=body)

    def _listed(self, query: Mapping[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<LastModified>2026-11-23T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{len(data)}-{escape(key)}&quot;</ETag></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix) and "/" not in key[len(prefix) :]
        )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        ).encode()

    def _send(self, status: int, data: Any, head: Mapping[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in {**head, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        """Nothing is logged."""


def serve(latency: float, ready: Any, count: Any) -> None:
    """In a process of its own, until it is ended."""
    Store.objects = {
        f"{at}/{name}": data
        for at, make in enumerate(SETS.values())
        for name, data in make().items()
    }
    Store.latency, Store.count = latency, count
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.daemon_threads = True
    ready.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def store(latency: float) -> Iterator[tuple[dict[str, Any], Any]]:
    """Storage options of a store, and how many requests it had."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    count = context.Value("q", 0)
    process = context.Process(target=serve, args=(latency, theirs, count), daemon=True)
    process.start()
    try:
        options = {"key": "id", "secret": "none", "endpoint_url": f"http://127.0.0.1:{ours.recv()}"}
        yield options, count
    finally:
        process.terminate()
        process.join()


def ours(url: str, options: dict[str, Any]) -> int:
    """Rows that this package reads, from the listing on."""
    stored_object.forget_recent()
    shards = find(url, storage_options=options)
    names = shards.shards[0].schema.names
    batches = read_batches(
        shards,
        places=range(len(shards)),
        columns=names,
        budget_bytes=REMOTE_AHEAD_BYTES,
        unit_bytes=UNIT_BYTES,
    )
    return sum(found.rows for found in batches)


def plain(url: str, options: dict[str, Any]) -> int:
    """Rows that pyarrow reads, from the listing on, one file after another."""
    fs = fsspec.filesystem("s3", **options)
    fs.invalidate_cache()
    rows = 0
    for path in sorted(fs.ls(url.removeprefix("s3://"), detail=False)):
        with fs.open(path, "rb", cache_type="none") as file:
            whole = pq.ParquetFile(file, pre_buffer=True)
            rows += sum(batch.num_rows for batch in whole.iter_batches(use_threads=True))
    return rows


def main() -> None:
    """The table."""
    parser = common.arguments(__doc__)
    parser.add_argument("--latency", type=float, default=0.03)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    lines, figures = [], {}
    with store(given.latency) as (options, count):
        for at, name in enumerate(SETS):
            url, asked = f"s3://{BUCKET}/{at}/", {}
            for reader in (ours, plain):  # and warm
                before = count.value
                rows = reader(url, options)
                asked[reader.__name__] = count.value - before
            jobs = {one.__name__: partial(one, url, options) for one in (ours, plain)}
            seconds = common.in_turn(jobs, given.times)
            ratio = common.ratio(seconds["ours"], seconds["plain"])
            medians = [statistics.median(seconds[one]) for one in ("ours", "plain")]
            lines.append([name, rows, asked["ours"], asked["plain"], *medians, ratio])
            figures[name] = {"requests": asked, "seconds": medians, "ratio": ratio}
    head = ["shards", "rows", "requests", "pyarrow's", "seconds", "pyarrow's", "ratio"]
    common.table(head, lines)
    common.finish(figures, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
