"""A server of predictions in a thread of this process, and clients that send what they like."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from streamomd.integrations.serve.http_app import ServeApp
from streamomd.integrations.serve.model_reloader import (
    ModelReloader,
    Refused,
    Schema,
    Snapshot,
    snapshot_of,
)
from streamomd.integrations.serve.request_rows import Limits
from streamomd.integrations.serve.run_server import server_config
from streamomd.training.scoring.description import Description, NumberColumn

JSON = "application/json"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@dataclass
class Answered:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=lambda name: f"no JSON: {name}")

    @property
    def error(self) -> Any:
        return self.json["error"]


@dataclass
class Served:
    """A running server."""

    app: ServeApp
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def reloader(self) -> ModelReloader:
        return self.app.reloader

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def get(self, path: str, **headers: str) -> Answered:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, kind: str = JSON, **headers: str) -> Answered:
        """Send bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, {"Content-Type": kind, **headers})

    def ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answered:
        connection = self.connect()
        try:
            connection.request(method, path, body, {**self.headers, **headers})
            found = connection.getresponse()
            return Answered(found.status, dict(found.getheaders()), found.read())
        finally:
            connection.close()

    def raw(self, data: bytes, *, seconds: float = 10.0) -> bytes:
        """What comes back until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as talk:
            talk.sendall(data)
            return all_of(talk)


def all_of(talk: socket.socket) -> bytes:
    """Whatever is sent until the other side closes or resets."""
    found = b""
    try:
        while part := talk.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


@contextmanager
def served(
    source: Any, *, token: str = "", limits: Limits | None = None, load: bool = True
) -> Iterator[Served]:
    """A server of a source's commits, see ``CheckpointSource``; a Snapshot is one that stays."""
    source = Fixed(source) if isinstance(source, Snapshot) else source
    reloader = ModelReloader(source)
    if load:
        reloader.load_first()
    app = ServeApp(reloader, token=token, limits=limits)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, app.limits))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield Served(app, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        app.close()
        listener.close()


class Fixed:
    """A source with one commit."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def newest(self) -> int:
        return self.snapshot.commit

    def load_first(self) -> tuple[Snapshot, Refused | None]:
        return self.snapshot, None


class Numbered:
    """A scorer whose every number is its commit, read a row at a time."""

    description = Description(bias=True, numbers=(NumberColumn("a", "float", "error"),))

    def __init__(self, commit: int) -> None:
        self.commit = commit

    def many(self, rows: Any) -> Any:
        found = [float(self.commit) for _ in rows]
        return [self.commit for _ in rows], found, found


SCHEMA = Schema("y", {"a": "number"}, ("a",), (0, 1), True)


def numbered(commit: int) -> Snapshot:
    """A snapshot whose every number is its commit."""
    return Snapshot(Numbered(commit), commit, 10, SCHEMA, {})


def snapshot(model: Any) -> Snapshot:
    """A model's, in place of a commit."""
    return snapshot_of(model)
