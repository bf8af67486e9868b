"""The part of S3 that a checkpoint uses, with counted requests, a latency and a bandwidth.

``moto`` behaves more like S3 and is the reference for what S3 answers; this server is fast enough
to measure with, and proves what it received in the ways that stores do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PATIENCE = 20.0
CHUNK = 256 << 10
PAGE = 1000
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"

Answer = tuple[int, dict[str, str], bytes]
Fault = Callable[[str, str], Awaitable[Answer | None]]
"""``fault(operation, key)``: an answer in place of the store's, or None."""


async def _no_fault(operation: str, key: str) -> Answer | None:
    return None


def hold(count: int, part: str = ".safetensors") -> Fault:
    """A fault: requests for names with such a part wait until ``count`` of them are in flight, 5 s
    at most."""
    waiting, full = 0, asyncio.Event()

    async def fault(operation: str, key: str) -> Answer | None:
        nonlocal waiting
        if part in key:
            waiting += 1
            if waiting >= count:
                full.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(full.wait(), 5.0)
        return None

    return fault


@dataclass(eq=False)
class Waves:
    """A fault: requests are answered in waves of these sizes, none of a wave before all have come.

    late: how many waited for others in vain, 20 s.
    """

    sizes: tuple[int, ...]
    late: int = 0
    count: int = 0

    async def __call__(self, operation: str, key: str) -> Answer | None:
        number, last = self.count, time.monotonic() + 20.0
        self.count += 1
        end = next((end for end in itertools.accumulate(self.sizes) if number < end), 0)
        while self.count < end:
            if time.monotonic() > last:
                self.late += 1
                break
            await asyncio.sleep(0.001)
        return None


