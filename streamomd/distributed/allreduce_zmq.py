"""All-to-all exchange between owners: one ZeroMQ socket per pair; every wait has a deadline.

Heartbeats come from the transport's own thread: an owner that decodes or compiles for a long time
is alive; one that was killed, stopped or disconnected is lost after seconds.
"""

from __future__ import annotations

import functools
import os
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from streamomd.core.errors import ClusterError
from streamomd.distributed.curve_keys import CurveKeys, authenticating, connect_with, listen_with

HEARTBEAT_TIMEOUT_SECONDS = 3.0  # without a heartbeat
HEARTBEAT_SECONDS = 0.5
POLL_SECONDS = 0.1
JOIN_SECONDS = 15.0  # for all to connect, once all endpoints are known
STALL_SECONDS = 600.0  # for an owner that is alive and sends nothing
LINGER_SECONDS = 1.0  # for the last messages to be sent
SPIN_SECONDS = (
    300e-6  # spinning receives a third sooner than sleeping, on cores that enter power saving
)
DRIVER = -1
HELLO = struct.Struct("<4s16sI")
OPENED = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED
POLL_MESSAGES = 1024  # between two reads of the monitor: strangers may connect without limit


class PeerLostError(ClusterError):
    """An owner lost a peer, which died, was stopped, was disconnected, or gave up."""

    def __init__(self, peer: int, reason: str) -> None:
        who = "the driver" if peer == DRIVER else f"owner {peer}"
        super().__init__(f"{who} was lost: {reason}")
        self.peer, self.reason = peer, reason

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ with the message."""
        return functools.partial(PeerLostError, self.peer), (self.reason,)


class Mesh(Protocol):
    """The connections of one owner to all others. Methods raise PeerLostError if one is lost."""

    owner: int
    owners: int
    endpoint: Any
    """What the peers need for ``join``."""

    def join(self, endpoints: list[Any]) -> None:
        """Connect to all peers; ``endpoints`` is indexed by owner."""

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer."""

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""


def peers_of(mesh: Mesh) -> list[int]:
    """All owners except this one."""
    return [peer for peer in range(mesh.owners) if peer != mesh.owner]


def exchange_greetings(mesh: Mesh, group: bytes) -> None:
    """Send every peer the worker group's name and this owner's number; check its reply.

    The name is no secret: it finds wrong connections of members, not strangers.
    """
    for peer in peers_of(mesh):
        mesh.send(peer, HELLO.pack(b"omd1", group, mesh.owner))
    for peer in peers_of(mesh):
        if mesh.receive(peer) != HELLO.pack(b"omd1", group, peer):
            raise PeerLostError(peer, "another process answers at its endpoint")


