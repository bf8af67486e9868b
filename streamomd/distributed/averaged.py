"""Averaged mode: in a round each part learns rows of its own from the common state, and the states
are merged two by two in a fixed tree. Every round ends with a commit, from which the next begins.

What is computed depends on the shards and the job alone, not on how many workers there are, nor on
which of them die. Dask only says where: it knows of one round at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Client, Future

from streamomd.core.errors import ClusterError, ResumeRefusedError, StoppedError
from streamomd.core.urls import shown
from streamomd.distributed.averaged_worker import PartialState, RoundStart, learn_part, merge_parts
from streamomd.distributed.cluster import LostError, outcome, sent
from streamomd.distributed.events import hearing
from streamomd.distributed.memory_checks import refuse_small
from streamomd.shards.cursor import Cursor
from streamomd.shards.order import places
from streamomd.shards.row_ranges import RowRange, stretches
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.model import Model
from streamomd.training.progress import Watcher, note
from streamomd.training.signals import StopRequest

TRIES = 3  # of a round whose workers die: Dask itself gives up after four deaths each time
MERGE_FIRST = 1  # a merge frees a state, so it goes before a part that makes one


@dataclass(eq=False)
class Averaged:
    """The rounds of a model over its shards, from its cursor to the end of its last epoch."""

    model: Model
    shards: ShardSet
    keeper: CheckpointManager
    watchers: list[Watcher]
    stop: StopRequest
    connection: Client
    _topic: str = field(default_factory=lambda: f"omd-part-{uuid.uuid4().hex[:8]}")
    _heard: dict[int, Any] = field(default_factory=dict)

    def go(self) -> None:
        """Learn every row that is left. Raises StoppedError after a signal, ClusterError."""
        model, train = self.model, self.model.spec.train
        refuse_small(self.connection, model.spec, model.state.layout, waiting=self._waiting)
        with hearing(self.connection, self._topic, self._hear):
            while model.cursor.epoch < train.epochs:
                epoch = model.cursor.epoch
                model.metrics.begin(epoch)
                for parts, end in self._rounds(epoch):
                    self._take(self._tried(parts), end)

    def _rounds(self, epoch: int) -> Iterator[tuple[list[RowRange], Cursor]]:
        """The rounds of an epoch that are left, each with where it ends."""
        train, at = self.model.spec.train, self.model.cursor
        data = self.model.spec.data
        order = places(data.order, data.seed, len(self.shards), epoch)
        cut = stretches(self.shards, order, train.parts * train.rounds_per_epoch)
        rounds = [cut[low : low + train.parts] for low in range(0, len(cut), train.parts)]
        begins = [Cursor(epoch, *parts[0].begin) for parts in rounds]
        if at not in (Cursor(epoch), *begins):
            raise ResumeRefusedError(
                "the rounds of this epoch are no longer those it was begun with: new shards cut it "
                "anew. Take them away until the epoch has ended, or go on from this state with "
                "other rows: train --start URL"
            )
        ends = [*begins[1:], Cursor(epoch + 1)]
        for begin, parts, end in zip(begins, rounds, ends, strict=True):
            if begin >= at:
                yield parts, end

    def _tried(self, parts: list[RowRange]) -> PartialState:
        """What a round gives. It begins anew, from its commit, when its workers die."""
        for _ in range(TRIES):
            try:
                found: PartialState = outcome(self.connection, self._sent(parts), self._waiting)
                return found
            except LostError as error:
                note(f"a round was lost ({error}); it begins again from its commit")
        raise ClusterError(
            f"the workers that learn die or fall silent, {TRIES} times: the last commit of "
            f"{shown(self.model.url)} stands. Look at the workers' logs, then: streamomd resume"
        )

    def _sent(self, parts: list[RowRange]) -> Future[Any]:
        """The round's tasks, under way; the last of them. Nothing else keeps the others alive, so
        that each state is freed when it is merged."""
        spec, run = self.model.spec, uuid.uuid4().hex[:8]
        start = RoundStart(
            run,
            self.model.url,
            self.keeper.sequence,
            spec.checkpoint.storage_options,
            spec.data,
        )
        self._heard.clear()
        nodes = [
            sent(
                self.connection,
                f"omd-part-{run}-{number}",
                learn_part,
                *(start, stretch, self._topic, number),
                waiting=self._waiting,
                priority=-number,
            )
            for number, stretch in enumerate(parts)
        ]
        by, merges = "G" if spec.train.merge == "gradients" else "examples", 0
        while len(nodes) > 1:
            above = []
            for a, b in zip(nodes[::2], nodes[1::2], strict=False):
                key, merges = f"omd-merge-{run}-{merges}", merges + 1
                above.append(
                    sent(
                        self.connection,
                        key,
                        merge_parts,
                        *(start, by),
                        waiting=self._waiting,
                        held=(a, b),
                        priority=MERGE_FIRST,
                    )
                )
            nodes = above + nodes[len(nodes) - len(nodes) % 2 :]
        return nodes[0]

    def _take(self, found: PartialState, end: Cursor) -> None:
        """A round's state becomes the model's, and is committed."""
        model, state = self.model, self.model.state
        model.digests.check_all(found.digests)  # before anything of a changed shard is taken
        model.metrics.leave_out(found.bad, model.spec.data.max_bad_rows)
        state.cells[...] = found.cells
        state.totals[...] = found.totals
        state.clock = found.clock
        state.extra = {name: np.array(array) for name, array in found.extra.items()}
        model.names.update(found.names)
        model.metrics.current[...] += found.sums
        model.metrics.count(found.rows)
        model.cursor = end
        self._heard.clear()
        model.finished = end == Cursor(model.spec.train.epochs)
        if not model.finished:  # the last commit is made by who knows that the run is finished
            self.keeper.commit()
        self._waiting()

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        self._heard[event[1]["part"]] = event[1]

    def _waiting(self) -> None:
        """Show how far the parts are; leave if a signal has come."""
        model = self.model
        so_far = model.metrics.copy()
        for one in list(self._heard.values()):
            so_far.current[...] += np.array(one["sums"])
            so_far.count(one["rows"])
        for watcher in self.watchers:
            watcher.update(so_far)
        if self.stop.signal and not model.finished:
            raise StoppedError(
                f"stopped after row {model.metrics.total_rows:,}: commit {self.keeper.sequence}, "
                f"of the last whole round; go on with: streamomd resume {shown(model.url)}",
                signal=self.stop.signal,
            )
