"""The exchange over Dask's own connections: slower than ZeroMQ, as secure as the cluster.

With tls:// only members of the cluster connect. With tcp:// anyone can, as to every worker.
"""

from __future__ import annotations

import asyncio
import queue
import time
from contextlib import suppress
from typing import Any

from distributed import Worker
from distributed.comm.core import connect
from distributed.core import Status

from streamomd.distributed.allreduce_zmq import (
    HEARTBEAT_SECONDS,
    HEARTBEAT_TIMEOUT_SECONDS,
    JOIN_SECONDS,
    LINGER_SECONDS,
    POLL_SECONDS,
    STALL_SECONDS,
    PeerLostError,
    exchange_greetings,
    peers_of,
)

OPERATION = "omd_stream"
_MESHES: dict[tuple[str, int], StreamMesh] = {}


class StreamMesh:
    """A Dask connection to the worker of each other owner."""

    def __init__(self, worker: Worker, group: bytes, owner: int, owners: int) -> None:
        self.owner, self.owners, self.endpoint = owner, owners, worker.address
        self._group, self._worker = group, worker
        self._loop: Any = worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self._timeout = STALL_SECONDS
        self._last_seen = dict.fromkeys(peers_of(self), time.monotonic())
        self._inbox: dict[int, queue.SimpleQueue[bytes | None]] = {
            peer: queue.SimpleQueue() for peer in peers_of(self)
        }
        self._outbox: dict[int, asyncio.Queue[bytes | None]] = {}
        self._senders: dict[int, Any] = {}
        self._lost: set[int] = set()
        _MESHES[group.hex(), owner] = self
        worker.handlers[OPERATION] = _serve_connection

    def join(self, endpoints: list[Any]) -> None:
        """Connect to all others."""
        for peer in peers_of(self):
            self._last_seen[peer] = time.monotonic()
            connecting = asyncio.run_coroutine_threadsafe(
                self._connect(peer, endpoints[peer]), self._loop
            )
            try:
                connecting.result(JOIN_SECONDS)
            except (OSError, TimeoutError) as error:
                connecting.cancel()
                raise PeerLostError(peer, f"no connection: {error}") from None
        self._timeout = JOIN_SECONDS
        exchange_greetings(self, self._group)
        self._timeout = STALL_SECONDS

    async def _connect(self, peer: int, address: str) -> None:
        comm = await connect(address, timeout=JOIN_SECONDS, **self._worker.connection_args)
        header = {"gang": self._group.hex(), "sender": self.owner, "receiver": peer}
        await comm.write({"op": OPERATION, "reply": False, **header})
        self._outbox[peer] = asyncio.Queue()
        self._senders[peer] = asyncio.ensure_future(self._write_messages(comm, self._outbox[peer]))

    async def _write_messages(self, comm: Any, outbox: asyncio.Queue[bytes | None]) -> None:
        """Write queued messages, and a heartbeat when there is none, until None."""
        try:
            while True:
                data: bytes | None = b""
                with suppress(TimeoutError):
                    data = await asyncio.wait_for(outbox.get(), HEARTBEAT_SECONDS)
                if data is None:
                    break
                await comm.write({"data": data})
        except OSError:
            return  # the peer misses the heartbeats and reports the loss
        finally:
            await comm.close()

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer; messages it has not read yet wait in memory."""
        self._loop.call_soon_threadsafe(self._outbox[peer].put_nowait, data)

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                data = self._inbox[peer].get(timeout=POLL_SECONDS)
            except queue.Empty:
                if time.monotonic() - self._last_seen[peer] > HEARTBEAT_TIMEOUT_SECONDS:
                    reason = f"no heartbeat in {HEARTBEAT_TIMEOUT_SECONDS:g} s"
                    self._lost.add(peer)
                    raise PeerLostError(peer, reason) from None
                if time.monotonic() > deadline:
                    reason = f"alive, but sent nothing for {self._timeout:g} s"
                    raise PeerLostError(peer, reason) from None
                continue
            if data is None:
                raise PeerLostError(peer, "its connection closed")
            return data

    def deliver(self, peer: int, data: bytes | None) -> None:
        """Take from a peer: a message, a heartbeat (empty), or the end of its connection (None)."""
        self._last_seen[peer] = time.monotonic()
        if data != b"":
            self._inbox[peer].put(data)

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""
        _MESHES.pop((self._group.hex(), self.owner), None)
        for outbox in self._outbox.values():
            self._loop.call_soon_threadsafe(outbox.put_nowait, None)
        deadline = time.monotonic() + LINGER_SECONDS
        senders = [one for peer, one in self._senders.items() if peer not in self._lost]
        while time.monotonic() < deadline and not all(one.done() for one in senders):
            time.sleep(0.01)


async def _serve_connection(comm: Any, group: str, sender: int, receiver: int) -> Any:
    """Serve a connection that another owner opened, on the worker's event loop."""
    mesh = _MESHES.get((group, receiver))
    if mesh is None or sender not in peers_of(mesh):
        comm.abort()
        return Status.dont_reply
    try:
        while True:
            mesh.deliver(sender, (await comm.read())["data"])
    except OSError:
        mesh.deliver(sender, None)
    return Status.dont_reply
