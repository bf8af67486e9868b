"""What owners exchange: the entries of row groups, each decoded once, and the sums of a round.

An owner reads the groups of an epoch in order: those it decodes, from the store; of all others it
takes its slices from their decoders, over Dask's connections between workers. Reading ahead, the
order of errors and the bound in bytes are those of ``training.row_stream.rows_of``.

The order of additions is that of one process, so results are bit-identical for any number of
owners. An owner cannot add its own partitions first: that is another order. What is 0 for certain
is not sent: see ``engine.micro_batches``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
from distributed import Worker
from distributed.core import ConnectionPool, Status
from distributed.protocol.serialize import to_serialize

from streamomd.core.batch import DenseBatch, Floats
from streamomd.core.errors import ClusterError
from streamomd.distributed.slice_outbox import (
    CompactRows,
    Key,
    ReadingEnded,
    Slice,
    SliceOutbox,
    compacted,
)
from streamomd.distributed.star import (
    LEADER,
    POLL_SECONDS,
    STALL_SECONDS,
    PeerLostError,
    Star,
    peers_of,
)
from streamomd.engine.micro_batches import (
    OTHER_ROUND,
    Flags,
    Sensed,
    Words,
    add_partitions,
    add_shares,
    pack_shares,
    pack_steps,
    unpack_steps,
)
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import Job
from streamomd.shards.reader import Piece, Read, Reader
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.microbatch_rounds import cut_columns, owned

OPERATION, SHARDS_OPERATION = "omd_rows", "omd_shards"
DECODERS = 16
"""The most owners that decode: they are faster than the rounds, and each connects to all others."""
Columns = tuple[int, int]
"""An owner's coordinates: the first, and one more than the last."""
_EXCHANGES: dict[tuple[str, int], RowExchange] = {}


class RowExchange:
    """The decoded groups of one owner, and its way to those of the others.

    addresses: the workers of all owners. shards: of the leader, which gives them to the others, so
    that a long list passes the scheduler once. ranges: of all owners. budget: bytes of slices that
    wait for the others. check: called while rows are waited for; raises PeerLostError.
    """

    def __init__(
        self,
        worker: Worker,
        group: str,
        owner: int,
        addresses: Sequence[str],
        shards: tuple[Shard, ...],
        ranges: Sequence[Columns],
        budget: int,
        check: Callable[[], None],
    ) -> None:
        self.owner, self.ranges, self.check = owner, ranges, check
        self._worker, self._group, self._addresses = worker, group, addresses
        self.given_shards = shards
        self.loop: Any = worker.loop.asyncio_loop  # type: ignore[attr-defined]
        # Dask closes a worker's own connections to one that retires, which still has rows.
        self._pool = ConnectionPool(
            serializers=worker.rpc.serializers,
            deserializers=worker.rpc.deserializers,
            connection_args=worker.rpc.connection_args,
        )
        peers = [peer for peer in range(len(addresses)) if peer != owner]
        self.outbox = SliceOutbox(peers, budget, self.loop)
        self.decoders = min(len(addresses), DECODERS)
        _EXCHANGES[group, owner] = self
        worker.handlers[OPERATION] = _serve_slices
        worker.handlers[SHARDS_OPERATION] = _serve_shards

    def shards(self) -> tuple[Shard, ...]:
        """The leader's list. Called after all have joined. Raises PeerLostError."""
        if self.owner == LEADER:
            return self.given_shards
        found: tuple[Shard, ...] = self.wait(self._ask_shards(), LEADER, self.check)["shards"]
        return found

    async def _ask_shards(self) -> Any:
        return await (await self._peer(LEADER)).omd_shards(group=self._group)

    async def _peer(self, owner: int) -> Any:
        if self._pool.status == Status.init:
            await self._pool.start()
        return self._pool(self._addresses[owner])

    def wait(self, asked: Coroutine[Any, Any, Any], peer: int, check: Callable[[], None]) -> Any:
        """A peer's reply, for another thread than the event loop's. check: called while it waits.

        Raises PeerLostError, and what ``check`` raises.
        """
        deadline = time.monotonic() + STALL_SECONDS
        # In the worker's loop, where its connections live; this is a thread of a task.
        asking = asyncio.run_coroutine_threadsafe(asked, self.loop)
        try:
            while True:
                try:
                    reply = asking.result(POLL_SECONDS)
                    break
                except OSError as error:  # of which TimeoutError is one
                    if asking.done():
                        raise PeerLostError(peer, f"it sends no rows: {error}") from None
                check()
                if time.monotonic() > deadline:
                    raise PeerLostError(peer, f"alive, but sent no rows for {STALL_SECONDS:g} s")
        finally:
            asking.cancel()
        if "closed" in reply:
            raise PeerLostError(peer, "it has ended and sends no rows")
        return reply

    def epoch(self, shards: ShardSet, order: Sequence[int], epoch: int) -> EpochRows:
        """The groups of one epoch. order: of the shards."""
        # Groups are numbered over all shards, so that decoders take turns also where each has one.
        firsts = [0, *accumulate(len(shard.groups) for shard in shards)]
        return EpochRows(self, epoch, [firsts[at] for at in order])

    async def ask(self, decoder: int, key: Key) -> Any:
        """A reply of another owner's ``_serve_slices``."""
        other = await self._peer(decoder)
        return await other.omd_rows(
            group=self._group, decoder=decoder, receiver=self.owner, key=[*key]
        )

    def close(self) -> None:
        """The others receive no more slices."""
        _EXCHANGES.pop((self._group, self.owner), None)
        self.outbox.close()
        asyncio.run_coroutine_threadsafe(self._pool.close(), self.loop)


