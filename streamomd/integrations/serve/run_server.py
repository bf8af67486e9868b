"""Runs the server in this process until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamomd.core.errors import StoppedError
from streamomd.core.http_servers import address_text, is_loopback, listen, require_prometheus
from streamomd.core.platform_calls import open_files
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.integrations.serve.http_app import ServeApp
from streamomd.integrations.serve.model_reloader import (
    CheckpointSource,
    Gate,
    ModelReloader,
    ReloadThread,
)
from streamomd.integrations.serve.request_rows import Limits, find_token
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest, stop_on_signals

GRACE_SECONDS = 20
_OTHER_FILES = 64
"""File descriptors that are not connections: the store, libraries, logs."""


@dataclass(frozen=True)
class ServeSettings:
    """reload: seconds between two looks for a newer commit; 0: none. gate: of each commit."""

    host: str = "127.0.0.1"
    port: int = 8080
    reload: float = 30.0
    token_file: str | None = None
    gate: Gate | None = None
    limits: Limits = field(default_factory=Limits)


def run_server(
    url: str, settings: ServeSettings, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Serve a checkpoint. Ends by raising StoppedError, or why it cannot start.

    Raises UsageError for a host or port that cannot be used, or a missing token; NoCommitError,
    DivergedError, StorageError if there is no model to serve.
    """
    require_prometheus()
    token = find_token(settings.token_file, settings.host)
    listener = listen(settings.host, settings.port, options="--port or --host")
    with listener, stop_on_signals() as stop:
        note(f"reading {shown(url)}")
        reloader = ModelReloader(CheckpointSource(url, storage_options, settings.gate))
        limits = _possible(settings.limits)
        app = ServeApp(reloader, token=token, limits=limits)
        thread = ReloadThread(
            reloader, settings.reload, lambda: _report_ready(listener, settings, reloader)
        )
        server = _Server(server_config(app, limits), stop, thread)
        thread.start()
        try:
            asyncio.run(server.serve(sockets=[listener]))
        finally:
            thread.stop()
            app.close()
        if thread.error is not None:
            raise thread.error
        answered = counted(sum(app.metrics.requests.values()), "request")
        raise StoppedError(f"stopped; {answered} answered", signal=stop.signal)


class _Server(uvicorn.Server):
    """Ends at a signal that ``stop`` received, or where the first load failed."""

    def __init__(self, config: uvicorn.Config, stop: StopRequest, thread: ReloadThread) -> None:
        super().__init__(config)
        self._stop, self._thread = stop, thread

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own handlers would raise the signal again at the end."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second: whether to end."""
        ends = bool(self._stop.signal) or self._thread.error is not None
        return await super().on_tick(counter) or ends


def server_config(app: ServeApp, limits: Limits) -> uvicorn.Config:
    """How uvicorn runs the application."""
    # Its warnings are one line for each malformed request: anyone could fill a disk with them.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        app,
        http=type("LimitedProtocol", (_LimitedProtocol,), {"limits": limits}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _possible(limits: Limits) -> Limits:
    """The limits with no more connections than this process may open."""
    possible = open_files(limits.connections + _OTHER_FILES) - _OTHER_FILES
    return replace(limits, connections=max(1, min(limits.connections, possible)))


def _report_ready(
    listener: socket.socket, settings: ServeSettings, reloader: ModelReloader
) -> None:
    place = address_text(listener)
    snapshot = reloader.snapshot
    assert snapshot is not None
    again = f"; looks for newer commits every {settings.reload:g} s" if settings.reload else ""
    note(f"serving commit {snapshot.commit} at {place}{again}")
    note(f"endpoints: {place}/docs; stop with Ctrl-C or SIGTERM")
    if not is_loopback(settings.host):
        note("the connection is not encrypted, nor is the token: use a proxy with TLS in front")


HEAD_BYTES, HEAD_LINES = 16 << 10, 100
"""The most that a request's first line and headers may have, as they are sent."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)
_TOO_LARGE = (
    f'{{"error":{{"code":"headers","message":"a request may have {HEAD_BYTES:,} bytes and '
    f'{HEAD_LINES} lines of headers"}}}}'
).encode()
_HEADERS_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)


class _LimitedConnection(h11.Connection):
    """``status``: of the last error."""

    status = 400

    def next_event(self) -> Any:
        """Called by uvicorn. Raises RemoteProtocolError for invalid HTTP and for large headers."""
        before = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                head = before[: len(before) - len(self.trailing_data[0])]
                if len(head) > HEAD_BYTES or head.count(b"\n") > HEAD_LINES:
                    raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
        except h11.RemoteProtocolError as error:
            self.status = error.error_status_hint
            raise
        return event


class _LimitedProtocol(H11Protocol):
    """Replaces h11's connection, and limits the time of each step."""

    limits = Limits()
    conn: _LimitedConnection
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _began = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio."""
        self.conn = _LimitedConnection(h11.SERVER, HEAD_BYTES)
        super().connection_made(transport)
        # asyncio does so for sockets of its own only. A response is written in two parts, and
        # without it the second one waits 40 ms for the client to acknowledge the first.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._began = self.loop.time()
        self._arm(self.limits.head_seconds)
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._timer is None:  # idle until now
            self._arm(self.limits.head_seconds)
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._arm(self.limits.request_seconds)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for a request that it cannot read."""
        if self.conn.status == 431:
            self.transport.write(_HEADERS_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Called by uvicorn; the next request may have arrived already."""
        before = self.cycle
        self._disarm()
        _cancel(self._unread)
        if self.transport.get_write_buffer_size():
            # Closing a transport waits for the client to read: without limit.
            seconds = self.limits.request_seconds
            self._unread = self.loop.call_later(seconds, self._abort_unread)
        super().on_response_complete()
        self._began = self.loop.time()
        if self.cycle is not before:
            self._arm(self.limits.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._disarm()
        _cancel(self._unread)
        super().connection_lost(exc)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _disarm(self) -> None:
        _cancel(self._timer)
        self._timer = None

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _make_room(self) -> None:
        waiting = [
            one
            for one in self.connections
            if isinstance(one, _LimitedProtocol) and one is not self and not one.busy
        ]
        if waiting:
            min(waiting, key=lambda one: one._began).transport.abort()
        else:
            self.transport.write(_BUSY)
            self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
