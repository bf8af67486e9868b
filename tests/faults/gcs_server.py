"""The part of Google Cloud Storage's JSON API that gcsfs uses, with ``ifGenerationMatch`` honoured.

The emulators on PyPI let a second create pass: a test against them would prove nothing.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class Bucket:
    """Objects by name: (generation, bytes); uploads in pieces by id: (name, create, bytes)."""

    objects: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    uploads: dict[str, tuple[str, bool, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def put(self, name: str, data: bytes, *, create: bool) -> Answer:
        """One whole object; 412 if it is to be new and is not."""
        with self.lock:
            if create and name in self.objects:
                return _refused(412, "conditionNotMet")
            self.objects[name] = next(self._numbers), data
            return _said(self.about(name))

    def about(self, name: str) -> dict[str, Any]:
        generation, data = self.objects[name]
        told = {"name": name, "bucket": "bucket", "size": str(len(data))}
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        return {**told, "generation": str(generation), "etag": f"e{generation}", "md5Hash": md5}

    def start(self, name: str, place: str, *, create: bool) -> Answer:
        """An upload in pieces; its condition holds when the last has come."""
        key = str(next(self._numbers))
        self.uploads[key] = name, create, b""
        return 200, b"", {"Location": f"{place}/upload/storage/v1/b/bucket/o?upload_id={key}"}

    def piece(self, key: str, told: str, data: bytes) -> Answer:
        """``told``: "bytes 0-99/200". A piece that came before is not taken twice."""
        if key not in self.uploads:
            return _refused(404, "notFound")
        span, _, size = told.removeprefix("bytes ").partition("/")
        name, create, before = self.uploads[key]
        whole = before[: int(span.partition("-")[0])] + data
        self.uploads[key] = name, create, whole
        if len(whole) < int(size):
            return 308, b"", {"Range": f"bytes=0-{len(whole) - 1}"}
        del self.uploads[key]
        return self.put(name, whole, create=create)

    def names(self, prefix: str) -> Answer:
        with self.lock:
            below = [name for name in sorted(self.objects) if name.startswith(prefix)]
            rests = {name: name[len(prefix) :].partition("/") for name in below}
            items = [self.about(name) for name in below if not rests[name][1]]
        folders = sorted({f"{prefix}{rest[0]}/" for rest in rests.values() if rest[1]})
        return _said({"items": items, "prefixes": folders})


def _said(told: Any) -> Answer:
    return 200, json.dumps(told).encode(), {"Content-Type": "application/json"}


def _piece(data: bytes, span: str | None) -> Answer:
    """An object, or a range of it."""
    if span is None:
        return 200, data, {}
    low, high = map(int, span.removeprefix("bytes=").split("-"))
    if low >= len(data):
        return _refused(416, "requestedRangeNotSatisfiable")
    high = min(high, len(data) - 1)
    return 206, data[low : high + 1], {"Content-Range": f"bytes {low}-{high}/{len(data)}"}


def _refused(status: int, reason: str) -> Answer:
    return status, json.dumps({"error": {"code": status, "message": reason}}).encode(), {}


def answer(bucket: Bucket, method: str, target: str, headers: Any, body: bytes) -> Answer:
    """What the service says to a request."""
    url = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    name = unquote(url.path.partition("/o/")[2])
    create = query.get("ifGenerationMatch") == "0"
    if method == "POST":
        if "upload_id" in query:
            return bucket.piece(query["upload_id"], headers["Content-Range"], body)
        if query["uploadType"] == "resumable":
            place = f"http://{headers['Host']}"
            return bucket.start(json.loads(body)["name"], place, create=create)
        _, about, rest = body.split(b"--==0==", 2)
        told = json.loads(about.partition(b"\n\n")[2])
        data = rest.partition(b"\n\n")[2].removesuffix(b"\n--==0==--")
        return bucket.put(told["name"], data, create=create)
    if not name:
        return bucket.names(query.get("prefix", ""))
    with bucket.lock:
        if name not in bucket.objects:
            return _refused(404, "notFound")
        if method == "DELETE":
            del bucket.objects[name]
            return 204, b"", {}
        if url.path.startswith("/download/"):
            return _piece(bucket.objects[name][1], headers["Range"])
        return _said(bucket.about(name))


@contextmanager
def serving(bucket: Bucket) -> Iterator[tuple[str, int]]:
    """The service, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, data, more = answer(bucket, self.command, self.path, self.headers, body)
            self.send_response(status)
            for key, value in {**more, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            try:
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True  # the proxy hung up, as its client did

        do_POST = do_DELETE = do_GET
        log_message: Callable[..., None] = lambda *_: None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield "127.0.0.1", server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
