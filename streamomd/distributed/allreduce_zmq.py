"""Numbers from every owner to every other: a socket for each two, and no wait without an end.

The sign of life is the transport's own, from a thread beside the learner's: an owner that decodes
or compiles for long is alive; one that was killed, stopped or cut off is lost after seconds.
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
from streamomd.distributed.curve_keys import Keys, authenticating, connect_with, listen_with

SILENT_SECONDS = 3.0  # without a sign of life
BEAT_SECONDS = 0.5
LOOK_SECONDS = 0.1
JOIN_SECONDS = 15.0  # for all to connect, once all are known
STUCK_SECONDS = 600.0  # for an owner that is alive and says nothing
LINGER_SECONDS = 1.0  # for what was said last to leave
SPIN_SECONDS = 300e-6  # who does not sleep meanwhile hears a third sooner, on cores that doze off
DRIVER = -1
HELLO = struct.Struct("<4s16sI")
OPENED = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED
LOOK_MESSAGES = 1024  # between two looks at who connected and left: strangers may, without end


class PeerLostError(ClusterError):
    """Somebody whom an owner has lost: who died, was stopped or cut off, or gave up."""

    def __init__(self, peer: int, why: str) -> None:
        who = "the driver" if peer == DRIVER else f"owner {peer}"
        super().__init__(f"{who} was lost: {why}")
        self.peer, self.why = peer, why

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ with the message."""
        return functools.partial(PeerLostError, self.peer), (self.why,)


class Mesh(Protocol):
    """The way from one owner to all others. Raises PeerLostError where there is none any more."""

    owner: int
    owners: int
    place: Any
    """What the others must know to ``join``."""

    def join(self, places: list[Any]) -> None:
        """Connect all; ``places`` by owner."""

    def send(self, peer: int, data: bytes) -> None:
        """Send to one."""

    def receive(self, peer: int) -> bytes:
        """What one has sent, in its order."""

    def close(self) -> None:
        """Leave; the others lose this one, once they have heard what it said."""


def others(mesh: Mesh) -> list[int]:
    """All owners but this one."""
    return [peer for peer in range(mesh.owners) if peer != mesh.owner]


def greet(mesh: Mesh, gang: bytes) -> None:
    """Send every peer the gang's name and this owner's number, and check what the peer sends.

    The name is no secret: it finds wrong connections of members, not strangers.
    """
    for peer in others(mesh):
        mesh.send(peer, HELLO.pack(b"omd1", gang, mesh.owner))
    for peer in others(mesh):
        if mesh.receive(peer) != HELLO.pack(b"omd1", gang, peer):
            raise PeerLostError(peer, "somebody else answers in its place")


