"""The star over Dask's own connections: slower than ZeroMQ, as secure as the cluster.

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
    LEADER,
    LINGER_SECONDS,
    POLL_SECONDS,
    STALL_SECONDS,
    PeerLostError,
    exchange_greetings,
    join_seconds,
    peers_of,
)

OPERATION = "omd_stream"
_LEADERS: dict[str, StreamStar] = {}


class StreamStar:
    """One Dask connection to the worker of the leader; of the leader, one from each other owner."""

    def __init__(self, worker: Worker, group: bytes, owner: int, owners: int) -> None:
        self.owner, self.owners, self.endpoint = owner, owners, worker.address
        self._group, self._worker = group, worker
        self._loop: Any = worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self._timeout = STALL_SECONDS
        self._last_seen = dict.fromkeys(peers_of(self), time.monotonic())
        self._inbox: dict[int, queue.SimpleQueue[bytes]] = {
            peer: queue.SimpleQueue() for peer in peers_of(self)
        }
        self._outbox: dict[int, asyncio.Queue[bytes | None]] = {}
        self._tasks: dict[int, Any] = {}
        self._closed: set[int] = set()
        self._lost: set[int] = set()
        if owner == LEADER:
            _LEADERS[group.hex()] = self
            worker.handlers[OPERATION] = _serve_connection

    def join(self, leader: Any) -> None:
        """Connect to the leader, or let all others connect."""
        self._last_seen = dict.fromkeys(peers_of(self), time.monotonic() + JOIN_SECONDS)
        if self.owner:
            connecting = asyncio.run_coroutine_threadsafe(self._connect(leader), self._loop)
            try:
                connecting.result(JOIN_SECONDS)
            except (OSError, TimeoutError) as error:
                connecting.cancel()
                raise PeerLostError(LEADER, f"no connection: {error}") from None
        self._timeout = join_seconds(self)
        exchange_greetings(self, self._group)
        self._timeout = STALL_SECONDS

    async def _connect(self, address: str) -> None:
        comm = await connect(address, timeout=JOIN_SECONDS, **self._worker.connection_args)
        header = {"group": self._group.hex(), "sender": self.owner}
        await comm.write({"op": OPERATION, "reply": False, **header})
        self._tasks[-1] = asyncio.ensure_future(self.serve(comm, LEADER))

    async def serve(self, comm: Any, peer: int) -> None:
        """Read and write on the connection with a peer until it closes. On the event loop."""
        self._outbox[peer] = asyncio.Queue()
        self._tasks[peer] = asyncio.ensure_future(self._write_messages(comm, self._outbox[peer]))
        with suppress(OSError):
            while True:
                data = (await comm.read())["data"]
                self._last_seen[peer] = time.monotonic()
                if data:  # else a heartbeat
                    self._inbox[peer].put(data)
        self._closed.add(peer)  # after its last message

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

    def accepts(self, peer: int) -> bool:
        """Whether a connection may be this peer's: each has one."""
        return peer in self._inbox and peer not in self._outbox

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer; messages it has not read yet wait in memory."""
        self._loop.call_soon_threadsafe(self._outbox[peer].put_nowait, data)

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""
        deadline = time.monotonic() + self._timeout
        while True:
            closed = min(self._closed, default=None)  # before the last attempt to get a message
            try:
                return self._inbox[peer].get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._raise_lost(closed)
            if time.monotonic() > deadline:
                raise PeerLostError(peer, f"alive, but sent nothing for {self._timeout:g} s")

    def check(self) -> None:
        """Raise PeerLostError if a peer is lost."""
        self._raise_lost(min(self._closed, default=None))

    def _raise_lost(self, closed: int | None) -> None:
        """closed: a peer whose connection has closed."""
        if closed is not None:
            raise PeerLostError(closed, "its connection closed")
        now = time.monotonic()
        for peer, seen in self._last_seen.items():
            if now - seen > HEARTBEAT_TIMEOUT_SECONDS:
                self._lost.add(peer)
                reason = f"no heartbeat in {HEARTBEAT_TIMEOUT_SECONDS:g} s"
                raise PeerLostError(peer, reason)

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""
        if self.owner == LEADER:
            _LEADERS.pop(self._group.hex(), None)
        for outbox in list(self._outbox.values()):
            self._loop.call_soon_threadsafe(outbox.put_nowait, None)
        deadline = time.monotonic() + LINGER_SECONDS
        tasks = [task for peer, task in list(self._tasks.items()) if peer not in self._lost]
        while time.monotonic() < deadline and not all(task.done() for task in tasks):
            time.sleep(0.01)


async def _serve_connection(comm: Any, group: str, sender: int) -> Any:
    """Serve a connection that an owner opened, on the event loop of the leader's worker."""
    star = _LEADERS.get(group)
    if star is None or not star.accepts(sender):
        comm.abort()
    else:
        await star.serve(comm, sender)
    return Status.dont_reply
