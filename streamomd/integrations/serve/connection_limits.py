"""Connections of the server: limits of size and time that uvicorn lacks, and a maximum number.

uvicorn waits without limit for a request's headers, and for a client that does not read its
response. Such connections are closed here; if there are too many, the oldest one that waits for
nothing makes room. h11 limits headers that arrive in several packets only.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamomd.integrations.serve.serve_limits import Limits

HEAD_BYTES, HEAD_LINES = 16 << 10, 100
"""Of a request's first line and headers, as they are sent."""
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


def protocol_with(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 protocol with these limits."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"limits": limits})


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
