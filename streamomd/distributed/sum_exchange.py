"""The exchange of a round: owners send the numbers of their partitions, the leader sends the sum.

The leader adds all partitions in their order, as one process does, so the sum is bit-identical for
any number of owners. An owner cannot add its own partitions first: that is another order. With K
owners, P partitions and N numbers in a round, the leader receives K - 1 messages of at most
8 N ceil(P / K) bytes and sends K - 1 of 8 N; each begins with a head of 16 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import ClusterError
from streamomd.distributed.allreduce_zmq import LEADER, Star, peers_of
from streamomd.training.partitions import owned

Floats = NDArray[np.float64]
HEAD = struct.Struct("<QQ")


@dataclass(eq=False)
class SumExchange:
    """The rounds of one owner. parts: partitions of the model."""

    star: Star
    parts: int
    _round: int = 0

    def exchange(self, found: Floats, flags: int) -> tuple[Floats, int]:
        """The sum over all partitions, (1, rows, n), and the leader's flags.

        found: of this owner's partitions, (own partitions, rows, n). flags: the leader's own ones.
        Raises PeerLostError, and ClusterError if another owner has other rows.
        """
        if self.star.owners == 1:
            return found, flags
        if self.star.owner == LEADER:
            return self.add_all(found, flags), flags
        self.send(found)
        return self.receive_sum(found)

    def send(self, found: Floats) -> None:
        """Send the numbers of this owner's partitions to the leader."""
        self._round += 1
        self.star.send(LEADER, b"".join((HEAD.pack(self._round, 0), found.data)))

    def receive_sum(self, found: Floats) -> tuple[Floats, int]:
        """What the leader sends after ``send``."""
        total, flags = self._receive(LEADER, found[:1].shape)
        return total.copy(), flags  # writable, as compiled loops take it

    def add_all(self, found: Floats, flags: int) -> Floats:
        """The sum, which the leader sends to all others."""
        self._round += 1
        star, total = self.star, found[:1].copy()
        for partition in found[1:]:
            total += partition
        for peer in peers_of(star):
            partitions = len(owned(peer, star.owners, self.parts))
            for partition in self._receive(peer, (partitions, *found.shape[1:]))[0]:
                total += partition
        message = b"".join((HEAD.pack(self._round, flags), total.data))
        for peer in peers_of(star):
            star.send(peer, message)
        return total

    def _receive(self, peer: int, shape: tuple[int, ...]) -> tuple[Floats, int]:
        message = self.star.receive(peer)
        count, flags = HEAD.unpack_from(message)
        numbers = np.frombuffer(message, dtype=np.float64, offset=HEAD.size)
        if count != self._round or numbers.size != np.prod(shape):
            raise ClusterError(f"owner {peer} is not in round {self._round}: other rows?")
        return numbers.reshape(shape), flags
