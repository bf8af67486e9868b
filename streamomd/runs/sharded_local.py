"""Sharded mode: the coordinates in partitions, the rows in micro-batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamomd.core.run_events import emit
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.drift_alerts import fails_on_alert, raise_alert, report_alerts
from streamomd.training.microbatch_rounds import Rounds
from streamomd.training.model import Model
from streamomd.training.partitions import Share
from streamomd.training.progress import Watcher
from streamomd.training.signals import StopRequest, raise_stopped

REPORT_SECONDS = 0.05


@dataclass(eq=False)
class Sharded:
    """The rounds of a model over its shards, from its cursor to the end of its last epoch.

    connection: a cluster whose workers each own some of the partitions; None: this process owns
    them all. The bits are the same.
    """

    model: Model
    shards: ShardSet
    manager: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Any = None
    _report_time: float = field(default=0.0, init=False)
    _reported: int = field(default=0, init=False)

    def learn_epochs(self) -> None:
        """Learn the remaining rows of all epochs.

        Raises StoppedError after a signal, its commit made.
        """
        if self.connection is not None:
            from streamomd.distributed.sharded import PartitionOwners

            PartitionOwners(
                self.model, self.shards, self.manager, self.watchers, self.stop, self.connection
            ).run()
        else:
            self._learn_alone()

    def _learn_alone(self) -> None:
        model, train = self.model, self.model.spec.train
        share = Share.whole(model.engine, model.state, train.parts)
        described = (model.spec, model.plan, self.shards, share, model.metrics, model.cursor)
        more: Any = {"guard": model.guard, "of_new": model.update.of_new}
        more["alerted"] = partial(report_alerts, model)
        rounds = Rounds(*described, model.names, model.digests, **more)
        model.engine.compile_seconds += rounds.warm()
        for _ in rounds:
            model.cursor = rounds.cursor
            self._report(rounds)
            if model.alert and fails_on_alert(model):
                rounds.examine()
                raise_alert(model, self.manager)
            if self.stop.signal:
                rounds.examine()
                raise_stopped(self.stop, self.model, self.manager)
        model.cursor = rounds.cursor
        self._emit_rounds(rounds.done)

    def _emit_rounds(self, done: int) -> None:
        emit("rounds", "", "debug", rounds=done - self._reported)
        self._reported = done

    def _report(self, rounds: Rounds) -> None:
        """Update the watchers at their next rows, and after a while."""
        rows, now = self.model.metrics.total_rows, time.monotonic()
        due = any(watcher.next_row <= rows for watcher in self.watchers)
        if due or now - self._report_time > REPORT_SECONDS:
            self._report_time = now
            self._emit_rounds(rounds.done)
            rounds.examine()
            for watcher in self.watchers:
                watcher.update(self.model.metrics)