class ZmqMesh:
    """ZeroMQ pairs on ports of this machine's address only, encrypted and authenticated by CURVE.

    A stranger may connect to a port at any time; its handshake fails, and the peer can connect.
    """

    def __init__(self, host: str, group: bytes, owner: int, owners: int, keys: CurveKeys) -> None:
        self.owner, self.owners, self._group = owner, owners, group
        self._context = zmq.Context()
        self._timeout, self._received = STALL_SECONDS, 0
        self._sockets: dict[int, Any] = {}
        self._monitors: dict[int, Any] = {}
        self._lost: set[int] = set()
        # Connections by descriptor, as libzmq's monitor reports them, including those of strangers.
        self._sources: dict[int, int] = {}
        self._closed: dict[int, set[int]] = {}
        self._gone: set[int] = set()
        self.endpoint: dict[int, str] = {}
        self._keys = keys
        self._opening = ExitStack()
        self._opening.enter_context(authenticating(self._context, keys))
        for peer in range(owner + 1, owners):
            socket = self._socket(peer)
            listen_with(socket, keys)
            port = socket.bind_to_random_port(f"tcp://{host}")
            self.endpoint[peer] = f"tcp://{host}:{port}"

    def _socket(self, peer: int) -> Any:
        socket, monitor = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        for option, value in {
            zmq.IPV6: 1,
            zmq.SNDHWM: 0,
            zmq.RCVHWM: 0,
            zmq.LINGER: int(LINGER_SECONDS * 1000),
            zmq.RCVTIMEO: int(POLL_SECONDS * 1000),
            zmq.SNDTIMEO: int(POLL_SECONDS * 1000),
            zmq.HEARTBEAT_IVL: int(HEARTBEAT_SECONDS * 1000),
            zmq.HEARTBEAT_TIMEOUT: int(HEARTBEAT_TIMEOUT_SECONDS * 1000),
        }.items():
            socket.setsockopt(option, value)
        # No limit: libzmq would drop the peer's event after a thousand events of strangers.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.setsockopt(zmq.LINGER, 0)
        at = f"inproc://monitor-{peer}"
        socket.monitor(at, OPENED | zmq.EVENT_DISCONNECTED)
        monitor.connect(at)
        self._sockets[peer], self._monitors[peer], self._closed[peer] = socket, monitor, set()
        return socket

    def join(self, endpoints: list[Any]) -> None:
        """Connect to the owners before this one; the owners after it connect to this one."""
        for peer in range(self.owner):
            socket = self._socket(peer)
            connect_with(socket, self._keys)
            socket.connect(endpoints[peer][self.owner])
        self._timeout = JOIN_SECONDS
        exchange_greetings(self, self._group)
        self._timeout = STALL_SECONDS
        self._opening.close()  # all are connected: from now on every handshake fails

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer; messages it has not read yet wait in memory."""
        self._retry_until(peer, lambda: self._sockets[peer].send(data))

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""
        receive = self._sockets[peer].recv
        if peer not in self._sources:
            first = self._retry_until(peer, lambda: receive(copy=False))
            self._identify_connection(peer, first.get(zmq.SRCFD))
            return bytes(first)
        self._received += 1
        if self._received % POLL_MESSAGES == 0:
            self._read_monitor(peer)
        spin_end = time.monotonic() + SPIN_SECONDS
        while time.monotonic() < spin_end:
            try:
                return bytes(receive(zmq.NOBLOCK))
            except zmq.Again:
                os.sched_yield()
        return bytes(self._retry_until(peer, receive))

    def _retry_until(self, peer: int, operation: Callable[[], Any]) -> Any:
        deadline, gone = time.monotonic() + self._timeout, ""
        while True:
            try:
                return operation()
            except zmq.Again:
                if gone:  # one more read, for messages sent before it left
                    self._lost.add(peer)
                    raise PeerLostError(peer, gone) from None
            self._read_monitor(peer)
            if peer in self._gone:
                gone = f"its connection closed, or no heartbeat in {HEARTBEAT_TIMEOUT_SECONDS:g} s"
            if time.monotonic() > deadline:
                raise PeerLostError(peer, f"alive, but sent nothing for {self._timeout:g} s")

    def _identify_connection(self, peer: int, source: int) -> None:
        """The connection of the first message is the peer's."""
        self._read_monitor(peer)  # first: strangers may have had the same descriptor
        self._sources[peer] = source
        if source in self._closed[peer]:
            self._gone.add(peer)

    def _read_monitor(self, peer: int) -> None:
        """Record whether the peer's own connection was closed."""
        monitor, closed = self._monitors[peer], self._closed[peer]
        while monitor.poll(0):
            event = recv_monitor_message(monitor)
            if event["event"] & OPENED:
                closed.discard(event["value"])
            else:
                closed.add(event["value"])
                # A socket on which this owner connected has no connections of strangers.
                if peer < self.owner or event["value"] == self._sources.get(peer):
                    self._gone.add(peer)

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""
        self._opening.close()
        for peer, socket in self._sockets.items():
            socket.disable_monitor()
            # A lost peer will never read its messages: do not wait for it.
            socket.close(linger=0 if peer in self._lost else int(LINGER_SECONDS * 1000))
        self._context.destroy()
