"""Averaged mode: in a round each task learns its own rows from the common state, and the states are
merged in pairs in a fixed tree. Every round ends with a commit. The next one starts from the merged
state in its worker's memory, or from the commit if that worker is lost.

The result depends on the shards and the job only, not on the number of workers or on which of them
die. Dask schedules one round at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from distributed import Client, Future

from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, ResumeRefusedError, StoppedError
from streamomd.core.run_events import emit
from streamomd.core.urls import shown
from streamomd.distributed.averaged_worker import ranges_of
from streamomd.distributed.cluster import (
    ResultTimeoutError,
    TaskLostError,
    wait_for_result,
    wait_until_done,
)
from streamomd.distributed.diagnose import refuse_too_small
from streamomd.distributed.round_state import PartialState, RoundStart
from streamomd.distributed.round_tasks import RoundTasks, place_parts
from streamomd.distributed.scheduler import subscribe_events
from streamomd.distributed.worker_monitor import monitor_of, note_unused, usable_workers
from streamomd.shards.order import Cursor, RowRange, jobs_of, places, split_rows
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.drift_alerts import fails_on_alert, raise_alert, watch_parts
from streamomd.training.holdout import reason_to_stop
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Watcher, note, note_return
from streamomd.training.signals import StopRequest
from streamomd.training.training_step import counts_first, watched_alerts

ATTEMPTS = 3  # of a round whose workers die: Dask itself gives up after four deaths per attempt
FIRST_ROWS, EXACT_ROWS = 1024, 256
"""Rows that a block rule learns in one part: before its first round, and after each round."""


def rounds_of(
    shards: ShardSet, order: Sequence[int], spec: Spec, epoch: int
) -> list[list[RowRange]]:
    """The parts of each round of an epoch, by the shards and the job only.

    A rule whose parts take no coordinates into its block, and of which each corrects the same error
    of the start, learns some rows in one part: before the first round, so that there is a start;
    between two rounds and after the last, which corrects what all parts have corrected in sum.
    """
    parts, count = spec.train.parts, spec.rounds_per_epoch
    exact = EXACT_ROWS if spec.rule.storage.kind == "block" and parts > 1 else 0
    if not exact:
        ranges = split_rows(shards, order, parts * count)
        return [ranges[low : low + parts] for low in range(0, len(ranges), parts)]
    rows = sum(job.group.rows for job in jobs_of(shards, order))
    rounds, low = [], 0
    if epoch == 0:
        low = min(FIRST_ROWS, rows)
        rounds.append(split_rows(shards, order, 1, 0, low))
    for number in range(count):
        high = low + (rows - low) // (count - number)
        middle = max(low, high - exact)
        rounds.append(split_rows(shards, order, parts, low, middle))
        rounds.append(split_rows(shards, order, 1, middle, high))
        low = high
    return [ranges for ranges in rounds if ranges]


@dataclass(eq=False)
class Averaged:
    """The rounds of a model over its shards, from its cursor to the end of its last epoch."""

    model: ModelData
    shards: ShardSet
    manager: CheckpointManager
    watchers: list[Watcher]
    stop: StopRequest
    connection: Client
    _topic: str = field(default_factory=lambda: f"omd-part-{uuid.uuid4().hex[:8]}")
    _progress: dict[int, Any] = field(default_factory=dict)
    _direct: bool | None = True
    _first: str = ""  # the worker of the first part in the last round
    _last: str = ""  # the round whose result is the last commit
    _merged: Future[Any] | None = None  # its result, in memory until the next round has started

    def run(self) -> None:
        """Learn all remaining rows. Raises StoppedError after a signal, ClusterError."""
        model, train = self.model, self.model.spec.train
        refuse_too_small(self.connection, model.spec, model.state.layout, waiting=self._report)
        note_unused(train.parts, len(usable_workers(self.connection, self._report)))
        with subscribe_events(self.connection, self._topic, self._record_progress):
            while model.cursor.epoch < train.epochs:
                epoch = model.cursor.epoch
                if reason := reason_to_stop(model.metrics.held, epoch, train.patience):
                    note(reason)
                    return
                model.metrics.begin(epoch, self.shards.unread_rows)
                for parts, end in self._rounds(epoch):
                    self._apply(self._run_round(parts), end)
                model.cursor = Cursor(epoch + 1)  # also where a filter reads no group

    def _rounds(self, epoch: int) -> Iterator[tuple[list[RowRange], Cursor]]:
        """The remaining rounds of an epoch, each with its end."""
        data, cursor = self.model.spec.data, self.model.cursor
        order = places(data.order, data.seed, len(self.shards), epoch)
        rounds = rounds_of(self.shards, order, self.model.spec, epoch)
        if not rounds:
            return
        begins = [Cursor(epoch, *parts[0].begin) for parts in rounds]
        # Commits are made between rounds only: any other cursor is of another division into rounds.
        if cursor not in (Cursor(epoch), *begins):
            raise ResumeRefusedError(
                "the rounds of this epoch changed since it started: new shards divide it "
                "differently. Remove them until the epoch has ended, or start from this state with "
                "other rows: train --start URL"
            )
        ends = [*begins[1:], Cursor(epoch + 1)]
        for begin, parts, end in zip(begins, rounds, ends, strict=True):
            if begin >= cursor:
                yield parts, end

    def _run_round(self, parts: list[RowRange]) -> PartialState:
        """The result of a round. It restarts from its commit if its workers die."""
        for _ in range(ATTEMPTS):
            try:
                return self._try_round(uuid.uuid4().hex[:8], parts)
            except TaskLostError as error:
                rows = self.model.metrics.total_rows
                learned = sum(one["rows"] for one in list(self._progress.values()))
                what = f"a round was lost ({error}); it restarts from its commit"
                note_return(what, rows, rows + learned)
        raise ClusterError(
            f"the workers died or stopped responding, {ATTEMPTS} times: the last commit of "
            f"{shown(self.model.url)} is intact. Check the workers' logs, then: streamomd resume"
        )

    def _try_round(self, run: str, parts: list[RowRange]) -> PartialState:
        start, submit_merges = self._submit(run, parts)
        # The last round's result is held until the start has been made of it.
        wait_until_done(self.connection, start, self._report)
        self._merged = None  # the start has its memory
        del start  # the tasks that need it hold it
        merged = submit_merges()
        try:
            result = self._fetch(merged)
        except (ClusterError, ImportError) as error:
            # A lost worker's task may have gone to one that has no streamomd, or another one.
            if merged.status == "error" and monitor_of(self.connection).unusable:
                raise TaskLostError(str(error)) from error
            raise
        self._last, self._merged = run, merged
        return result

    def _submit(
        self, run: str, parts: list[RowRange]
    ) -> tuple[Future[Any], Callable[[], Future[Any]]]:
        """Submit a round's tasks; see ``RoundTasks.submit``."""
        model, spec, connection = self.model, self.model.spec, self.connection
        self._progress.clear()
        monitor_of(connection).wait_for_usable(connection, self._report)
        usable = monitor_of(connection).usable
        threads = {address: worker["nthreads"] for address, worker in usable.items()}
        places = place_parts(threads, len(parts), self._first)
        self._first = places[0]
        request = RoundStart(
            run,
            self.model.url,
            self.manager.sequence,
            spec.checkpoint.storage_options,
            spec.data,
            self.model.begins_pass,
            self._last,
            counts_first(model),
            watched_alerts(model),
        )
        by = "G" if spec.train.merge == "gradients" else "examples"
        ranges = ranges_of(self.model.state.layout)
        tasks = RoundTasks(connection, request, [*usable], self._topic, by, self._report, ranges)
        return tasks.submit(parts, places)

    def _fetch(self, merged: Future[Any]) -> PartialState:
        """A round's result: from its worker, or through the scheduler if it cannot be reached."""
        wait, report = wait_for_result, self._report
        try:
            # Through the scheduler the state would pass one more machine, and stand in its memory.
            return cast(PartialState, wait(self.connection, merged, report, direct=self._direct))
        except ResultTimeoutError:
            if not self._direct:
                raise
        self._direct = None
        return cast(PartialState, wait(self.connection, merged, report))

    def _apply(self, result: PartialState, end: Cursor) -> None:
        """Make a round's state the model's, and commit it."""
        model, state = self.model, self.model.state
        model.digests.check_all(result.digests)  # before any result of a changed shard is used
        learned = Metrics.from_arrays(result.metrics, classifies=model.spec.model.classifies)
        model.metrics.add(learned, model.spec.data.max_bad_rows)
        watch_parts(model, result.watched)
        state.cells[...] = result.cells
        state.totals[...] = result.totals
        state.clock = result.clock
        state.extra = {name: np.array(array) for name, array in result.extra.items()}
        model.names.update(result.names)
        model.cursor = end
        self._progress.clear()
        emit("rounds", "", "debug", rounds=1)
        if model.alert and fails_on_alert(model):
            raise_alert(model, self.manager)
        model.finished = end == Cursor(model.spec.train.epochs)
        if not model.finished:  # the caller makes the last commit, of the finished run
            self.manager.commit()
        self._report()

    def _record_progress(self, event: tuple[float, dict[str, Any]]) -> None:
        self._progress[event[1]["part"]] = event[1]

    def _report(self) -> None:
        """Report the progress of the tasks; raise StoppedError after a signal."""
        model = self.model
        so_far = model.metrics.copy()
        for one in list(self._progress.values()):
            # Of rounds that are lost these figures are shown and never committed.
            so_far.current[...] += np.array(one["sums"])
            so_far.count(one["rows"])
        for watcher in self.watchers:
            watcher.update(so_far)
        if self.stop.signal and not model.finished:
            raise StoppedError(
                f"stopped after row {model.metrics.total_rows:,}: commit {self.manager.sequence}, "
                f"of the last complete round; resume with: streamomd resume {shown(model.url)}",
                signal=self.stop.signal,
            )
