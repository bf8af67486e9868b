"""A star in memory that counts messages and bytes, for more owners than a machine has processes."""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamomd.distributed.sum_exchange import Floats, SumExchange
from streamomd.training.partitions import owned


def numbers(parts: int, rows: int, n: int = 1) -> Floats:
    """Of every magnitude, so that each order of additions has bits of its own."""
    draw = np.random.default_rng(parts * 1_000 + rows)
    return draw.normal(size=(parts, rows, n)) * 10.0 ** draw.integers(-12, 12, (parts, rows, n))


@dataclass(eq=False)
class Counted:
    """What was sent: messages, bytes, and the peers of each owner."""

    messages: Counter[int] = field(default_factory=Counter)
    bytes: Counter[int] = field(default_factory=Counter)
    peers: dict[int, set[int]] = field(default_factory=dict)
    boxes: dict[tuple[int, int], queue.SimpleQueue[bytes]] = field(default_factory=dict)

    def box(self, sender: int, receiver: int) -> queue.SimpleQueue[bytes]:
        """The messages from one to the other."""
        return self.boxes.setdefault((sender, receiver), queue.SimpleQueue())


@dataclass(eq=False)
class CountingStar:
    """As ``ZmqStar``, in one process."""

    owner: int
    owners: int
    counted: Counted
    endpoint: Any = None

    def join(self, leader: Any) -> None:
        """Nothing to connect."""

    def send(self, peer: int, data: bytes) -> None:
        counted = self.counted
        counted.messages[self.owner] += 1
        counted.bytes[self.owner] += len(data)
        counted.peers.setdefault(self.owner, set()).add(peer)
        counted.box(self.owner, peer).put(data)

    def receive(self, peer: int) -> bytes:
        return self.counted.box(peer, self.owner).get_nowait()

    def close(self) -> None:
        """Nothing to close."""


def exchange_all(owners: int, parts: int, found: Floats) -> tuple[list[Floats], Counted]:
    """Each owner's sum after a round, and what was sent. found: (partitions, rows, n)."""
    counted = Counted()
    made = [SumExchange(CountingStar(owner, owners, counted), parts) for owner in range(owners)]
    ranges = [owned(owner, owners, parts) for owner in range(owners)]
    own = [found[one.start : one.stop] for one in ranges]
    for exchange, numbers in zip(made[1:], own[1:], strict=True):
        exchange.send(numbers)
    sums = [made[0].exchange(own[0], 1)[0]]
    for exchange, numbers in zip(made[1:], own[1:], strict=True):
        total, flags = exchange.receive_sum(numbers)
        assert flags == 1
        sums.append(total)
    return sums, counted
