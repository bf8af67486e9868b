"""The server's endpoints, as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streamomd.core.http_servers import TYPE, Family, Histogram, Labels, prometheus_text
from streamomd.core.urls import printable
from streamomd.integrations.serve.model_reloader import ModelReloader, Snapshot
from streamomd.integrations.serve.openapi import (
    CONTENT_SECURITY_POLICY,
    openapi_document,
    openapi_page,
)
from streamomd.integrations.serve.request_rows import (
    Limits,
    Refusal,
    content_type_of,
    is_authorized,
    is_local_name,
    rows_of_body,
)
from streamomd.integrations.serve.scored_rows import encoded, explanations_of, predictions_of
from streamomd.training.progress import note

Answer = Callable[[Snapshot, Sequence[Any]], bytes]
OPEN = ("/healthz", "/readyz")
"""Paths without a token: probes have none, and these show a commit's number only."""
INLINE_BYTES = 16 << 10
"""Bodies of up to this size are answered on the event loop, within 3 ms: a thread costs 0.1 ms."""
THREADS = 2
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class ServeApp:
    """Checks every request, routes it, and counts its response. Used by one event loop."""

    def __init__(
        self, reloader: ModelReloader, *, token: str = "", limits: Limits | None = None
    ) -> None:
        self.reloader, self.limits = reloader, limits or Limits()
        self.metrics = HttpMetrics()
        self._token, self._buffered = token, 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="streamomd-serve")
        routes = {
            "/predict": ("POST", self._predict),
            "/explain": ("POST", self._explain),
            "/healthz": ("GET", self._health),
            "/readyz": ("GET", self._ready),
            "/metrics": ("GET", self._metrics),
            "/model": ("GET", self._model),
            "/openapi.json": ("GET", self._openapi),
            "/docs": ("GET", self._docs),
            "/": ("GET", self._docs),
        }
        self._paths = frozenset(routes)
        self._routed = Starlette(
            routes=[
                Route(path, endpoint, methods=[method])
                for path, (method, endpoint) in routes.items()
            ],
            exception_handlers={
                Refusal: _refused,
                HTTPException: _http_error,
                Exception: _unexpected,
            },
        )
        self._routed.router.redirect_slashes = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Called by the server for each request."""
        if scope["type"] != "http":
            return
        began, sent = time.perf_counter(), 0

        async def counted(message: Any) -> None:
            nonlocal sent
            if message["type"] == "http.response.start" and not sent:
                sent = message["status"]
                path = scope["path"] if scope["path"] in self._paths else "other"
                self.metrics.count(path, sent, time.perf_counter() - began)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            response = _error_response(refusal)
            if refusal.code == "lengths":
                response.headers["connection"] = "close"
            await response(scope, receive, counted)
            return
        try:
            await self._routed(scope, receive, counted)
        except Exception as error:  # Starlette raises it again after its response
            text = printable(f"{scope['path'][:100]}: {type(error).__name__}: {error}")
            note(f"status 500 at {text[:300]}")

    def _refusal(self, scope: Any) -> Refusal | None:
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy that believes the other one would see two requests where there is one.
            return Refusal(400, "lengths", "send Content-Length or Transfer-Encoding, not both")
        if scope["path"] in OPEN:
            return None
        if self._token:
            if is_authorized(scope["headers"], self._token):
                return None
            return Refusal(401, "unauthorized", "send the token as 'Authorization: Bearer …'")
        if is_local_name(scope["headers"]):
            return None
        return Refusal(
            421, "host", "without a token the Host header has to be a loopback address or localhost"
        )

    @property
    def _snapshot(self) -> Snapshot:
        snapshot = self.reloader.snapshot
        if snapshot is None:
            raise Refusal(503, "not_ready", "the model is being loaded: try again in a second")
        return snapshot

    async def _predict(self, request: Request) -> Response:
        limits = self.limits
        return await self._answer(request, predictions_of, limits.rows, limits.body)

    async def _explain(self, request: Request) -> Response:
        limits = self.limits
        most = min(limits.body, limits.explained_body)
        return await self._answer(request, explanations_of, limits.explained, most)

    async def _answer(
        self, request: Request, answer: Answer, most: int, most_bytes: int
    ) -> Response:
        snapshot = self._snapshot
        kind = content_type_of(request.headers.get("content-type", ""))
        body = await self._body(request, most_bytes)
        try:
            work = functools.partial(self._scored, snapshot, body, kind, answer, most)
            if len(body) <= INLINE_BYTES:
                count, data = work()
            else:
                loop = asyncio.get_running_loop()
                count, data = await loop.run_in_executor(self._pool, work)
        finally:
            self._buffered -= len(body)
        self.metrics.rows[request.url.path] += count
        return _json(data)

    def _scored(
        self, snapshot: Snapshot, body: bytes, kind: str, answer: Answer, most: int
    ) -> tuple[int, bytes]:
        columns = tuple(snapshot.schema.columns)
        rows = rows_of_body(body, kind, columns, most, self.limits)
        return len(rows), answer(snapshot, rows)

    def close(self) -> None:
        """End the threads that score, once no request is under way."""
        self._pool.shutdown()

    async def _body(self, request: Request, most: int) -> bytes:
        """The body, of at most ``most`` bytes; the caller subtracts it from _buffered."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise Refusal(415, "encoding", "compressed bodies are not accepted: send it as it is")
        parts, size = list[bytes](), 0
        if int(request.headers.get("content-length", "0")) > most:
            _refuse_body(most)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    self._buffered += len(part)
                    if size > most:
                        _refuse_body(most)
                    if self._buffered > self.limits.buffered:
                        raise Refusal(503, "busy", "too many requests are waiting: try again")
                    parts.append(part)
        except TimeoutError:
            self._buffered -= size
            seconds = self.limits.body_seconds
            raise Refusal(408, "timeout", f"no whole body within {seconds:g} s") from None
        except ClientDisconnect:
            self._buffered -= size
            raise Refusal(400, "disconnected", "the body is incomplete") from None
        except BaseException:
            self._buffered -= size
            raise
        return b"".join(parts)

    async def _health(self, request: Request) -> Response:
        return _json(b'{"status":"ok"}')

    async def _ready(self, request: Request) -> Response:
        snapshot = self._snapshot
        document: dict[str, Any] = {"status": "ready", "commit": snapshot.commit}
        if refused := self.reloader.refused:
            document["refused"] = {"commit": refused.commit, "reason": refused.reason}
        return _json(encoded(document))

    async def _model(self, request: Request) -> Response:
        return _json(encoded(self._snapshot.to_json()))

    async def _metrics(self, request: Request) -> Response:
        snapshot, refused = self.reloader.snapshot, self.reloader.refused
        self.metrics.reloads = self.reloader.results
        gauges = {
            "streamomd_ready": ("1: a model is served.", float(snapshot is not None)),
            "streamomd_commit": ("The commit that is served.", snapshot.commit if snapshot else -1),
            "streamomd_commit_refused": (
                "The newest commit if it is not served, else -1.",
                refused.commit if refused else -1,
            ),
            "streamomd_buffered_bytes": ("Bytes of bodies in memory.", self._buffered),
        }
        return Response(
            prometheus_text(self.metrics.families(gauges)),
            media_type=None,
            headers={**HEADERS, "content-type": TYPE},
        )

    async def _openapi(self, request: Request) -> Response:
        return _json(encoded(openapi_document(self._snapshot, self.limits, bool(self._token))))

    async def _docs(self, request: Request) -> Response:
        document = openapi_document(self._snapshot, self.limits, bool(self._token))
        headers = {
            **HEADERS,
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "referrer-policy": "no-referrer",
        }
        page = openapi_page(document, _host(request))
        return Response(page, media_type="text/html", headers=headers)


