"""Sharded mode on a cluster: a group of owners learns, this process watches and commits.

The state is never in this process: owners load the parts of the last commit and write those of the
next. A lost owner ends its group; another group starts from the last commit on the other workers.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from streamomd.checkpoint import StoredParts, read_part
from streamomd.config.settings import seconds
from streamomd.core.errors import AlertError, ClusterError, StoppedError, UsageError
from streamomd.core.run_events import emit
from streamomd.core.urls import shown
from streamomd.distributed.diagnose import refuse_too_small
from streamomd.distributed.partition_owner import (
    OwnerSetup,
    group_size,
    parse_digests,
    parse_entries,
)
from streamomd.distributed.remote_learner import metrics_event, update_metrics
from streamomd.distributed.scheduler import refuse_lost, workers_of
from streamomd.distributed.worker_group import LostOwnersError, WorkerGroup
from streamomd.distributed.worker_monitor import note_unused, usable_workers
from streamomd.distributed.worker_probe import VERSION
from streamomd.features import Names
from streamomd.shards.order import Cursor
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.column_statistics import Fired
from streamomd.training.drift_alerts import fails_on_alert, report_alerts
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import RemoteState
from streamomd.training.progress import Watcher, note, note_return
from streamomd.training.signals import StopRequest

ATTEMPTS = 5  # without a commit between them
HEARTBEAT_WAIT_SECONDS = 2.0  # for heartbeats of suspected workers, before a smaller group starts


@dataclass(eq=False)
class PartitionOwners:
    """The rounds of a model over its shards, as ``runs.modes.Sharded``, on a cluster."""

    model: ModelData
    shards: ShardSet
    manager: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Client
    _suspects: dict[str, float] = field(default_factory=dict)
    _stop_asked: float = 0.0
    _directory: str = ""
    _figures: dict[str, Any] = field(default_factory=dict)
    _rounds: int = 0
    _rows_seen: int = 0
    _alerts: set[Fired] = field(default_factory=set)

    def run(self) -> None:
        """Learn all remaining rows. Raises StoppedError after a signal, after a commit.

        Raises ClusterError if several groups in a row are lost, or there is no worker.
        """
        if self.manager is None:
            raise UsageError(
                "sharded mode on a cluster needs a checkpoint URL that the workers can read and "
                "write: they load their parts of the state from it and save them there"
            )
        if self.model.cursor.epoch >= self.model.spec.train.epochs:
            return
        # Owners decide when to commit, since only they have the state.
        self.watchers = [watcher for watcher in self.watchers if watcher is not self.manager]
        self._use_state(self.manager.remote_state())
        if self.model.metrics.drift is not None:
            self._alerts.update(self.model.metrics.drift.alerts)
        attempts = 0
        while True:
            sequence = self.manager.sequence
            try:
                outcome = self._start_group(self.manager, attempts).run()
                if outcome != "stopped" or self.stop.signal or self._ends_at_alert:
                    break
                rows, number = self.model.metrics.total_rows, self.manager.sequence
                what = f"another group of owners continues from commit {number}"
                note_return(what, rows, self._rows_seen)
                attempts = 0
            except LostOwnersError as lost:
                workers = workers_of(self.connection)
                # A worker that lost its group may be gone, before the scheduler notices it.
                self._suspects |= {
                    address: workers[address]["last_seen"]
                    for address in lost.addresses
                    if address in workers
                }
                attempts = 1 if self.manager.sequence > sequence else attempts + 1
                if attempts == ATTEMPTS:
                    raise ClusterError(
                        f"{ATTEMPTS} worker groups were lost in a row, the last one with {lost}; "
                        f"is a share of the state larger than a worker's memory? Check the "
                        f"workers' logs, then: streamomd resume {shown(self.model.url)}"
                    ) from None
                rows = self.model.metrics.total_rows
                # Rows since the commit are lost with the group's state.
                update_metrics(self.model.metrics, self._figures)
                self._use_state(self.manager.remote_state())
                sequence = self.manager.sequence
                what = f"owners were lost ({lost}); another group starts from commit {sequence}"
                note_return(what, self.model.metrics.total_rows, rows)
        self._load_metrics()
        if self._ends_at_alert:
            raise AlertError(f"{self.model.alert}; commit {self.manager.sequence}")
        if outcome == "stopped":
            rows = self.model.metrics.total_rows
            raise StoppedError(
                f"stopped after row {rows:,}: commit {self.manager.sequence}; resume with: "
                f"streamomd resume {shown(self.model.url)}",
                signal=self.stop.signal,
            )

    @property
    def _ends_at_alert(self) -> bool:
        return bool(self.model.alert) and fails_on_alert(self.model)

    def _report_alerts(self, alerts: list[list[Any]]) -> None:
        """Report the owners' alerts that are new: a group that starts again repeats some."""
        found = [one for given in alerts if (one := Fired(*given)) not in self._alerts]
        self._alerts.update(found)
        report_alerts(self.model, found)

    def _use_state(self, state: RemoteState) -> None:
        """Use the state of a commit; remember its metrics, in case later ones are lost."""
        self.model.state = state
        self._figures = metrics_event(self.model.metrics)

    def _load_metrics(self) -> None:
        """Load from the last commit the metrics that owners do not send."""
        state, metrics = self.model.state, self.model.metrics
        assert isinstance(state, RemoteState)
        assert state.stored is not None
        first = read_part(state.store, state.stored, state.stored.entries[0])[2]
        saved = Metrics.from_arrays(first, classifies=metrics.classifies)
        for name in ("curve", "detail", "classes", "margins", "drift", "by_time"):
            setattr(metrics, name, getattr(saved, name))

    def _start_group(self, manager: CheckpointManager, attempts: int) -> WorkerGroup:
        """Starts owners on the workers, which take the state of the last commit."""
        addresses = self._wait_for_workers()
        model, run = self.model, uuid.uuid4().hex
        size = group_size(model.plan.size, model.spec.train.parts, len(addresses))
        count = len(addresses)
        refuse_too_small(self.connection, model.spec, model.state.layout, count, self._report)
        note(f"{size} owners of {model.spec.train.parts} partitions")
        note_unused(model.spec.train.parts, count)
        self._directory, self._rounds = manager.reserve(), 0
        setups = [
            OwnerSetup(
                VERSION,
                run,
                f"omd-owner-{run[:8]}",
                owner,
                size,
                model.spec,
                model.plan,
                () if owner else self.shards.shards,
                model.url,
                manager.sequence,
                self._directory,
                fails_on_alert(model),
            )
            for owner in range(size)
        ]
        # A worker that is only slow to start must not be reported lost repeatedly.
        patience = 2**attempts
        return WorkerGroup(
            self.connection, setups, addresses[:size], self._on_message, self._report, patience
        )

    def _wait_for_workers(self) -> list[str]:
        """Workers for the owners. Suspected ones are used only after a new heartbeat, or if there
        is no other for a long time."""
        started = noted = time.monotonic()
        while True:
            workers = usable_workers(self.connection, self._report)
            addresses = [
                address
                for address in sorted(workers)
                if self._suspects.get(address) != workers[address]["last_seen"]
            ]
            now = time.monotonic()
            if addresses and (
                len(addresses) == len(workers) or now - started > HEARTBEAT_WAIT_SECONDS
            ):
                return addresses
            if workers and now - started > seconds("mind"):
                self._suspects.clear()
            if now - started > seconds("lonely"):
                raise ClusterError(
                    "no worker to own partitions; the last commit is intact; resume with: "
                    f"streamomd resume {shown(self.model.url)}"
                )
            if now - noted > 5.0:
                noted = now
                note("no worker to own partitions: waiting")
            refuse_lost(self.connection)
            self._report()
            time.sleep(0.2)

    def _on_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Takes an owner's message into the model; returns what changes in the owners' orders."""
        model, manager = self.model, self.manager
        assert manager is not None
        if message["kind"] == "warm":
            model.engine.compile_seconds += message["seconds"]
            return {}
        update_metrics(model.metrics, message)
        self._report_alerts(message["alerts"])
        self._rows_seen = max(self._rows_seen, model.metrics.total_rows)
        emit("rounds", "", "debug", rounds=message["rounds"] - self._rounds)
        self._rounds = message["rounds"]
        if message["kind"] == "rows":
            model.state.totals[...] = message["totals"]
            model.state.clock = message["clock"]
            return {}
        # Before any result of a changed shard is committed. A repeated request finds the same.
        model.digests.check_all(parse_digests(message["digests"]))
        model.names.update(Names.from_json(message.get("names", {})).seen())
        model.cursor = Cursor.from_json(message["cursor"])
        entries = parse_entries(message["entries"])
        assert isinstance(model.state, RemoteState)
        self._use_state(
            RemoteState(
                model.state.layout, model.state.store, StoredParts(self._directory, entries)
            )
        )
        manager.commit()
        # Parts of the next commit never replace those of this one.
        self._directory = manager.reserve()
        return {"committed": message["number"], "directory": self._directory}

    def _report(self) -> dict[str, Any]:
        for watcher in self.watchers:
            watcher.update(self.model.metrics)
        if not self.stop.signal:
            return {}
        self._stop_asked = self._stop_asked or time.monotonic()
        if time.monotonic() - self._stop_asked > seconds("mind"):
            raise StoppedError(
                f"stopped: the owners did not answer in time; the last commit is intact; "
                f"resume with: streamomd resume {shown(self.model.url)}",
                signal=self.stop.signal,
            )
        return {"stop": self.stop.signal}
