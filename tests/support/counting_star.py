"""A star in memory that counts messages and bytes, for more owners than a machine has processes."""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamomd.distributed.exchange import Floats, SumExchange
from streamomd.engine.micro_batches import Sensed
from streamomd.training.microbatch_rounds import owned


def numbers(parts: int, rows: int, n: int = 1, touched: float = 1.0) -> Sensed:
    """Of every magnitude, so that each order of additions has bits of its own.

    touched: the share of the cells (partition, row) that have an entry.
    """
    draw = np.random.default_rng(parts * 1_000 + rows)
    found = draw.normal(size=(parts, rows, n)) * 10.0 ** draw.integers(-12, 12, (parts, rows, n))
    cells = draw.random((parts, rows)) < touched
    return Sensed(np.where(cells[:, :, None], found, 0.0), cells.astype(np.uint8))


def steps_of(total: Floats, moves: float = 1.0) -> Floats:
    """Steps that have a row's sums as numbers, (rows, 1, 1 + n). moves: the share that move."""
    draw = np.random.default_rng(len(total))
    active = (draw.random(len(total)) < moves).astype(float)
    return np.column_stack([active, total])[:, None, :]


def shares_of(sensed: Sensed, owners: int) -> list[Sensed]:
    """What each owner has found."""
    ranges = [owned(owner, owners, len(sensed.touched)) for owner in range(owners)]
    return [Sensed(*(array[one.start : one.stop] for array in sensed)) for one in ranges]


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
    """As ``Star``, in one process."""

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

    def check(self) -> None:
        """No peer is lost."""

    def close(self) -> None:
        """Nothing to close."""


class Round(NamedTuple):
    """The leader's sum and steps, the other owners' steps, and what was sent."""

    total: Floats
    steps: Floats
    received: list[Floats]
    counted: Counted


def exchange_all(owners: int, sensed: Sensed, moves: float = 1.0) -> Round:
    """A round. sensed: of all partitions. moves: the share of rows that move."""
    counted, parts, flags = Counted(), len(sensed.touched), 1
    made = [SumExchange(CountingStar(owner, owners, counted), parts) for owner in range(owners)]
    shares, totals, sums = shares_of(sensed, owners), np.ones((1, 1)), np.arange(3.0)
    for exchange, share in zip(made[1:], shares[1:], strict=True):
        exchange.send(share)
    total = made[0].add_all(shares[0])[0]
    steps = steps_of(total, moves)
    made[0].send_steps(steps, totals, sums, flags)
    received = []
    for exchange in made[1:]:
        found, there = np.full_like(steps, np.nan), [np.empty((1, 1)), np.empty(3)]
        assert exchange.receive_steps(found, *there) == flags
        assert [one.tolist() for one in there] == [totals.tolist(), sums.tolist()]
        received.append(found)
    return Round(total, steps, received, counted)
