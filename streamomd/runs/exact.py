"""Exact mode: one learner walks the shards in order, from its cursor on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.cursor import Cursor
from streamomd.shards.dataset import Dataset, unread_rows
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training import offsets
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.drift_alerts import fails_on_alert, raise_alert
from streamomd.training.holdout import reason_to_stop, rows_held_out
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Watcher, note
from streamomd.training.row_stream import Source, cache_of, rows_of
from streamomd.training.sampling import sampled_rows
from streamomd.training.signals import StopRequest, raise_stopped
from streamomd.training.training_step import begin_epoch, learn_rows, observe_rows, reader_plan


@dataclass(eq=False)
class ExactRun:
    """One walk of a model over its shards, from its cursor on.

    manager: makes the commits, if there are any. recorded: the one whose ledger has the shards of
    the run; ``manager``, or that of a run whose rows this one learns again.
    """

    model: ModelData
    shards: Dataset
    manager: CheckpointManager | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Any = None
    recorded: CheckpointManager | None = None

    def learn_epochs(self, epochs: int) -> None:
        """Learn the remaining rows of ``epochs`` epochs.

        Raises StoppedError after a signal, its commit made.
        """
        model = self.model
        if model.cursor.epoch >= epochs:
            return
        rows = self._source()
        while model.cursor.epoch < epochs and not self._stops_early():
            at = model.cursor
            if at.epoch >= 0:
                begin_epoch(model, unread_rows(self.shards))
            data = model.spec.data
            order = places(data.order, data.seed, len(self.shards), at.epoch)
            for piece in rows(order, (at.place, at.row)):
                self._learn(piece, order[piece.position])
            model.cursor = Cursor(at.epoch + 1)

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
        assert isinstance(self.shards, ShardSet)
        return rows_of(
            reader_plan(self.model),
            self.shards,
            order,
            start=start,
            names=self.model.names,
            ahead_bytes=self.model.spec.train.prefetch << 20,
            cache=self._cache,
            digests=self.model.digests,
        )

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

    def _learn(self, piece: Piece[Rows], shard: int) -> None:
        """Learn a piece, cut at the curve's next point and at watchers' next rows.

        The results do not depend on where it is cut.
        """
        model, low, passed = self.model, 0, 0
        rows, place = range(piece.row, piece.row + piece.rows), self.place(shard)
        batch, data = piece.value.batch, model.spec.data
        if data.sample:
            batch = sampled_rows(data, model.plan, place, rows, batch)
        held = rows_held_out(data, place, rows, batch.skipped, batch.time)
        if model.cursor.epoch == 0 and not model.metrics.total_rows:
            front = batch.first_columns(len(model.plan.numeric), offsets.MOST)
            offsets.report_offsets([model.spec], model.plan, front)
        while True:
            high = min(len(batch), low + self._rows_to_tell())
            bad = batch.skipped.before(high)
            some, out = batch.rows(low, high), None if held is None else held[low:high]
            begin, end = piece.row + low + passed, piece.row + high + bad
            if model.cursor.epoch < 0:
                observe_rows(model, some, out)
            else:
                at = (self.shard_name(shard), begin), (self.shard_name(shard), end)
                learn_rows(model, some, batch.skipped.counts(passed, bad), out, at)
            model.cursor = Cursor(model.cursor.epoch, piece.position, end)
            low, passed = high, bad
            for watcher in self.watchers:
                watcher.update(model.metrics)
            if model.alert and fails_on_alert(model):
                raise_alert(model, self.manager)
            if self.stop.signal:
                raise_stopped(self.stop, self.model, self.manager)
            if low == len(batch):
                return

    def place(self, shard: int) -> int:
        """The number by which rows of a shard are drawn."""
        return self.shards.shards[shard].place if isinstance(self.shards, ShardSet) else shard

    def shard_name(self, shard: int) -> str:
        """The URL of a shard, for messages."""
        if isinstance(self.shards, ShardSet):
            return self.shards.shards[shard].url
        return f"partition {shard} of the Dask collection"

    def _rows_to_tell(self) -> int:
        metrics = self.model.metrics
        if self.model.cursor.epoch < 0:  # none is learned: what is due waits
            return 1 << 62
        due = min([metrics.next_point, *(watcher.next_row for watcher in self.watchers)])
        return int(due) - metrics.total_rows
