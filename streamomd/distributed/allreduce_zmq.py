"""A star of owners: each has one connection, to the leader (owner 0); every wait has a deadline.

ZeroMQ: the leader listens at one port. Heartbeats come from the transport's own thread: an owner
that decodes or compiles for a long time is alive; one that was killed, stopped or disconnected is
lost after seconds. The leader loses owners, and an owner loses the leader: one that loses another
ends, so that its own connections close and all of them end.
"""

from __future__ import annotations

import functools
import struct
import time
from collections import deque
from contextlib import ExitStack
from typing import Any, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from streamomd.core.errors import ClusterError
from streamomd.distributed.curve_keys import CurveKeys, authenticating, connect_with, listen_with

HEARTBEAT_TIMEOUT_SECONDS = 3.0  # without a heartbeat
HEARTBEAT_SECONDS = 0.5
POLL_SECONDS = 0.1
JOIN_SECONDS = 15.0  # for all to connect, once the leader's endpoint is known
STALL_SECONDS = 600.0  # for an owner that is alive and sends nothing
LINGER_SECONDS = 1.0  # for the last messages to be sent
LEADER, DRIVER = 0, -1
HELLO = struct.Struct("<4s16sI")
OPENED = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED
POLL_MESSAGES = 1024  # between two reads of the monitor: strangers may connect without limit
BACKLOG = 4096  # connections that wait to be accepted: all owners connect in the same instant


class PeerLostError(ClusterError):
    """An owner lost a peer, which died, was stopped, was disconnected, or gave up."""

    def __init__(self, peer: int, reason: str) -> None:
        who = "the driver" if peer == DRIVER else f"owner {peer}"
        super().__init__(f"{who} was lost: {reason}")
        self.peer, self.reason = peer, reason

    def __reduce__(self) -> Any:
        """For other processes: pickle alone would call __init__ with the message."""
        return functools.partial(PeerLostError, self.peer), (self.reason,)


