"""Sharded mode on a worker: own some partitions of the state, and exchange sums in every round.

Every owner reads the same rows, stores the entries of its own coordinates, and takes the same
steps. Owner 0 is the leader: with a round's numbers it sends whether to commit or stop, and it
reports to the driver. If any owner is lost, the work since the last commit is lost.
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
    read_parts,
    write_parts,
)
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError
from streamomd.core.finite import finite_parts
from streamomd.distributed.allreduce_dask import StreamMesh
from streamomd.distributed.allreduce_zmq import DRIVER, Mesh, PeerLostError, ZmqMesh, peers_of
from streamomd.distributed.control_channel import ControlChannel
from streamomd.distributed.curve_keys import CurveKeys, require_curve
from streamomd.distributed.worker_probe import VERSION
from streamomd.features import Names, Plan
from streamomd.shards.cursor import Cursor
from streamomd.shards.digests import Digests, Found
from streamomd.shards.filesystem import connect
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.build_engine import engine_of
from streamomd.training.checkpoint_manager import CommitSchedule
from streamomd.training.metrics import Metrics
from streamomd.training.microbatch_rounds import Rounds
from streamomd.training.partitions import Share, edges, owned
from streamomd.training.progress import quiet_notes

Floats = NDArray[np.float64]
HEAD = struct.Struct("<QQ")
COMMIT, STOP = 1, 2
JOIN_SECONDS = 30.0  # for the driver to publish all endpoints
ANSWER_SECONDS = 120.0  # for the driver to make a commit
REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class OwnerSetup:
    """Input of one owner. group: its id, in hex. keys: of the group, None without ZeroMQ.
    directory: where to write the parts of the next commit."""

    version: str
    group: str
    topic: str
    owner: int
    owners: int
    keys: CurveKeys | None = field(repr=False)
    spec: Spec = field(repr=False)
    plan: Plan = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    url: str
    sequence: int
    directory: str


def run_owner(setup: OwnerSetup) -> str:
    """Runs on a worker: all remaining rounds. "done", or "stopped" if the driver requested it."""
    if setup.version != VERSION:
        raise ClusterError(
            f"a worker has streamomd {VERSION}, the driver {setup.version}: install the same on all"
        )
    worker = get_worker()
    with quiet_notes(True), worker_client(separate_thread=True) as client:
        identity = (bytes.fromhex(setup.group), setup.owner, setup.owners)
        mesh: Mesh
        if setup.keys:
            require_curve()
            mesh = ZmqMesh(_host(worker.address), *identity, keys=setup.keys)
        else:
            mesh = StreamMesh(worker, *identity)
        with closing(mesh):
            channel = ControlChannel(
                Queue(setup.topic, client=client), Variable(setup.topic, client=client)
            )
            task_id = uuid.uuid4().hex
            channel.send("here", owner=setup.owner, endpoint=(task_id, mesh.endpoint))
            endpoints = channel.wait(lambda orders: orders["places"], JOIN_SECONDS)
            if endpoints[setup.owner][0] != task_id:
                # Dask reruns a lost task on a worker that returns at the same address: it would
                # learn from the group's start, into a directory that is already committed.
                raise PeerLostError(DRIVER, "it continues with another task in place of this owner")
            mesh.join([endpoint for _, endpoint in endpoints])
            outcome = PartitionOwner(setup, mesh, channel).run()
            if setup.owner == 0:
                channel.send(outcome)
            return outcome


def _host(address: str) -> str:
    """The address to listen on: only the one at which the other workers reach this one."""
    host = get_address_host(address) if not address.startswith("inproc") else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


class PartitionOwner:
    """One member of the group, after all are connected."""

    def __init__(self, setup: OwnerSetup, mesh: Mesh, channel: ControlChannel) -> None:
        self._setup, self._mesh, self._channel = setup, mesh, channel
        self._is_leader = setup.owner == 0
        spec, parts = setup.spec, setup.spec.train.parts
        self._store = open_store(setup.url, spec.checkpoint.storage_options)
        self._ranges = [owned(owner, setup.owners, parts) for owner in range(setup.owners)]
        self._parts, self._directory = parts, setup.directory
        commit = read_commit(self._store, setup.sequence)
        self._share = Share.of(engine_of(spec, setup.plan), parts, self._ranges[setup.owner])
        self._metrics = self._load_share(commit)
        self._names = Names()
        if self._is_leader:
            saved = read_document(self._store, "names", str(commit.document["names"]))
            self._names = Names.from_json(saved)
        self._names_version = self._names.version
        self._digests, self._reported = Digests(read_ledger(self._store, commit).digests()), 0
        fs = connect(setup.shards[0].url, spec.data.storage_options)
        self._rounds = Rounds(
            spec,
            setup.plan,
            ShardSet(setup.shards, fs),
            self._share,
            self._metrics,
            Cursor.from_json(commit.document["cursor"]),
            self._names if self._is_leader else None,
            self._digests,
            self._exchange,
        )
        self._schedule = CommitSchedule(spec.checkpoint, self._metrics.total_rows)
        self._flags = self._commit_number = self._round = self._stop = 0
        self._has_exchanged = False
        self._report_time = time.monotonic()

    def _load_share(self, commit: Commit) -> Metrics:
        """Load this owner's share of a commit; return the metrics. Other parts are not read."""
        share, found = self._share, None
        wanted = [
            entry
            for entry in commit.parts
            if entry.lo == 0 or (entry.lo < share.high and entry.hi > share.low)
        ]
        for low, high, arrays in read_parts(self._store, commit, wanted):
            share.fill(low, high, arrays)
            if low == 0:
                classifies = self._setup.spec.model.classifies
                found = Metrics.from_arrays(arrays, classifies=classifies)
        assert found is not None
        return found

    def run(self) -> str:
        """All remaining rounds, and a commit after the last one."""
        warmed = self._rounds.warm()
        if self._is_leader:
            self._channel.send("warm", seconds=warmed)
        for _ in self._rounds:
            if self._is_leader and not self._has_exchanged:
                self._has_exchanged = True
                self._channel.send("exchanged")
            if self._flags and self._rounds.cursor.epoch < self._setup.spec.train.epochs:
                self._commit()
                if self._flags & STOP:
                    return "stopped"
            if self._is_leader:
                self._report()
        self._commit()
        return "done"

    def _exchange(self, found: Floats) -> Floats:
        """The numbers of all partitions: every owner sends its own to all peers."""
        mesh = self._mesh
        if self._is_leader:
            rows = self._metrics.total_rows + found.shape[1]
            self._flags = (COMMIT | STOP) if self._stop else int(self._schedule.is_due(rows))
        if mesh.owners == 1:
            return found
        self._round += 1
        message = HEAD.pack(self._round, self._flags) + found.tobytes()
        for peer in peers_of(mesh):
            mesh.send(peer, message)
        whole = np.empty((self._parts, *found.shape[1:]))
        whole[self._ranges[mesh.owner].start : self._ranges[mesh.owner].stop] = found
        for peer in peers_of(mesh):
            message, range_of_peer = mesh.receive(peer), self._ranges[peer]
            count, flags = HEAD.unpack_from(message)
            numbers = np.frombuffer(message, dtype=np.float64, offset=HEAD.size)
            theirs = whole[range_of_peer.start : range_of_peer.stop]
            if count != self._round or numbers.size != theirs.size:
                raise ClusterError(f"owner {peer} is not in round {self._round}: other rows?")
            theirs[...] = numbers.reshape(theirs.shape)
            if peer == 0:
                self._flags = flags
        return whole

    def _commit(self) -> None:
        """Write the owned parts; the leader collects all entries, and the driver makes the
        commit."""
        started, mesh = time.monotonic(), self._mesh
        written = write_parts(self._store, self._directory, self._all_parts())
        entries = [entry.to_json() for entry in written]
        found = self._digests.found(self._reported)
        self._reported += len(found)
        digests = {(url, group, digest.hex()) for url, group, digest in found}
        if not self._is_leader:
            mesh.send(0, json.dumps([entries, [*digests]]).encode())
            self._directory = mesh.receive(0).decode()
            return
        for peer in peers_of(mesh):
            received = json.loads(mesh.receive(peer))
            entries += received[0]
            # Each owner reads all rows: the driver refuses two different digests of a row group.
            digests |= {(url, group, digest) for url, group, digest in received[1]}
        self._commit_number += 1
        names = (
            {} if self._names.version == self._names_version else {"names": self._names.to_json()}
        )
        self._names_version = self._names.version
        cursor = self._rounds.cursor.to_json()
        self._channel.send(
            "commit",
            number=self._commit_number,
            entries=json.dumps(entries),
            digests=json.dumps(sorted(digests)),
            cursor=cursor,
            **names,
            **self._figures(),
        )
        self._directory = self._channel.wait(
            lambda orders: orders["committed"] == self._commit_number and orders["directory"],
            ANSWER_SECONDS,
        )
        for peer in peers_of(mesh):
            mesh.send(peer, self._directory.encode())
        self._schedule.record_commit(self._metrics.total_rows, time.monotonic() - started)

    def _all_parts(self) -> Any:
        for low, high, arrays in finite_parts(self._share.parts(self._store.part_bytes)):
            yield low, high, arrays | (self._metrics.arrays() if low == 0 else {})

    def _report(self) -> None:
        """Twice a second: send the progress and read the driver's orders."""
        now = time.monotonic()
        if now - self._report_time < REPORT_SECONDS:
            return
        self._report_time = now
        self._channel.send("rows", **self._figures())
        self._stop = self._channel.read_orders()["stop"]
        if self._channel.driver_is_silent():
            raise PeerLostError(DRIVER, "it sends no heartbeat")

    def _figures(self) -> dict[str, Any]:
        state = self._share.state
        return {
            "rows": list(self._metrics.rows),
            "sums": self._metrics.sums.tolist(),
            "bad": self._metrics.bad.tolist(),
            "totals": state.totals.tolist(),
            "clock": state.clock,
            "rounds": self._rounds.done,
        }


def parse_entries(orders: str) -> tuple[PartEntry, ...]:
    """The validated entries of a "commit" message."""
    return tuple(parse_entry(one) for one in json.loads(orders))


def parse_digests(orders: str) -> list[Found]:
    """The digests of a "commit" message."""
    return [(url, group, bytes.fromhex(digest)) for url, group, digest in json.loads(orders)]


def group_size(size: int, parts: int, workers: int) -> int:
    """The number of owners for a number of workers; the first one always has a coordinate.

    >>> group_size(1000, 16, 3), group_size(1000, 16, 40), group_size(10, 16, 3)
    (3, 16, 1)
    """
    return min(workers, parts) if edges(size, parts)[1] > 0 else 1
