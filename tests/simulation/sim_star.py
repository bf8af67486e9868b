"""Connections of owners to their leader, as ``Star``: late, broken, or to another group."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sim_loop import Loop, Process, Signal

from streamomd.distributed import star

FREE = 2
"""So few numbers to choose from that one that is free again is soon another gang's."""


@dataclass(eq=False)
class End:
    """One end of a connection; until there is another, what is sent waits."""

    process: Process
    signal: Signal
    inbox: list[bytes] = field(default_factory=list)
    waits: list[bytes] = field(default_factory=list)
    other: End | None = None
    broken: bool = False
    clear_at: float = 0.0


@dataclass(eq=False)
class Net:
    """All ports and connections. lost: how likely a message is, and with it the connection.
    strangers: how likely somebody of another gang connects to a port, before whom it is for."""

    loop: Loop
    slow: float
    lost: float = 0.0
    strangers: float = 0.0
    ports: dict[int, dict[int, End]] = field(default_factory=dict)
    """By port, the leader's end for each owner, as a socket knows its peers by name."""
    ends: list[End] = field(default_factory=list)
    known: set[Process] = field(default_factory=set)

    def end(self, process: Process) -> End:
        """An end that is not connected."""
        if process not in self.known:
            self.known.add(process)
            process.ends.append(lambda: self.ended(process))
        self.ends.append(End(process, Signal(self.loop)))
        return self.ends[-1]

    def bind(self, ends: dict[int, End]) -> int:
        """Have owners connect to these ends, at the port of this number."""
        free = (number for number in itertools.count() if number not in self.ports)
        number = self.loop.draw.choice([*itertools.islice(free, FREE)])
        self.ports[number] = ends
        for peer in ends:
            if self.loop.draw.random() < self.strangers:
                said, later = stranger(peer), self.loop.draw.uniform(0.0, 0.5)
                self.loop.at(later, partial(self._mistaken, number, peer, said))
        return number

    def _mistaken(self, number: int, peer: int, said: list[bytes]) -> None:
        end = self.end(self.loop.process("a stranger"))
        self.connect(end, number, peer)
        if end.other:
            for data in said:
                self.send(end, data)

    def connect(self, end: End, number: int, owner: int) -> None:
        """To whoever is at that port now, if no other owner of that number is connected to it."""
        there = self.ports.get(number, {}).get(owner)
        if there is None or there.other is not None or there.broken:
            return
        end.other, there.other = there, end
        for one in (end, there):
            waiting, one.waits = one.waits, []
            for data in waiting:
                self.send(one, data)

    def send(self, end: End, data: bytes) -> None:
        """It arrives after what was sent before."""
        if end.other is None:
            end.waits.append(data)
            return
        loop = self.loop
        if loop.draw.random() < self.lost:
            self._break(end)
            self._break(end.other)
            return
        end.clear_at = max(end.clear_at, loop.now) + loop.draw.uniform(0.0, self.slow)
        loop.at(end.clear_at - loop.now, lambda: self._arrive(end, data))

    def _arrive(self, end: End, data: bytes) -> None:
        if end.other and not end.other.broken:
            end.other.inbox.append(data)
            end.other.signal.notify()

    def leave(self, end: End, seconds: float) -> None:
        """An end is closed; the other hears what was sent, and then of that."""
        for number in [number for number, ends in self.ports.items() if end in ends.values()]:
            del self.ports[number]
        end.broken = True
        if end.other:
            other = end.other
            wait = max(end.clear_at - self.loop.now, 0.0) + seconds
            self.loop.at(wait, lambda: self._break(other))

    def cut(self, process: Process) -> None:
        """Somebody was not heard of for too long: its connections are gone, at both ends."""
        for end in self.ends:
            if end.process is process and end.other:
                self._break(end)
                self._break(end.other)

    def ended(self, process: Process) -> None:
        """Somebody was killed."""
        for end in [one for one in self.ends if one.process is process and not one.broken]:
            self.leave(end, self.loop.draw.uniform(0.0, 0.05))

    def _break(self, end: End) -> None:
        end.broken = True
        end.signal.notify()


def stranger(owner: int) -> list[bytes]:
    """What an owner of another gang of two says: who it is, and its numbers of some rounds."""
    rounds = [struct.pack("<QQQQ", count, 0, 1, 0) for count in (1, 2, 3)]
    return [star.HELLO.pack(b"omd1", bytes(16), owner), *rounds]


class SimStar:
    """As ``star.Star``."""

    def __init__(self, net: Net, token: bytes, owner: int, owners: int) -> None:
        process = net.loop.current.process
        self.owner, self.owners, self._token, self._net = owner, owners, token, net
        self._patience = star.STALL_SECONDS
        self._ends = {peer: net.end(process) for peer in star.peers_of(self)}
        self._signal = Signal(net.loop)
        for end in self._ends.values():
            end.signal = self._signal
        self.endpoint: Any = net.bind(self._ends) if owner == 0 and owners > 1 else None

    def join(self, leader: Any) -> None:
        if self.owner:
            self._net.connect(self._ends[0], leader, self.owner)
        self._patience = star.join_seconds(self)
        star.exchange_greetings(self, self._token)
        self._patience = star.STALL_SECONDS

    def send(self, peer: int, data: bytes) -> None:
        loop = self._net.loop
        if loop.draw.random() < 0.1:
            loop.sleep(loop.draw.uniform(0.0, self._net.slow))
        if self._ends[peer].broken:
            raise star.PeerLostError(peer, "its connection closed")
        self._net.send(self._ends[peer], data)

    def receive(self, peer: int) -> bytes:
        loop, end = self._net.loop, self._ends[peer]
        deadline = loop.now + self._patience
        while not end.inbox:
            self.check()
            if loop.now >= deadline:
                raise star.PeerLostError(peer, f"alive, but sent nothing for {self._patience:g} s")
            self._signal.wait(deadline - loop.now)
        return end.inbox.pop(0)

    def check(self) -> None:
        for peer, end in self._ends.items():
            if end.broken:
                raise star.PeerLostError(peer, "its connection closed")

    def close(self) -> None:
        for end in self._ends.values():
            if not end.broken:
                self._net.leave(end, 0.0)
