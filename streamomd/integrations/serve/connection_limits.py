"""Connections of the server: time limits that uvicorn lacks, and a maximum number.

uvicorn waits without limit for a request's headers, and for a client that does not read its
response. Such connections are closed here; if there are too many, the oldest one that waits for
nothing makes room.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from streamomd.integrations.serve.serve_limits import Limits

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)


def protocol_with(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 protocol with these limits."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"limits": limits})


class _LimitedProtocol(H11Protocol):
    """h11 itself refuses headers and trailers of more than ``h11_max_incomplete_event_size``."""

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _began = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio."""
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
