"""A proxy between a client and a store over HTTP that breaks what a schedule says.

It knows nothing of the store but the name of an operation and runs in a thread
of its own. What it broke is kept in ``struck``, so that a case can show that its fault came.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable

from http_faults import FAULTS, Fault, Schedule, peace

Operation = Callable[[str, str], str]
"""``operation(method, target)``: "GET", "LIST", "PUT" … of a request."""
PATIENCE = 20.0
_DROPPED = re.compile(rb"\r\n(?:content-length|connection|transfer-encoding|expect):[^\r]*", re.I)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)


class Proxy:
    """Listens on a free port of this machine; ``schedule`` may be changed at any time."""

    def __init__(self, upstream: tuple[str, int], operation: Operation) -> None:
        self._upstream, self._operation = upstream, operation
        self.schedule: Schedule = peace
        self.struck: list[tuple[str, str]] = []
        # asyncio itself holds none of them: the collector would take those that wait.
        self._connections: set[asyncio.Task[None] | None] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        begun = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        )
        self._server = begun.result(PATIENCE)
        self.endpoint = "http://127.0.0.1:{1}".format(*self._server.sockets[0].getsockname())

    def stop(self) -> None:
        """Every connection is dropped."""

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # a client that hangs up, as it is to do after a fault; or the proxy's own end
        finally:
            self._connections.remove(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; False if the connection is at its end."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        operation = self._operation(method, target)
        name = self.schedule(operation)
        if name:
            self.struck.append((operation, name))
        fault, length = FAULTS[name], _length(head)
        if b"\r\nexpect: 100-continue" in head.lower() and name != "stall":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault.torn:
            await reader.readexactly(length // 2)
            return _reset(writer)
        body = await reader.readexactly(length)
        reply, data, size = _spoken(fault, method)
        if fault.carried_out:
            found = await self._forwarded(method, head, body)
            reply, data, size = (reply, data, size) if fault.status else found
        if fault.bare:
            data = re.sub(rb"<Condition>.*?</Condition>", b"", data)
            size = len(data)
        if fault.head:
            told = f"\r\nContent-Length: {int(size * fault.claimed)}\r\n\r\n".encode()
            writer.write(reply + told + data[: int(len(data) * fault.sent)])
            await writer.drain()
        if fault.end == "stall":
            # Until the client loses patience.
            await asyncio.wait_for(reader.read(1), PATIENCE)
        return _reset(writer) if fault.end == "reset" else not fault.end

    async def _forwarded(self, method: str, head: bytes, body: bytes) -> tuple[bytes, bytes, int]:
        """The store's reply: its head without lengths, its body, and the length it promises."""
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            line = _DROPPED.sub(b"", head[:-4])
            length = f"\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            writer.write(line + length + body)
            reply, _, data = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if re.search(rb"\r\ntransfer-encoding: *chunked", reply, re.I):
            data = _unchunked(data)
        size = _length(reply) if method == "HEAD" else len(data)
        return _DROPPED.sub(b"", reply), data, size


def _length(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found else 0


def _unchunked(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        whole, data = whole + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return whole


def _spoken(fault: Fault, method: str) -> tuple[bytes, bytes, int]:
    """The proxy's own reply: XML as S3 and Azure speak it, and the latter's header."""
    error = f"<Error><Code>{fault.code}</Code><Message>{fault.code}</Message></Error>".encode()
    data = error if fault.code and method != "HEAD" else b""
    head = f"HTTP/1.1 {fault.status} {fault.code or 'OK'}\r\nContent-Type: application/xml"
    return f"{head}\r\nx-ms-error-code: {fault.code}".encode(), data, len(data)


def _reset(writer: asyncio.StreamWriter) -> bool:
    now = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
    writer.transport.abort()
    return False
