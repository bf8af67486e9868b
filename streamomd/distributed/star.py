"""A star of owners: each has one connection, to the leader (owner 0); every wait has a deadline.

Messages pass through Dask's own connections between workers, so they are as secure as the cluster:
with tls:// only its members connect; with tcp:// anyone can, as to every worker. Heartbeats come
from the worker's event loop: an owner that decodes or compiles for a long time is alive; one that
was killed, stopped or disconnected is lost after seconds. The leader loses owners, and an owner
loses the leader: one that loses another ends, so that its own connections close and all of them
end.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Worker
from distributed.comm.core import connect
from distributed.core import Status

from streamomd.core.errors import ClusterError

HEARTBEAT_TIMEOUT_SECONDS = 3.0  # without a heartbeat
HEARTBEAT_SECONDS = 0.5
POLL_SECONDS = 0.1
JOIN_SECONDS = 15.0  # for all to connect, once the leader's address is known
STALL_SECONDS = 600.0  # for an owner that is alive and sends nothing
LINGER_SECONDS = 1.0  # for the last messages to be sent
LEADER, DRIVER = 0, -1
HELLO = struct.Struct("<4s16sI")
OPERATION = "omd_stream"
_LEADERS: dict[str, Star] = {}


class PeerLostError(ClusterError):
    """An owner lost a peer, which died, was stopped, was disconnected, or gave up."""

    def __init__(self, peer: int, reason: str) -> None:
        who = "the driver" if peer == DRIVER else f"owner {peer}"
        super().__init__(f"{who} was lost: {reason}")
        self.peer, self.reason = peer, reason

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ with the message."""
        return functools.partial(PeerLostError, self.peer), (self.reason,)


class Star:
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
        # The handler below uses the connection until it closes.
        self._outbox[LEADER] = asyncio.Queue()  # before the task below runs, messages are sent
        self._tasks[-1] = asyncio.ensure_future(self.serve(comm, LEADER))

    async def serve(self, comm: Any, peer: int) -> None:
        """Read and write on the connection with a peer until it closes. On the event loop."""
        outbox = self._outbox.setdefault(peer, asyncio.Queue())
        self._tasks[peer] = asyncio.ensure_future(self._write_messages(comm, outbox))
        with suppress(OSError):
            while True:
                data = await comm.read()
                self._last_seen[peer] = time.monotonic()
                if data:  # else a heartbeat
                    self._inbox[peer].put(data)
        self._closed.add(peer)  # after its last message

    async def _write_messages(self, comm: Any, outbox: asyncio.Queue[bytes | None]) -> None:
        """Write queued messages, and heartbeats between them, until None."""
        beat = asyncio.ensure_future(_queue_heartbeats(outbox))
        try:
            while (data := await outbox.get()) is not None:
                await comm.write(data)
        except OSError:
            return  # the peer misses the heartbeats and reports the loss
        finally:
            beat.cancel()
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


def peers_of(star: Star) -> list[int]:
    """The owners this one is connected to."""
    return [*range(1, star.owners)] if star.owner == LEADER else [LEADER]


def join_seconds(star: Star) -> float:
    """How long an owner waits for the others to connect. The leader is the first to report who is
    missing; the others then lose the leader."""
    return JOIN_SECONDS + (HEARTBEAT_TIMEOUT_SECONDS if star.owner else 0.0)


def exchange_greetings(star: Star, group: bytes) -> None:
    """Send the worker group's name and this owner's number to the leader; check its reply, which it
    sends when all are connected.

    The name finds members of another group; only TLS stops strangers.
    """
    own = HELLO.pack(b"omd1", group, star.owner)
    if star.owner:
        star.send(LEADER, own)
    for peer in peers_of(star):
        if star.receive(peer) != HELLO.pack(b"omd1", group, peer):
            raise PeerLostError(peer, "another process answers at its endpoint")
    if not star.owner:
        for peer in peers_of(star):
            star.send(peer, own)


async def _queue_heartbeats(outbox: asyncio.Queue[bytes | None]) -> None:
    """Queue an empty message, which says that this process is alive, twice a second."""
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        outbox.put_nowait(b"")


async def _serve_connection(comm: Any, group: str, sender: int) -> Any:
    """Serve a connection that an owner opened, on the event loop of the leader's worker."""
    star = _LEADERS.get(group)
    if star is None or not star.accepts(sender):
        comm.abort()
    else:
        await star.serve(comm, sender)
    return Status.dont_reply


DRIVER_TIMEOUT_SECONDS = 60.0  # without a heartbeat of the driver
CALL_SECONDS = 30.0  # for one call to the scheduler


@dataclass
class ControlChannel:
    """Messages to the driver and orders from it: a few per second, never data."""

    queue: Any
    orders: Any
    _last_beat: int = -1
    _last_beat_time: float = field(default_factory=time.monotonic)

    def send(self, kind: str, **more: Any) -> None:
        """Send a message to the driver. Raises PeerLostError if the scheduler does not answer."""
        try:
            self.queue.put({"kind": kind, **more}, callback_timeout=CALL_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "the scheduler does not answer") from None

    def read_orders(self) -> dict[str, Any]:
        """The driver's current orders. Raises PeerLostError if the driver is gone."""
        try:
            read_orders: dict[str, Any] = self.orders.get(timeout=5, callback_timeout=CALL_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "it has left") from None
        # Its number, not its time: clocks of machines differ.
        if read_orders["beat"] != self._last_beat:
            self._last_beat, self._last_beat_time = read_orders["beat"], time.monotonic()
        return read_orders

    def driver_is_silent(self) -> bool:
        """Whether the driver's heartbeats have stopped."""
        return time.monotonic() - self._last_beat_time > DRIVER_TIMEOUT_SECONDS

    def wait(self, condition: Any, seconds: float) -> Any:
        """The first true value of ``condition(orders)``. Raises PeerLostError after ``seconds``."""
        deadline, delay = time.monotonic() + seconds, 0.002
        while not (found := condition(self.read_orders())):
            if time.monotonic() > deadline:
                raise PeerLostError(DRIVER, f"no answer in {seconds:g} s")
            time.sleep(delay)
            delay = min(2 * delay, 0.1)
        return found