async def _serve_slices(group: str, decoder: int, receiver: int, key: list[int]) -> Any:
    """Reply to another owner, on the event loop of the decoder's worker."""
    exchange = _EXCHANGES.get((group, decoder))
    try:
        if exchange is None:
            raise ReadingEnded
        epoch, place, number = key
        slices, ended, error = await exchange.outbox.take((epoch, place, number), receiver)
    except ReadingEnded:
        return {"closed": True}
    return {"slices": to_serialize([slices, ended, error])}


async def _serve_shards(group: str) -> Any:
    """Reply to another owner, on the event loop of the leader's worker."""
    exchange = _EXCHANGES.get((group, LEADER))
    if exchange is None:
        return {"closed": True}
    return {"shards": to_serialize(exchange.given_shards)}


@dataclass(eq=False)
class EpochRows:
    """Decodes an epoch's rows, as ``training.row_stream.SharedDecoding`` does. firsts: the number
    of each shard's first group, in the order of the epoch, among all groups of the shards."""

    exchange: RowExchange
    epoch: int
    firsts: Sequence[int]
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def threads(self) -> int:
        """Groups in work at the same time: one of each decoder."""
        return self.exchange.decoders

    def decoder(self, job: Job) -> int:
        """The owner that decodes a group: the same in every epoch, as its digest is known there."""
        return (self.firsts[job.position] + job.group.number) % self.exchange.decoders

    def is_elsewhere(self, job: Job) -> bool:
        """Whether another owner decodes a job's group."""
        return self.decoder(job) != self.exchange.owner

    def read(self, read: Read[Slice], reader: Reader, job: Job) -> Iterator[Slice]:
        """This owner's slices of a group. read: decodes it, if this owner does."""
        key = self.epoch, job.position, job.group.number
        decoder = self.decoder(job)
        if decoder == self.exchange.owner:
            return self._decoded(key, read(reader, job))
        return self._received(key, decoder)

    def _decoded(self, key: Key, pieces: Iterator[Slice]) -> Iterator[Slice]:
        exchange = self.exchange
        try:
            for piece in pieces:
                bare = _with_batch(piece, replace(piece.value.batch, columns=None))
                whole = [piece if at == LEADER else bare for at in range(len(exchange.ranges))]
                own = _cut(whole[exchange.owner], exchange.ranges[exchange.owner])
                others = {
                    at: _compact(whole[at], columns)
                    for at, columns in enumerate(exchange.ranges)
                    if at != exchange.owner
                }
                # Before the own slice is used: the others wait for theirs.
                exchange.outbox.put(key, others)
                del piece, bare, whole, others
                yield own
            exchange.outbox.end(key)
        except ReadingEnded:
            return
        except Exception as error:
            exchange.outbox.end(key, error)  # the others raise it at the same row
            raise

    def _received(self, key: Key, decoder: int) -> Iterator[Slice]:
        ended = False
        while not ended:
            try:
                slices, ended, error = self._ask(key, decoder)
            except ReadingEnded:
                return
            # Before the error: the rows before it are learned, as in one process.
            yield from map(_restored, slices)
            if error is not None:
                raise error

    def _ask(self, key: Key, decoder: int) -> tuple[list[Slice], bool, Exception | None]:
        asked = self.exchange.ask(decoder, key)
        slices, ended, error = self.exchange.wait(asked, decoder, self._check_cancelled)["slices"]
        return slices, ended, error

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise ReadingEnded

    def cancel(self) -> None:
        """No thread waits any longer: the epoch is no longer read."""
        self._cancelled.set()
        self.exchange.outbox.close_epoch(self.epoch)

    def check(self) -> None:
        """Called while rows are waited for. Raises PeerLostError."""
        self.exchange.check()


def _cut(piece: Piece[Rows], columns: Columns) -> Slice:
    return _with_batch(piece, cut_columns(piece.value.batch, *columns))


def _compact(piece: Piece[Rows], columns: Columns) -> Slice:
    """A slice to be sent."""
    batch = piece.value.batch
    compact = compacted(batch, *columns) if isinstance(batch, DenseBatch) else None
    return _cut(piece, columns) if compact is None else _with_batch(piece, compact)


def _restored(piece: Slice) -> Slice:
    batch: Any = piece.value.batch
    return _with_batch(piece, batch.restored()) if isinstance(batch, CompactRows) else piece


def _with_batch(piece: Piece[Rows], batch: Any) -> Slice:
    return replace(piece, value=piece.value._replace(batch=batch), nbytes=batch.nbytes)


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
