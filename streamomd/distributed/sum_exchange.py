"""The exchange of a round: owners send what their partitions add to the rows, the leader adds all
partitions in their order, takes the steps, and sends each owner the steps of its rows.

The order of additions is that of one process, so results are bit-identical for any number of
owners. An owner cannot add its own partitions first: that is another order. What is 0 for certain
is not sent: see ``engine.round_messages``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import ClusterError
from streamomd.distributed.star import LEADER, Star, peers_of
from streamomd.engine.micro_batches import Sensed
from streamomd.engine.round_messages import (
    OTHER_ROUND,
    Flags,
    Words,
    add_partitions,
    add_shares,
    pack_shares,
    pack_steps,
    unpack_steps,
)
from streamomd.training.partitions import owned

Floats = NDArray[np.float64]


@dataclass(eq=False)
class SumExchange:
    """The rounds of one owner. parts: partitions of the model.

    Methods raise PeerLostError, and ClusterError if another owner has other rows.
    """

    star: Star
    parts: int
    _round: int = 0
    _rows: dict[int, Flags] = field(default_factory=dict)
    _room: Words = field(default_factory=lambda: Words.room(0, 0))

    @cached_property
    def _partitions(self) -> dict[int, int]:
        """How many partitions each peer has."""
        star = self.star
        return {peer: len(owned(peer, star.owners, self.parts)) for peer in peers_of(star)}

    def add_all(self, sensed: Sensed) -> Floats:
        """Returns the sum over all partitions, (1, rows, n); the leader calls it."""
        self._round += 1
        total = add_partitions(sensed.numbers)
        for peer, partitions in self._partitions.items():
            here = add_shares(self._round, self.star.receive(peer), partitions, total)
            if here is None:
                self._refuse(peer)
            self._rows[peer] = here
        return total[np.newaxis]

    def send_steps(self, steps: Floats, totals: Floats, sums: Floats, flags: int) -> None:
        """Sends each owner its steps, (rows, learners, n), and totals, sums and flags; the leader
        calls it after ``add_all``."""
        rows, learners, _ = steps.shape
        room = self._room_of(rows * learners, totals.size + sums.size + steps.size)
        for peer, here in self._rows.items():
            message = pack_steps(self._round, flags, here, totals, sums, steps, room)
            self.star.send(peer, message)

    def send(self, sensed: Sensed) -> None:
        """Sends the numbers of an owner's partitions to the leader; the other owners call it."""
        self._round += 1
        numbers, touched = sensed
        room = self._room_of(touched.size, numbers.size)
        message, self._rows[LEADER] = pack_shares(self._round, touched, numbers, room)
        self.star.send(LEADER, message)

    def receive_steps(self, steps: Floats, totals: Floats, sums: Floats) -> int:
        """Writes what ``send_steps`` was given, and returns the flags; the other owners call it
        after ``send``."""
        message = self.star.receive(LEADER)
        flags = unpack_steps(self._round, message, self._rows[LEADER], totals, sums, steps)
        if flags == OTHER_ROUND:
            self._refuse(LEADER)
        return flags

    def _room_of(self, bits: int, numbers: int) -> Words:
        """Memory for a message, used again in every round."""
        if len(self._room.words) < bits // 64 + numbers + 4:
            self._room = Words.room(bits, numbers + 4)
        return self._room

    def _refuse(self, peer: int) -> NoReturn:
        raise ClusterError(f"owner {peer} is not in round {self._round}: other rows?")