@dataclass(eq=False)
class S3Server:
    """Objects by "bucket/key".

    proof: what a PUT's answer proves: "sha256" (as Amazon), "md5" (its ETag), "" (nothing).
    latency: seconds before each answer. bandwidth: bytes a second of all bodies together, 0: no
    limit. trusting: claimed checksums are not computed, which would take the client's processor.
    """

    proof: str = "sha256"
    latency: float = 0.0
    bandwidth: float = 0.0
    trusting: bool = False
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Operation, key, begin and begin of the answer of each request."""
    fault: Fault = _no_fault
    _free: float = 0.0

    def __enter__(self) -> S3Server:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=4 * CHUNK), self._loop
        ).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def options(self) -> dict[str, Any]:
        """Storage options that lead here."""
        host, port = self._server.sockets[0].getsockname()
        return {
            "key": "id",
            "secret": "canary",
            "endpoint_url": f"http://{host}:{port}",
            "client_kwargs": {"region_name": "eu-west-1"},
            "config_kwargs": {
                "s3": {"addressing_style": "path"},
                "retries": {"max_attempts": 0},  # of the client: others are ours
            },
            "skip_instance_cache": True,
        }

    def most_in_flight(self, part: str = ".safetensors") -> int:
        """The most requests for objects with such a part of their names that were in flight at a
        time."""
        parts = [one for one in self.log if part in one[1]]
        moments = sorted([(b, 1) for *_, b, _ in parts] + [(e, -1) for *_, e in parts])
        now = most = 0
        for _, step in moments:
            now += step
            most = max(most, now)
        return most

    def count(self, *, clear: bool = True) -> dict[str, int]:
        """Requests by operation, sorted, since the last call."""
        found = dict(sorted(self.requests.items()))
        if clear:
            self.requests.clear()
            self.log.clear()
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._one(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client hung up
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        (method, target, _), *lines = [
            line.split(" ", 2) if not at else line.split(":", 1)
            for at, line in enumerate(head[:-4].split("\r\n"))
        ]
        headers = {name.lower(): value.strip() for name, value in lines}
        if "expect" in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        url = urlsplit(target)
        key, query = unquote(url.path).strip("/"), parse_qs(url.query)
        operation = "LIST" if "list-type" in query else method
        self.requests[operation] += 1
        began = time.monotonic()
        body = bytearray()
        left = int(headers.get("content-length", 0))
        while left:
            piece = await reader.read(min(left, CHUNK))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            body += piece
            await self._pace(len(piece))
        await asyncio.sleep(self.latency)
        name = f"{key}/{query.get('prefix', [''])[0]}" if operation == "LIST" else key
        found = await self.fault(operation, name) or self._answer(
            operation, key, query, headers, bytes(body)
        )
        # Before the client has the answer, after which a test may clear the log.
        self.log.append((operation, key, began, time.monotonic()))
        status, more, data = found
        length = more.pop("Content-Length", str(len(data)))
        text = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{text}\r\n".encode())
        for low in range(0, len(data) if operation != "HEAD" else 0, CHUNK):
            writer.write(data[low : low + CHUNK])
            await writer.drain()
            await self._pace(min(CHUNK, len(data) - low))

    async def _pace(self, count: int) -> None:
        """Wait until the shared line has had the time for these bytes."""
        if self.bandwidth:
            now = time.monotonic()
            self._free = max(now, self._free) + count / self.bandwidth
            await asyncio.sleep(self._free - now)

    def _answer(
        self,
        operation: str,
        key: str,
        query: Mapping[str, list[str]],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        if operation == "LIST":
            first = int(query.get("continuation-token", ["0"])[0])
            slash = query.get("delimiter", [""])[0]
            return self._list(key, query.get("prefix", [""])[0], first, slash)
        if operation == "PUT":
            return self._put(key, headers, body)
        if operation == "POST":
            for name in re.findall("<Key>(.*?)</Key>", body.decode()):
                self.objects.pop(f"{key}/{unescape(name)}", None)
            return 200, {"Content-Type": "application/xml"}, b"<DeleteResult></DeleteResult>"
        if operation == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        data = self.objects[key]
        about = {"ETag": '"0"', "Last-Modified": DATE}
        if operation == "HEAD":
            return 200, {**about, "Content-Length": str(len(data))}, b""
        if "range" not in headers:
            return 200, about, data
        low, high = headers["range"].removeprefix("bytes=").split("-")
        if int(low) >= len(data):
            return _error(416, "InvalidRange")
        piece = data[int(low) : int(high) + 1]
        span = f"bytes {low}-{int(low) + len(piece) - 1}/{len(data)}"
        return 206, {**about, "Content-Range": span}, piece

    def _put(self, key: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if "/" not in key:
            return 200, {}, b""  # a bucket
        if headers.get("if-none-match") == "*" and key in self.objects:
            return _error(412, "PreconditionFailed")
        claimed = headers.get("x-amz-checksum-sha256", "")
        compared = self.proof == "sha256" and claimed and not self.trusting
        if compared and base64.b64encode(hashlib.sha256(body).digest()).decode() != claimed:
            return _error(400, "BadDigest")
        self.objects[key] = body
        if self.proof == "sha256" and claimed:
            return 200, {"ETag": '"0"', "x-amz-checksum-sha256": claimed}, b""
        md5 = hashlib.md5(body).hexdigest() if self.proof == "md5" else "0"
        return 200, {"ETag": f'"{md5}"'}, b""

    def _list(self, bucket: str, prefix: str, first: int, delimiter: str) -> Answer:
        files, folders = [], set()
        for key, data in sorted(self.objects.items()):
            name = key.removeprefix(f"{bucket}/")
            if not key.startswith(f"{bucket}/{prefix}"):
                continue
            rest, slash, _ = name[len(prefix) :].partition("/")
            if slash and delimiter:
                folders.add(f"{prefix}{rest}/")
            else:
                files.append((name, len(data)))
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2024-01-01T00:00:00.000Z"
            f'</LastModified><ETag>"0"</ETag><Size>{size}</Size></Contents>'
            for name, size in files[first : first + PAGE]
        )
        truncated = "true" if (end := first + PAGE) < len(files) else "false"
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(folders)
        )
        text = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{truncated}</IsTruncated>"
            f"<NextContinuationToken>{end}</NextContinuationToken>"
            f"{contents}{common}</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, text.encode()


def _error(status: int, code: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return status, {"Content-Type": "application/xml"}, text.encode()
