"""The HTTP server of a run's metrics: one path, in threads that end with the run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamomd.core.http_servers import (
    TYPE,
    Family,
    MetricsAddress,
    address_text,
    is_loopback,
    listen,
    names_this_machine,
    prometheus_text,
    require_prometheus,
)
from streamomd.training.progress import note

CONNECTIONS = 16
"""Open at a time; a scraper needs one."""
SECONDS = 5.0
"""For a client to send or to read something."""


@contextmanager
def serve_metrics(
    address: MetricsAddress, families: Callable[[], Iterable[Family]]
) -> Iterator[None]:
    """Serve the metrics while inside, and report the URL.

    Raises UsageError for an address that cannot be used, MissingExtraError.
    """
    require_prometheus()
    listener = listen(address.host, address.port, options="--metrics-port or --metrics-host")
    server = _Server(listener, families, anyone=not is_loopback(address.host))
    thread = threading.Thread(
        target=server.serve_forever, args=(0.1,), name="streamomd-metrics", daemon=True
    )
    thread.start()
    url = f"{address_text(listener)}/metrics"
    open_to = "" if is_loopback(address.host) else "; every machine that reaches it can read them"
    note(f"metrics at {url}{open_to}", "metrics", url=url, port=listener.getsockname()[1])
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """Closes the connections that are open when it ends, so that its threads end too."""

    daemon_threads = False  # else ``server_close`` would not wait for them
    block_on_close = True

    def __init__(
        self, listener: socket.socket, families: Callable[[], Iterable[Family]], *, anyone: bool
    ) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, of IPv4
        self.socket, self.families, self.anyone = listener, families, anyone
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Called in a thread for each connection; the oldest one makes room for too many."""
        threading.current_thread().name = "streamomd-metrics-request"
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                _end(next(iter(self._open)))
            self._open[request] = None
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called at the end of each connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """End the connections, and wait for their threads."""
        with self._lock:
            for connection in self._open:
                _end(connection)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called for a client that does not speak HTTP, or is gone: nothing is printed."""


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # its client has closed it
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers ``GET /metrics``."""

    server: _Server
    timeout = SECONDS
    server_version, sys_version = "streamomd", ""

    def do_GET(self) -> None:
        """Called for a GET request."""
        hosts = self.headers.get_all("host") or []
        if not self.server.anyone and not names_this_machine(hosts):
            self._answer(421, b"the Host header has to be a loopback address or localhost\n")
        elif self.path.partition("?")[0] not in ("/metrics", "/"):
            self._answer(404, b"metrics are at /metrics\n")
        else:
            self._answer(200, prometheus_text(self.server.families()), TYPE)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged."""

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