def _host(request: Request) -> str:
    """The host that a request names, for a command that is pasted into a shell."""
    found = request.headers.get("host", "")
    return found if re.fullmatch(r"[\w.:\[\]-]+", found, re.ASCII) else "HOST"


def _json(data: bytes, status: int = 200, **headers: str) -> Response:
    headers = {**HEADERS, **headers}
    return Response(data, status, headers=headers, media_type="application/json")


def _refuse_body(most: int) -> NoReturn:
    text = f"a body may have {most:,} bytes: send fewer rows in a request"
    raise Refusal(413, "body_too_large", text)


def _error_response(refusal: Refusal) -> Response:
    error = {"code": refusal.code, "message": str(refusal), **refusal.more}
    more = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}
    return _json(encoded({"error": error}), refusal.status, **more.get(refusal.status, {}))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "no such path: see /docs", 405: "another method is expected: see /docs"}
    text = words.get(error.status_code, error.detail)
    response = _error_response(Refusal(error.status_code, "http", text))
    response.headers.update(error.headers or {})
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    return _error_response(Refusal(500, "internal", "an unexpected error, which the server logged"))


BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper limits of the histogram of seconds."""


class HttpMetrics:
    """Requests by path and status, their seconds, and rows predicted since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.rows: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self._seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(BUCKETS))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        self.requests[path, status] += 1
        self._sums[path] += seconds
        within = self._seconds[path]
        for at in range(len(BUCKETS) - 1, -1, -1):
            if seconds > BUCKETS[at]:
                break
            within[at] += 1

    def families(self, gauges: dict[str, tuple[str, float]]) -> Iterator[Family]:
        """All metrics. gauges: help and value by name."""
        requests: dict[Labels, float] = {
            (("path", path), ("status", str(status))): count
            for (path, status), count in sorted(self.requests.items())
        }
        yield _counter("requests", "Responses by path and status.", requests)
        rows: dict[Labels, float] = {(("path", path),): n for path, n in sorted(self.rows.items())}
        yield _counter("predicted_rows", "Rows predicted or explained, by path.", rows)
        reloads: dict[Labels, float] = {
            (("result", result),): self.reloads[result]
            for result in ("loaded", "refused", "failed")
        }
        yield _counter("reloads", "Commits looked at, by result.", reloads)
        text = "Time from a request's headers to its response."
        yield Family("streamomd_request_seconds", "histogram", text, {**self._histograms()})
        for name, (text, value) in gauges.items():
            yield Family(name, "gauge", text, {(): value})

    def _histograms(self) -> dict[Labels, Histogram]:
        totals: Counter[str] = Counter()
        for (path, _), count in self.requests.items():
            totals[path] += count
        return {
            (("path", path),): Histogram(BUCKETS, [*self._seconds[path], total], self._sums[path])
            for path, total in sorted(totals.items())
        }


def _counter(name: str, text: str, samples: dict[Labels, float]) -> Family:
    return Family(f"streamomd_{name}_total", "counter", text, {**samples})
