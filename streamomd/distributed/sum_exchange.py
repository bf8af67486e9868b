"""The exchange of a round: owners send what their partitions add to the rows, the leader adds all
partitions in their order, takes the steps, and sends each owner the steps of its rows.

The order of additions is that of one process, so results are bit-identical for any number of
owners. An owner cannot add its own partitions first: that is another order. What is 0 for certain
is not sent: numbers of a row in a partition where it has no entry, and steps of a row for an owner
that has none of its entries.

An owner's message: a head, n numbers of each touched (partition, row), one bit of each (partition,
row). The leader's: a head, totals and sums, the numbers of learners that move, one bit of each
learner of each touched row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import ClusterError
from streamomd.distributed.allreduce_zmq import LEADER, Star, peers_of
from streamomd.engine import Sensed
from streamomd.engine.round_numbers import (
    Flags,
    add_shares,
    pack_shares,
    pack_steps,
    touched_rows,
    unpack_steps,
)
from streamomd.training.partitions import owned

Floats = NDArray[np.float64]
HEAD = struct.Struct("<QQ")


@dataclass(eq=False)
class SumExchange:
    """The rounds of one owner. parts: partitions of the model.

    Methods raise PeerLostError, and ClusterError if another owner has other rows.
    """

    star: Star
    parts: int
    _round: int = 0
    _touched: dict[int, Flags] = field(default_factory=dict)

    def add_all(self, sensed: Sensed) -> Floats:
        """Of the leader: the sum over all partitions, (1, rows, n)."""
        self._round += 1
        star, numbers = self.star, sensed.numbers
        total = numbers[:1].copy()
        for partition in numbers[1:]:
            total += partition
        rows, n = total.shape[1:]
        for peer in peers_of(star):
            cells = len(owned(peer, star.owners, self.parts)), rows
            packed, bits, _ = self._received(peer, cells[0] * rows)
            touched = _unpacked(bits, cells[0] * rows).reshape(cells)
            self._require_round(peer, packed.size == n * np.count_nonzero(touched))
            add_shares(touched, packed, total[0])
            self._touched[peer] = touched
        return total

    def send_steps(self, steps: Floats, moved: Sequence[Floats], flags: int) -> None:
        """Of the leader, after ``add_all``: send each owner its steps, (rows, learners, n), all
        numbers of ``moved``, and the flags."""
        rows, learners, n = steps.shape
        first = sum(one.size for one in moved)
        numbers = np.empty(first + rows * learners * (n - 1))
        np.concatenate([one.reshape(-1) for one in moved], out=numbers[:first])
        moves = np.empty(rows * learners, dtype=np.uint8)
        for peer in peers_of(self.star):
            bits, count = pack_steps(self._touched[peer], steps, moves, numbers[first:])
            self._send(peer, flags, numbers[: first + count], moves[:bits])

    def send(self, sensed: Sensed) -> None:
        """Of another owner: send the numbers of its partitions to the leader."""
        self._round += 1
        numbers = np.empty(sensed.numbers.size)
        count = pack_shares(sensed.touched, sensed.numbers, numbers)
        self._send(LEADER, 0, numbers[:count], sensed.touched)
        self._touched[LEADER] = sensed.touched

    def receive_steps(self, steps: Floats, moved: Sequence[Floats]) -> int:
        """Of another owner, after ``send``: write what ``send_steps`` was given; the flags."""
        touched, learners, n = self._touched[LEADER], *steps.shape[1:]
        count, first = touched_rows(touched) * learners, sum(one.size for one in moved)
        numbers, bits, flags = self._received(LEADER, count)
        moves = _unpacked(bits, count)
        needed = first + (n - 1) * np.count_nonzero(moves)
        self._require_round(LEADER, numbers.size == needed)
        at = 0
        for one in moved:
            one.reshape(-1)[:] = numbers[at : at + one.size]
            at += one.size
        unpack_steps(touched, moves, numbers[at:], steps)
        return flags

    def _send(self, peer: int, flags: int, numbers: Floats, bits: Flags) -> None:
        head = HEAD.pack(self._round, flags)
        self.star.send(peer, b"".join((head, numbers.data, np.packbits(bits).data)))

    def _received(self, peer: int, bits: int) -> tuple[Floats, Flags, int]:
        """The numbers, bytes with this many bits, and the flags of a message of this round."""
        message = self.star.receive(peer)
        number, flags = HEAD.unpack_from(message)
        room, nbytes = len(message) - HEAD.size, -(-bits // 8)
        count, rest = divmod(room - nbytes, 8)
        self._require_round(peer, number == self._round and count >= 0 and not rest)
        numbers = np.frombuffer(message, np.float64, count, HEAD.size)
        return numbers, np.frombuffer(message, np.uint8, nbytes, HEAD.size + 8 * count), flags

    def _require_round(self, peer: int, is_round: bool) -> None:
        if not is_round:
            raise ClusterError(f"owner {peer} is not in round {self._round}: other rows?")


def _unpacked(bits: Flags, count: int) -> Flags:
    return np.unpackbits(bits, count=count)
