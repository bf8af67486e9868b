"""Sharded mode on a worker: own some partitions of the state, and exchange sums in every round.

Every owner reads the entries of its own coordinates of all rows. Owner 0 is the leader: it adds up
a round's numbers, takes the steps, sends with them whether to commit or stop, and reports to the
driver. If any owner is lost, the work since the last commit is lost.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Queue, Variable, get_worker, worker_client

from streamomd.checkpoint import (
    Commit,
    PartEntry,
    open_store,
    parse_entry,
    read_commit,
    read_ledger,
    read_parts,
    write_parts,
)
from streamomd.checkpoint.documents import bytes_of
from streamomd.checkpoint.sealed_json import parse
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats
from streamomd.core.errors import ClusterError
from streamomd.core.finite import finite_parts
from streamomd.distributed.exchange import RowExchange, SumExchange
from streamomd.distributed.retirement import holding_close
from streamomd.distributed.star import DRIVER, LEADER, ControlChannel, PeerLostError, Star, peers_of
from streamomd.distributed.worker_probe import VERSION
from streamomd.engine.micro_batches import Sensed
from streamomd.features import Names, Plan
from streamomd.shards.filesystem import connect
from streamomd.shards.order import Cursor
from streamomd.shards.shard import Digests, Found, Shard, ShardSet
from streamomd.training.checkpoint_manager import CommitSchedule
from streamomd.training.column_statistics import Fired
from streamomd.training.metrics import Metrics
from streamomd.training.microbatch_rounds import Rounds, Share, column_ranges, edges, owned
from streamomd.training.model_data import engine_of
from streamomd.training.progress import quiet_notes
from streamomd.training.row_stream import AHEAD_BYTES
from streamomd.training.run_records import UpdateRecord

COMMIT, STOP = 1, 2
JOIN_SECONDS = 30.0  # for the driver to publish all endpoints
ANSWER_SECONDS = 120.0  # for the driver to make a commit
REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class OwnerSetup:
    """Input of one owner. group: its id, in hex. shards: of the leader only. directory: of the
    parts of the next commit. fails_on_alert: whether an alert ends the group, after a commit."""

    version: str
    group: str
    topic: str
    owner: int
    owners: int
    spec: Spec = field(repr=False)
    plan: Plan = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    url: str
    sequence: int
    directory: str
    fails_on_alert: bool = False


def run_owner(setup: OwnerSetup) -> str:
    """Runs on a worker: all remaining rounds. "done", or "stopped" if the driver requested it."""
    if setup.version != VERSION:
        raise ClusterError(
            f"a worker has streamomd {VERSION}, the driver {setup.version}: install the same on all"
        )
    worker = get_worker()
    with (
        quiet_notes(True),
        worker_client(separate_thread=True) as client,
        holding_close(worker),  # until the driver has had the group commit
    ):
        star = Star(worker, bytes.fromhex(setup.group), setup.owner, setup.owners)
        with closing(star):
            channel = ControlChannel(
                Queue(setup.topic, client=client), Variable(setup.topic, client=client)
            )
            task_id = uuid.uuid4().hex
            endpoint = task_id, star.endpoint, worker.address
            channel.send("here", owner=setup.owner, endpoint=endpoint)
            endpoints = channel.wait(lambda orders: orders["places"], JOIN_SECONDS)
            if endpoints[setup.owner][0] != task_id:
                # Dask reruns a lost task on a worker that returns at the same address: it would
                # learn from the group's start, into a directory that is already committed.
                raise PeerLostError(DRIVER, "it continues with another task in place of this owner")
            # Before any owner asks for rows, which it does once all have joined.
            with closing(_row_exchange(worker, setup, star, [one[2] for one in endpoints])) as rows:
                star.join(endpoints[LEADER][1])
                outcome = PartitionOwner(setup, rows.shards(), star, rows, channel).run()
            if setup.owner == LEADER:
                channel.send(outcome)
            return outcome


def _row_exchange(
    worker: Any, setup: OwnerSetup, star: Star, addresses: Sequence[str]
) -> RowExchange:
    """Which owner decodes what, and how the others receive it."""
    train, plan = setup.spec.train, setup.plan
    ranges = column_ranges(plan.size, train.parts, setup.owners, bias=plan.bias)
    budget = slice_bytes(setup.spec)
    place = worker, setup.group, setup.owner, addresses
    return RowExchange(*place, setup.shards, ranges, budget, star.check)


class PartitionOwner:
    """One member of the group, after all are connected."""

    def __init__(
        self,
        setup: OwnerSetup,
        shards: tuple[Shard, ...],
        star: Star,
        rows: RowExchange,
        channel: ControlChannel,
    ) -> None:
        self._setup, self._star, self._channel = setup, star, channel
        self._is_leader = setup.owner == LEADER
        spec, parts = setup.spec, setup.spec.train.parts
        self._store = open_store(setup.url, spec.checkpoint.storage_options)
        self._sums, self._directory = SumExchange(star, parts), setup.directory
        commit = read_commit(self._store, setup.sequence)
        mine = owned(setup.owner, setup.owners, parts)
        self._share = Share.of(engine_of(spec, setup.plan), parts, mine)
        self._metrics = self._load_share(commit)
        self._names = Names()
        if self._is_leader:
            saved = bytes_of(self._store, commit, "names", str(commit.document["names"]))
            self._names = Names.from_json(parse(saved))
        self._names_version = self._names.version
        self._digests, self._reported = Digests(read_ledger(self._store, commit).digests()), 0
        fs = connect(shards[0].url, spec.data.store_options)
        self._rounds = Rounds(
            spec,
            setup.plan,
            ShardSet(shards, fs),
            self._share,
            self._metrics,
            Cursor.from_json(commit.document["cursor"]),
            self._names,
            self._digests,
            self._exchange,
            shared=rows.epoch if setup.owners > 1 else None,
            examines=self._is_leader,  # its metrics are committed
            of_new=UpdateRecord.from_json(commit.document.get("update")).of_new,
            alerted=self._end_at_alert,
        )
        self._schedule = CommitSchedule(spec.checkpoint, self._metrics.total_rows)
        self._flags = self._commit_number = self._stop = 0
        self._has_exchanged = self._ends = False
        self._report_time = time.monotonic()

    def _load_share(self, commit: Commit) -> Metrics:
        """Load this owner's share of a commit; return the metrics. Other parts are not read."""
        share, metrics = self._share, None
        wanted = [
            entry
            for entry in commit.parts
            if entry.lo == 0 or (entry.lo < share.high and entry.hi > share.low)
        ]
        for low, high, arrays in read_parts(self._store, commit, wanted):
            share.fill(low, high, arrays)
            if low == 0:
                classifies = self._setup.spec.model.classifies
                metrics = Metrics.from_arrays(arrays, classifies=classifies)
        assert metrics is not None
        return metrics

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

    def _exchange(self, batch: Batch, sensed: Sensed) -> tuple[Floats, Floats]:
        """The steps, and the margins if this is the leader; whether all commit or stop then."""
        share, sums, exchange = self._share, self._metrics.current, self._sums
        totals = share.state.totals
        if not self._is_leader:
            exchange.send(sensed)
            engine = share.engine
            steps = np.empty((len(batch), engine.layout.learners, engine.step_numbers))
            self._flags = exchange.receive_steps(steps, totals, sums)
            return steps, steps[:0, :, 0]
        rows = self._metrics.total_rows + len(batch)
        stops = self._stop or self._ends
        self._flags = (COMMIT | STOP) if stops else int(self._schedule.is_due(rows))
        steps, margins = share.decide(batch, sums, exchange.add_all(sensed))
        exchange.send_steps(steps, totals, sums, self._flags)
        return steps, margins

    def _end_at_alert(self, found: list[Fired]) -> None:
        self._ends = self._ends or (bool(found) and self._setup.fails_on_alert)

    def _commit(self) -> None:
        """Write the owned parts; the leader collects all entries, and the driver makes the
        commit."""
        started, star = time.monotonic(), self._star
        self._rounds.examine()
        written = write_parts(self._store, self._directory, self._all_parts())
        entries = [entry.to_json() for entry in written]
        found = self._digests.found(self._reported)
        self._reported += len(found)
        digests = {(url, group, digest.hex()) for url, group, digest in found}
        if not self._is_leader:
            star.send(LEADER, json.dumps([entries, [*digests], self._new_names()]).encode())
            self._directory = star.receive(LEADER).decode()
            return
        for peer in peers_of(star):
            received = json.loads(star.receive(peer))
            entries += received[0]
            # The driver refuses a digest that differs from that of an earlier group of owners.
            digests |= {(url, group, digest) for url, group, digest in received[1]}
            self._names.update(Names.from_json(received[2]).seen())
        self._commit_number += 1
        names = {"names": new} if (new := self._new_names()) else {}
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
        for peer in peers_of(star):
            star.send(peer, self._directory.encode())
        self._schedule.record_commit(self._metrics.total_rows, time.monotonic() - started)

    def _new_names(self) -> dict[str, Any]:
        """The names of the rows that this owner decoded, if there are new ones since last time."""
        if self._names.version == self._names_version:
            return {}
        self._names_version = self._names.version
        return self._names.to_json()

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
        state, drift = self._share.state, self._metrics.drift
        return {
            "alerts": [] if drift is None else [list(one) for one in drift.alerts],
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


def slice_bytes(spec: Spec) -> int:
    """Decoded rows that may wait for other owners, in bytes."""
    return (spec.train.prefetch << 20) or AHEAD_BYTES


def group_size(size: int, parts: int, workers: int) -> int:
    """The number of owners for a number of workers; the first one always has a coordinate.

    >>> group_size(1000, 16, 3), group_size(1000, 16, 40), group_size(10, 16, 3)
    (3, 16, 1)
    """
    return min(workers, parts) if edges(size, parts)[1] > 0 else 1
