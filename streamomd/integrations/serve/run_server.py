"""Runs the server in this process until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn

from streamomd.core.counted import counted
from streamomd.core.errors import StoppedError
from streamomd.core.listening_socket import address_text, is_loopback, listen
from streamomd.core.prometheus_text import require_prometheus
from streamomd.core.urls import shown
from streamomd.integrations.serve.access_token import find_token
from streamomd.integrations.serve.connection_limits import protocol_with
from streamomd.integrations.serve.gate import Gate
from streamomd.integrations.serve.http_app import ServeApp
from streamomd.integrations.serve.model_reloader import (
    CheckpointSource,
    ModelReloader,
    ReloadThread,
)
from streamomd.integrations.serve.serve_limits import Limits
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
        http=protocol_with(limits),
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
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return replace(limits, connections=max(1, min(limits.connections, soft - _OTHER_FILES)))
    return limits


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
