"""What a worker does in sharded mode: own some partitions, and make every round with the others.

Every owner reads the same rows, keeps the entries of its own coordinates, and takes the same steps.
The first one leads: it says with a round's numbers when to commit or to stop, and speaks with the
driver. What was learned since the last commit is lost with any of them.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Queue, Variable, get_worker, worker_client
from distributed.comm.addressing import get_address_host
from numpy.typing import NDArray

from streamomd.checkpoint import (
    Commit,
    PartEntry,
    open_store,
    parse_entry,
    read_commit,
    read_document,
    read_ledger,
    read_part,
    write_part,
)
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError
from streamomd.core.finite import finite_parts
from streamomd.distributed.allreduce_dask import StreamMesh
from streamomd.distributed.allreduce_zmq import DRIVER, Mesh, PeerLostError, ZmqMesh, others
from streamomd.distributed.commit_schedule import CommitSchedule
from streamomd.distributed.control_channel import ControlChannel
from streamomd.distributed.curve_keys import Keys, require_curve
from streamomd.distributed.worker_probe import VERSION
from streamomd.features import Names, Plan
from streamomd.shards.cursor import Cursor
from streamomd.shards.digests import Digests, Found
from streamomd.shards.filesystem import connect
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.build_engine import engine_of
from streamomd.training.metrics import Metrics
from streamomd.training.microbatch_rounds import Rounds
from streamomd.training.partitions import Share, edges, owned
from streamomd.training.progress import hushed

Floats = NDArray[np.float64]
HEAD = struct.Struct("<QQ")
COMMIT, STOP = 1, 2
TABLE_SECONDS = 30.0  # for the driver to know all owners
ANSWER_SECONDS = 120.0  # for the driver to make a commit
SPEAK_SECONDS = 0.5


@dataclass(frozen=True)
class OwnerSetup:
    """What one owner is told. gang: its name, in hex. keys: of the gang, None without ZeroMQ.
    directory: where the parts of the next commit go."""

    version: str
    gang: str
    topic: str
    owner: int
    owners: int
    keys: Keys | None = field(repr=False)
    spec: Spec = field(repr=False)
    plan: Plan = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    url: str
    sequence: int
    directory: str


def own(order: OwnerSetup) -> str:
    """On a worker: the rounds that are left. "done", or "stopped" if the driver asked for it."""
    if order.version != VERSION:
        raise ClusterError(
            f"a worker has streamomd {VERSION}, the driver {order.version}: install the same on all"
        )
    worker = get_worker()
    with hushed(True), worker_client(separate_thread=True) as client:
        which = (bytes.fromhex(order.gang), order.owner, order.owners)
        mesh: Mesh
        if order.keys:
            require_curve()
            mesh = ZmqMesh(_host(worker.address), *which, keys=order.keys)
        else:
            mesh = StreamMesh(worker, *which)
        with closing(mesh):
            wire = ControlChannel(
                Queue(order.topic, client=client), Variable(order.topic, client=client)
            )
            me = uuid.uuid4().hex
            wire.say("here", owner=order.owner, place=(me, mesh.place))
            places = wire.wait(lambda told: told["places"], TABLE_SECONDS)
            if places[order.owner][0] != me:
                # Dask runs a lost task again on a worker that comes back at the same address: this
                # one would learn from where the gang began, into a directory committed long ago.
                raise PeerLostError(DRIVER, "it goes on with another in this owner's place")
            mesh.join([place for _, place in places])
            how = PartitionOwner(order, mesh, wire).run()
            if order.owner == 0:
                wire.say(how)
            return how


def _host(address: str) -> str:
    """Where to listen: the address at which the other workers reach this one, and no other."""
    host = get_address_host(address) if not address.startswith("inproc") else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


class PartitionOwner:
    """One member of the gang, once all are connected."""

    def __init__(self, order: OwnerSetup, mesh: Mesh, wire: ControlChannel) -> None:
        self._order, self._mesh, self._wire = order, mesh, wire
        self._leads = order.owner == 0
        spec, parts = order.spec, order.spec.train.parts
        self._store = open_store(order.url, spec.checkpoint.storage_options)
        self._mine = [owned(owner, order.owners, parts) for owner in range(order.owners)]
        self._parts, self._directory = parts, order.directory
        commit = read_commit(self._store, order.sequence)
        self._share = Share.of(engine_of(spec, order.plan), parts, self._mine[order.owner])
        self._metrics = self._filled(commit)
        self._names = Names()
        if self._leads:
            saved = read_document(self._store, "names", str(commit.document["names"]))
            self._names = Names.from_json(saved)
        self._named = self._names.version
        self._digests, self._reported = Digests(read_ledger(self._store, commit).digests()), 0
        fs = connect(order.shards[0].url, spec.data.storage_options)
        self._rounds = Rounds(
            spec,
            order.plan,
            ShardSet(order.shards, fs),
            self._share,
            self._metrics,
            Cursor.from_json(commit.document["cursor"]),
            self._names if self._leads else None,
            self._digests,
            self._swapped,
        )
        self._due = CommitSchedule(spec.checkpoint, self._metrics.total_rows)
        self._word = self._number = self._count = self._stop = 0
        self._met = False
        self._spoke = time.monotonic()

    def _filled(self, commit: Commit) -> Metrics:
        """Take what is this share's of a commit; its metrics. Of other parts nothing is read."""
        share, found = self._share, None
        for entry in commit.parts:
            if entry.lo == 0 or (entry.lo < share.high and entry.hi > share.low):
                low, high, arrays = read_part(self._store, commit, entry)
                share.fill(low, high, arrays)
                if low == 0:
                    classifies = self._order.spec.model.classifies
                    found = Metrics.from_arrays(arrays, classifies=classifies)
        assert found is not None
        return found

    def run(self) -> str:
        """Every round that is left, and a commit after the last one."""
        warmed = self._rounds.warm()
        if self._leads:
            self._wire.say("warm", seconds=warmed)
        for _ in self._rounds:
            if self._leads and not self._met:
                self._met = True
                self._wire.say("met")
            if self._word and self._rounds.cursor.epoch < self._order.spec.train.epochs:
                self._commit()
                if self._word & STOP:
                    return "stopped"
            if self._leads:
                self._speak()
        self._commit()
        return "done"

    def _swapped(self, found: Floats) -> Floats:
        """The numbers of all partitions: every owner sends its own to every other."""
        mesh = self._mesh
        if self._leads:
            rows = self._metrics.total_rows + found.shape[1]
            self._word = (COMMIT | STOP) if self._stop else int(self._due.at(rows))
        if mesh.owners == 1:
            return found
        self._count += 1
        message = HEAD.pack(self._count, self._word) + found.tobytes()
        for peer in others(mesh):
            mesh.send(peer, message)
        whole = np.empty((self._parts, *found.shape[1:]))
        whole[self._mine[mesh.owner].start : self._mine[mesh.owner].stop] = found
        for peer in others(mesh):
            message, mine = mesh.receive(peer), self._mine[peer]
            count, word = HEAD.unpack_from(message)
            numbers = np.frombuffer(message, dtype=np.float64, offset=HEAD.size)
            theirs = whole[mine.start : mine.stop]
            if count != self._count or numbers.size != theirs.size:
                raise ClusterError(f"owner {peer} is not in round {self._count}: other rows?")
            theirs[...] = numbers.reshape(theirs.shape)
            if peer == 0:
                self._word = word
        return whole

    def _commit(self) -> None:
        """Put what is owned; the leader hears of all parts, and the driver makes the commit."""
        began, mesh = time.monotonic(), self._mesh
        entries = [
            write_part(self._store, self._directory, part).to_json() for part in self._all_parts()
        ]
        found = self._digests.found(self._reported)
        self._reported += len(found)
        digests = {(url, group, digest.hex()) for url, group, digest in found}
        if not self._leads:
            mesh.send(0, json.dumps([entries, [*digests]]).encode())
            self._directory = mesh.receive(0).decode()
            return
        for peer in others(mesh):
            more = json.loads(mesh.receive(peer))
            entries += more[0]
            # Each owner reads all rows: two digests of a row group are refused by the driver.
            digests |= {(url, group, digest) for url, group, digest in more[1]}
        self._number += 1
        names = {} if self._names.version == self._named else {"names": self._names.to_json()}
        self._named = self._names.version
        cursor = self._rounds.cursor.to_json()
        self._wire.say(
            "commit",
            number=self._number,
            entries=json.dumps(entries),
            digests=json.dumps(sorted(digests)),
            cursor=cursor,
            **names,
            **self._figures(),
        )
        self._directory = self._wire.wait(
            lambda told: told["committed"] == self._number and told["directory"], ANSWER_SECONDS
        )
        for peer in others(mesh):
            mesh.send(peer, self._directory.encode())
        self._due.done(self._metrics.total_rows, time.monotonic() - began)

    def _all_parts(self) -> Any:
        for low, high, arrays in finite_parts(self._share.parts()):
            yield low, high, arrays | (self._metrics.arrays() if low == 0 else {})

    def _speak(self) -> None:
        """Twice a second: how far it is; and what the driver wants."""
        now = time.monotonic()
        if now - self._spoke < SPEAK_SECONDS:
            return
        self._spoke = now
        self._wire.say("rows", **self._figures())
        self._stop = self._wire.told()["stop"]
        if self._wire.is_silent():
            raise PeerLostError(DRIVER, "it gives no sign of life")

    def _figures(self) -> dict[str, Any]:
        state = self._share.state
        return {
            "rows": list(self._metrics.rows),
            "sums": self._metrics.sums.tolist(),
            "bad": self._metrics.bad.tolist(),
            "totals": state.totals.tolist(),
            "clock": state.clock,
        }


def entries_of(told: str) -> tuple[PartEntry, ...]:
    """Entries as ``commit`` tells them, proven to be legal."""
    return tuple(parse_entry(one) for one in json.loads(told))


def digests_of(told: str) -> list[Found]:
    """Digests as ``commit`` tells them."""
    return [(url, group, bytes.fromhex(digest)) for url, group, digest in json.loads(told)]


def gang_size(size: int, parts: int, workers: int) -> int:
    """How many owners so many workers give; the first is never without a coordinate.

    >>> gang_size(1000, 16, 3), gang_size(1000, 16, 40), gang_size(10, 16, 3)
    (3, 16, 1)
    """
    return min(workers, parts) if edges(size, parts)[1] > 0 else 1
