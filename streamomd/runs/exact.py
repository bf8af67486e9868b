"""Exact mode: one learner walks the shards in order, from its cursor on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from streamomd.runs.walk import NEVER_DUE, Learner, Part, local_rows, parts_of, walk
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.cursor import Cursor
from streamomd.shards.dataset import Dataset, unread_rows
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.drift_alerts import fails_on_alert, raise_alert
from streamomd.training.holdout import reason_to_stop
from streamomd.training.model_data import ModelData
from streamomd.training.offsets import MOST, report_offsets
from streamomd.training.progress import Watcher, note
from streamomd.training.row_stream import Source, cache_of
from streamomd.training.signals import StopRequest, raise_stopped
from streamomd.training.training_step import (
    accept_pass,
    begin_epoch,
    is_tried,
    learn_rows,
    observe_rows,
    try_pass,
)


@dataclass(eq=False)
class ExactRun:
    """One walk of a model over its shards, from its cursor on.

    manager: makes the commits, if there are any. recorded: the one whose ledger has the shards of
    the run; ``manager``, or that of a run whose rows this one learns again. draws: whether rows are
    sampled and held out.
    """

    model: ModelData
    shards: Dataset
    manager: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Any = None
    recorded: CheckpointManager | None = None
    draws: ClassVar[bool] = True

    def learn_epochs(self, epochs: int) -> None:
        """Learn the remaining rows of ``epochs`` epochs.

        Raises StoppedError after a signal, its commit made.
        """
        model = self.model
        if model.cursor.epoch >= epochs:
            return
        source = self._source()
        while model.cursor.epoch < epochs and not self._stops_early():
            at = model.cursor
            if at.epoch >= 0:
                self._try_pass()
                begin_epoch(model, unread_rows(self.shards))
            walk(parts_of(model, self.shards, source, at, draw=self.draws), self)
            model.cursor = Cursor(at.epoch + 1)
            if not accept_pass(model):
                return

    def _try_pass(self) -> None:
        """Note the model before a pass that may be undone, or read it where the pass continues."""
        model = self.model
        if model.tried is None and is_tried(model):
            if self.manager:
                self.manager.commit()
            try_pass(model, model.sequence if self.manager else -1)
        elif model.tried is not None and model.tried.state is None:
            from streamomd.training.load_model import load_model

            options, at = model.spec.checkpoint.storage_options, model.tried.commit
            before, _ = load_model(model.url, storage_options=options, at=at)
            model.tried.fill(before.state, before.metrics, before.cursor)

    def _source(self) -> Source:
        """Where rows come from: this process, or a cluster. They are the same rows."""
        if not isinstance(self.shards, ShardSet):
            from streamomd.distributed.collections.collection import Collection
            from streamomd.distributed.collections.partition_source import collection_source

            assert isinstance(self.shards, Collection)
            return collection_source(self.model, self.shards, self.connection, self._while_waiting)
        if self.connection is None:
            return self._here
        from streamomd.distributed.row_source import choose_source

        return choose_source(
            self.model, self.shards, self._here, self.connection, self._while_waiting
        )

    @cached_property
    def _cache(self) -> Cache | None:
        return cache_of(self.model.spec.data)

    def _here(self, order: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
        return local_rows(self.model, self.shards, self._cache, order, start)

    def _while_waiting(self) -> None:
        for watcher in self.watchers:
            watcher.update(self.model.metrics)
        if self.stop.signal:
            raise_stopped(self.stop, self.model, self.manager)

    def _stops_early(self) -> bool:
        """Whether the held-out loss says to stop."""
        model = self.model
        reason = reason_to_stop(model.metrics.held, model.cursor.epoch, model.spec.train.patience)
        if reason:
            note(reason)
        return bool(reason)

    def begin_part(self, part: Part) -> None:
        """Look at rows before they are cut."""
        model = self.model
        if model.cursor.epoch == 0 and not model.metrics.total_rows:
            front = part.batch.first_columns(len(model.plan.numeric), MOST)
            report_offsets([model.spec], model.plan, front)

    def most(self, part: Part, low: int) -> int:
        """Rows up to the curve's next point, or to a watcher's next row."""
        metrics = self.model.metrics
        if self.model.cursor.epoch < 0:  # none is learned: what is due waits
            return NEVER_DUE
        due = min([metrics.next_point, *(watcher.next_row for watcher in self.watchers)])
        return int(due) - metrics.total_rows

    def learner(self) -> Learner:
        """Learn rows, or observe them."""
        model = self.model
        if model.cursor.epoch < 0:
            return lambda rows, skipped, held, at: observe_rows(model, rows, held)
        return partial(learn_rows, model)

    def after(self, cursor: Cursor) -> bool:
        """Move the cursor, report, and commit what is due."""
        model = self.model
        model.cursor = cursor
        for watcher in self.watchers:
            watcher.update(model.metrics)
        if model.alert and fails_on_alert(model):
            raise_alert(model, self.manager)
        if self.stop.signal:
            raise_stopped(self.stop, model, self.manager)
        return True
