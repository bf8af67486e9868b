"""Sharded mode over a cluster: a gang of owners learns, this process watches and commits.

The state is never here: owners begin from the parts of the last commit, and put those of the next.
An owner that is lost ends its gang; another begins from the last commit, on the workers that live.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from streamomd.checkpoint import StoredParts, read_part
from streamomd.config.settings import seconds, setting
from streamomd.core.errors import ClusterError, StoppedError, UsageError
from streamomd.core.nearest import suggestion
from streamomd.core.urls import shown
from streamomd.distributed.curve_keys import has_curve, new_keys
from streamomd.distributed.memory_checks import refuse_small
from streamomd.distributed.partition_owner import OwnerSetup, digests_of, entries_of, gang_size
from streamomd.distributed.remote_learner import copy_into, figures
from streamomd.distributed.scheduler import refuse_lost, workers_of
from streamomd.distributed.worker_group import LostOwnersError, WorkerGroup
from streamomd.distributed.worker_monitor import usable_workers
from streamomd.distributed.worker_probe import VERSION
from streamomd.features import Names
from streamomd.shards.cursor import Cursor
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.metrics import Metrics
from streamomd.training.model import Model
from streamomd.training.progress import Watcher, note
from streamomd.training.remote_state import RemoteState
from streamomd.training.signals import StopRequest

TRIES = 5  # without a commit in between
HEARD_SECONDS = 2.0  # for those suspected to be heard of, before a smaller gang begins
TRANSPORTS = ("auto", "zmq", "dask")


@dataclass(eq=False)
class PartitionOwners:
    """The rounds of a model over its shards, as ``runs.sharded_local.Sharded``, by a cluster."""

    model: Model
    shards: ShardSet
    keeper: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Client
    _suspects: dict[str, float] = field(default_factory=dict)
    _asked: float = 0.0
    _directory: str = ""
    _figures: dict[str, Any] = field(default_factory=dict)

    def go(self) -> None:
        """Learn every row that is left. Raises StoppedError after a signal, its commit made.

        Raises ClusterError when gang after gang is lost, or there is no worker.
        """
        if self.keeper is None:
            raise UsageError(
                "sharded mode over a cluster needs a checkpoint whose URL the workers reach: "
                "they begin from it, and put their parts of the state there"
            )
        if self.model.cursor.epoch >= self.model.spec.train.epochs:
            return
        self.watchers = [one for one in self.watchers if one is not self.keeper]
        self._kept(self.keeper.far())
        tries = 0
        while True:
            sequence = self.keeper.sequence
            try:
                how = self._gang(self.keeper, tries).run()
                break
            except LostOwnersError as lost:
                there = workers_of(self.connection)
                self._suspects |= {
                    at: there[at]["last_seen"] for at in lost.addresses if at in there
                }
                tries = 1 if self.keeper.sequence > sequence else tries + 1
                if tries == TRIES:
                    raise ClusterError(
                        f"{TRIES} gangs were lost one after the other, the last one with {lost}; "
                        f"is a share of the state larger than a worker's memory? Look at the "
                        f"workers' logs, then: streamomd resume {shown(self.model.url)}"
                    ) from None
                self._kept(self.keeper.far())
                copy_into(self.model.metrics, self._figures)
                note(
                    f"owners were lost ({lost}); another gang begins from commit "
                    f"{self.keeper.sequence}"
                )
        self._tell_all()
        if how == "stopped":
            rows = self.model.metrics.total_rows
            raise StoppedError(
                f"stopped after row {rows:,}: commit {self.keeper.sequence}; go on with: "
                f"streamomd resume {shown(self.model.url)}",
                signal=self.stop.signal,
            )

    def _kept(self, state: RemoteState) -> None:
        """The state is that of a commit now; so are the figures, should those after it be lost."""
        self.model.state = state
        self._figures = figures(self.model.metrics)

    def _tell_all(self) -> None:
        """Take from the last commit what owners keep beside the sums, and do not send."""
        state, metrics = self.model.state, self.model.metrics
        assert isinstance(state, RemoteState)
        assert state.put is not None
        first = read_part(state.store, state.put, state.put.entries[0])[2]
        kept = Metrics.from_arrays(first, classifies=metrics.classifies)
        metrics.curve, metrics.detail = kept.curve, kept.detail

    def _gang(self, keeper: CheckpointManager, tries: int) -> WorkerGroup:
        addresses = self._live()
        model, run = self.model, uuid.uuid4().hex
        size = gang_size(model.plan.size, model.spec.train.parts, len(addresses))
        count = len(addresses)
        refuse_small(self.connection, model.spec, model.state.layout, count, self._look)
        transport = _transport(addresses[:size])
        keys = new_keys() if transport == "zmq" else None
        note(f"{size} owners of {model.spec.train.parts} partitions, by {transport}")
        self._directory = keeper.reserve()
        orders = [
            OwnerSetup(
                VERSION,
                run,
                f"omd-owner-{run[:8]}",
                owner,
                size,
                keys,
                model.spec,
                model.plan,
                self.shards.shards,
                model.url,
                keeper.sequence,
                self._directory,
            )
            for owner in range(size)
        ]
        # Who is only slow to begin must not be taken for lost again and again.
        patience = 2**tries
        return WorkerGroup(
            self.connection, orders, addresses[:size], self._hear, self._look, patience
        )

    def _live(self) -> list[str]:
        """Workers to place owners on. Those suspected only once they are heard of again, or when
        there is no other for long."""
        began = spoke = time.monotonic()
        while True:
            there = usable_workers(self.connection, self._look)
            live = [at for at in sorted(there) if self._suspects.get(at) != there[at]["last_seen"]]
            now = time.monotonic()
            if live and (len(live) == len(there) or now - began > HEARD_SECONDS):
                return live
            if there and now - began > seconds("mind"):
                self._suspects.clear()
            if now - began > seconds("lonely"):
                raise ClusterError(
                    "no worker to own partitions; the last commit stands, go on with: "
                    f"streamomd resume {shown(self.model.url)}"
                )
            if now - spoke > 5.0:
                spoke = now
                note("no worker to own partitions: waiting")
            refuse_lost(self.connection)
            self._look()
            time.sleep(0.2)

    def _hear(self, message: dict[str, Any]) -> dict[str, Any]:
        model, keeper = self.model, self.keeper
        assert keeper is not None
        if message["kind"] == "warm":
            model.engine.compile_seconds += message["seconds"]
            return {}
        copy_into(model.metrics, message)
        if message["kind"] == "rows":
            model.state.totals[...] = message["totals"]
            model.state.clock = message["clock"]
            return {}
        # Before anything of a changed shard is committed. Owners that ask again find the same.
        model.digests.check_all(digests_of(message["digests"]))
        model.names.update(Names.from_json(message.get("names", {})).seen())
        model.cursor = Cursor.from_json(message["cursor"])
        entries = entries_of(message["entries"])
        assert isinstance(model.state, RemoteState)
        self._kept(
            RemoteState(
                model.state.layout, model.state.store, StoredParts(self._directory, entries)
            )
        )
        keeper.commit()
        self._directory = keeper.reserve()
        return {"committed": message["number"], "directory": self._directory}

    def _look(self) -> dict[str, Any]:
        for watcher in self.watchers:
            watcher.update(self.model.metrics)
        if not self.stop.signal:
            return {}
        self._asked = self._asked or time.monotonic()
        if time.monotonic() - self._asked > seconds("mind"):
            raise StoppedError(
                f"stopped: the owners did not answer in time, the last commit stands; "
                f"go on with: streamomd resume {shown(self.model.url)}",
                signal=self.stop.signal,
            )
        return {"stop": self.stop.signal}


def _transport(addresses: list[str]) -> str:
    """ZeroMQ where ports may be opened and libzmq can encrypt, else Dask's own connections."""
    wanted = setting("transport")
    if wanted not in TRANSPORTS:
        raise UsageError(
            f"unknown streamomd.transport {wanted!r}; {suggestion(wanted, TRANSPORTS)}"
        )
    if wanted == "auto":
        plain = all(address.startswith(("tcp://", "inproc://")) for address in addresses)
        return "zmq" if plain and has_curve() else "dask"
    return str(wanted)