class ZmqMesh:
    """ZeroMQ pairs on ports of this machine's address alone, encrypted and authenticated by CURVE.

    A stranger may connect to a port at any time; its handshake fails, and it takes nobody's place.
    """

    def __init__(self, host: str, gang: bytes, owner: int, owners: int, keys: Keys) -> None:
        self.owner, self.owners, self._gang = owner, owners, gang
        self._context = zmq.Context()
        self._patience, self._received = STUCK_SECONDS, 0
        self._sockets: dict[int, Any] = {}
        self._monitors: dict[int, Any] = {}
        self._lost: set[int] = set()
        # Connections by descriptor, as libzmq's monitor names them: strangers' are among them.
        self._sources: dict[int, int] = {}
        self._closed: dict[int, set[int]] = {}
        self._gone: set[int] = set()
        self.place: dict[int, str] = {}
        self._keys = keys
        self._opening = ExitStack()
        self._opening.enter_context(authenticating(self._context, keys))
        for peer in range(owner + 1, owners):
            socket = self._socket(peer)
            listen_with(socket, keys)
            port = socket.bind_to_random_port(f"tcp://{host}")
            self.place[peer] = f"tcp://{host}:{port}"

    def _socket(self, peer: int) -> Any:
        socket, monitor = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        for option, value in {
            zmq.IPV6: 1,
            zmq.SNDHWM: 0,
            zmq.RCVHWM: 0,
            zmq.LINGER: int(LINGER_SECONDS * 1000),
            zmq.RCVTIMEO: int(LOOK_SECONDS * 1000),
            zmq.SNDTIMEO: int(LOOK_SECONDS * 1000),
            zmq.HEARTBEAT_IVL: int(BEAT_SECONDS * 1000),
            zmq.HEARTBEAT_TIMEOUT: int(SILENT_SECONDS * 1000),
        }.items():
            socket.setsockopt(option, value)
        # Without a limit: libzmq would drop the peer's event behind a thousand of strangers.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.setsockopt(zmq.LINGER, 0)
        at = f"inproc://monitor-{peer}"
        socket.monitor(at, OPENED | zmq.EVENT_DISCONNECTED)
        monitor.connect(at)
        self._sockets[peer], self._monitors[peer], self._closed[peer] = socket, monitor, set()
        return socket

    def join(self, places: list[Any]) -> None:
        """Connect to those before, and be connected to by those after."""
        for peer in range(self.owner):
            socket = self._socket(peer)
            connect_with(socket, self._keys)
            socket.connect(places[peer][self.owner])
        self._patience = JOIN_SECONDS
        greet(self, self._gang)
        self._patience = STUCK_SECONDS
        self._opening.close()  # all are connected: from now on every handshake fails

    def send(self, peer: int, data: bytes) -> None:
        """Send to one; what it does not take yet waits in memory."""
        self._tried(peer, lambda: self._sockets[peer].send(data))

    def receive(self, peer: int) -> bytes:
        """What one has sent, in its order."""
        receive = self._sockets[peer].recv
        if peer not in self._sources:
            first = self._tried(peer, lambda: receive(copy=False))
            self._know(peer, first.get(zmq.SRCFD))
            return bytes(first)
        self._received += 1
        if self._received % LOOK_MESSAGES == 0:
            self._look(peer)
        until = time.monotonic() + SPIN_SECONDS
        while time.monotonic() < until:
            try:
                return bytes(receive(zmq.NOBLOCK))
            except zmq.Again:
                os.sched_yield()
        return bytes(self._tried(peer, receive))

    def _tried(self, peer: int, act: Callable[[], Any]) -> Any:
        deadline, gone = time.monotonic() + self._patience, ""
        while True:
            try:
                return act()
            except zmq.Again:
                if gone:  # once more, for what came before it went
                    self._lost.add(peer)
                    raise PeerLostError(peer, gone) from None
            self._look(peer)
            if peer in self._gone:
                gone = f"its connection closed, or no sign of life in {SILENT_SECONDS:g} s"
            if time.monotonic() > deadline:
                raise PeerLostError(peer, f"alive, but silent for {self._patience:g} s")

    def _know(self, peer: int, source: int) -> None:
        """The first message has come through a connection: it is the peer's."""
        self._look(peer)  # before: strangers may have had the same descriptor
        self._sources[peer] = source
        if source in self._closed[peer]:
            self._gone.add(peer)

    def _look(self, peer: int) -> None:
        """Note whether the peer's own connection was closed."""
        monitor, closed = self._monitors[peer], self._closed[peer]
        while monitor.poll(0):
            event = recv_monitor_message(monitor)
            if event["event"] & OPENED:
                closed.discard(event["value"])
            else:
                closed.add(event["value"])
                # Where this owner connected, there is no stranger's connection.
                if peer < self.owner or event["value"] == self._sources.get(peer):
                    self._gone.add(peer)

    def close(self) -> None:
        """Leave; the others lose this one, once they have heard what it said."""
        self._opening.close()
        for peer, socket in self._sockets.items():
            socket.disable_monitor()
            # What a lost one has not taken it never will: nobody is to wait for that.
            socket.close(linger=0 if peer in self._lost else int(LINGER_SECONDS * 1000))
        self._context.destroy()