class Star(Protocol):
    """The connections of one owner: the leader's to all others, or another's to the leader.

    Methods raise PeerLostError for a peer that is lost, also while they wait for another one.
    """

    owner: int
    owners: int
    endpoint: Any
    """Of the leader: what the others need for ``join``."""

    def join(self, leader: Any) -> None:
        """Connect to the endpoint of the leader; the leader waits until all are connected."""

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer."""

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""

    def check(self) -> None:
        """Whether all peers are there, for an owner that waits for something else."""

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""


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

    The name is no secret: it finds wrong connections of members, not strangers.
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


class ZmqStar:
    """ZeroMQ at a port of the leader's address only, encrypted and authenticated by CURVE.

    A stranger may connect to the port at any time; its handshake fails, and the peers can connect.
    """

    def __init__(self, host: str, group: bytes, owner: int, owners: int, keys: CurveKeys) -> None:
        self.owner, self.owners, self._group = owner, owners, group
        self._timeout, self._received = STALL_SECONDS, 0
        self._inbox = {peer: deque[bytes]() for peer in peers_of(self)}
        # Connections by descriptor, as libzmq's monitor reports them, including those of strangers.
        self._sources: dict[int, int] = {}
        self._closed: set[int] = set()
        self._gone: set[int] = set()
        self._lost = False
        self.endpoint, self._keys, self._opening = "", keys, ExitStack()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER if owner else zmq.ROUTER)
        self._monitor = self._context.socket(zmq.PAIR)
        self._configure()
        if owner == LEADER and owners > 1:
            self._opening.enter_context(authenticating(self._context, keys))
            listen_with(self._socket, keys)
            port = self._socket.bind_to_random_port(f"tcp://{host}")
            self.endpoint = f"tcp://{host}:{port}"

    def _configure(self) -> None:
        for option, value in {
            zmq.IPV6: 1,
            zmq.BACKLOG: BACKLOG,
            zmq.SNDHWM: 0,
            zmq.RCVHWM: 0,
            zmq.LINGER: int(LINGER_SECONDS * 1000),
            zmq.SNDTIMEO: int(STALL_SECONDS * 1000),
            zmq.RCVTIMEO: int(POLL_SECONDS * 1000),
            zmq.HEARTBEAT_IVL: int(HEARTBEAT_SECONDS * 1000),
            zmq.HEARTBEAT_TIMEOUT: int(HEARTBEAT_TIMEOUT_SECONDS * 1000),
        }.items():
            self._socket.setsockopt(option, value)
        if self.owner == LEADER:
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # else what cannot be sent is dropped
        else:
            self._socket.setsockopt(zmq.ROUTING_ID, _name(self.owner))
        # No limit: libzmq would drop a peer's event after a thousand events of strangers.
        self._monitor.setsockopt(zmq.RCVHWM, 0)
        self._monitor.setsockopt(zmq.LINGER, 0)
        self._socket.monitor("inproc://monitor", OPENED | zmq.EVENT_DISCONNECTED)
        self._monitor.connect("inproc://monitor")

    def join(self, leader: Any) -> None:
        """Connect to the leader, or let all others connect."""
        if self.owner:
            connect_with(self._socket, self._keys)
            self._socket.connect(leader)
        self._timeout = join_seconds(self)
        exchange_greetings(self, self._group)
        self._timeout = STALL_SECONDS
        self._opening.close()  # all are connected: from now on every handshake fails

    def send(self, peer: int, data: bytes) -> None:
        """Send to a peer; messages it has not read yet wait in memory."""
        try:
            if self.owner:
                self._socket.send(data)
            else:
                self._socket.send(_name(peer), zmq.SNDMORE)
                self._socket.send(data)
        except zmq.ZMQError as error:
            self._lost = True
            reason = "its connection closed" if error.errno == zmq.EHOSTUNREACH else str(error)
            raise PeerLostError(peer, reason) from None

    def receive(self, peer: int) -> bytes:
        """The next message of a peer, in order."""
        inbox = self._inbox[peer]
        if not inbox:
            self._wait_for(peer)
        return inbox.popleft()

    def _wait_for(self, peer: int) -> None:
        """Read messages until the peer has sent one, or one of the peers is lost."""
        deadline, gone = time.monotonic() + self._timeout, False
        while not self._inbox[peer]:
            if self._read():
                continue
            if gone:  # it was in vain to read again, for messages sent before the peer left
                self._raise_lost()
            self._read_monitor()
            gone = bool(self._gone)
            if not gone and time.monotonic() > deadline:
                raise PeerLostError(peer, f"alive, but sent nothing for {self._timeout:g} s")

    def check(self) -> None:
        """Raise PeerLostError if a peer is lost."""
        self._read_monitor()
        if self._gone:
            self._raise_lost()

    def _raise_lost(self) -> None:
        self._lost = True
        reason = f"its connection closed, or no heartbeat in {HEARTBEAT_TIMEOUT_SECONDS:g} s"
        raise PeerLostError(min(self._gone), reason)

    def _read(self) -> bool:
        """Take a message; False if none arrives for ``POLL_SECONDS``.

        To poll for 0.3 ms before sleeping received sooner on idle cores, and took a fifth of the
        CPU time of all owners.
        """
        try:
            # The descriptor is needed of the first messages only, and costs time.
            copy = len(self._sources) == len(self._inbox)
            name = b"" if self.owner else self._socket.recv()
            data: Any = self._socket.recv(copy=copy)
        except zmq.Again:
            return False
        self._received += 1
        if self._received % POLL_MESSAGES == 0:
            self._read_monitor()
        peer = LEADER if self.owner else _number(name)
        if peer in self._inbox:
            if not copy and peer not in self._sources.values():
                self._identify_connection(peer, data.get(zmq.SRCFD))
            self._inbox[peer].append(data if copy else bytes(data))
        return True

    def _identify_connection(self, peer: int, source: int) -> None:
        """The connection of the first message is the peer's."""
        self._read_monitor()  # first: strangers may have had the same descriptor
        self._sources[source] = peer
        if source in self._closed:
            self._gone.add(peer)

    def _read_monitor(self) -> None:
        """Record which peers' own connections were closed."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            source = event["value"]
            if event["event"] & OPENED:
                self._closed.discard(source)
            else:
                self._closed.add(source)
                # A socket that connects has no connections of strangers.
                peer = LEADER if self.owner else self._sources.get(source)
                if peer is not None:
                    self._gone.add(peer)

    def close(self) -> None:
        """Close; the peers receive the messages already sent, then lose this owner."""
        self._opening.close()
        self._socket.disable_monitor()
        # A lost peer will never read its messages: do not wait for it.
        self._socket.close(linger=0 if self._lost else int(LINGER_SECONDS * 1000))
        self._context.destroy()


def _name(owner: int) -> bytes:
    """An owner's name in the leader's socket."""
    return b"owner %d" % owner


def _number(name: bytes) -> int:
    """The owner of a name; -1 of a name that no owner has."""
    text = name.removeprefix(b"owner ")
    return int(text) if text.isdigit() else -1
