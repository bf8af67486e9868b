"""One walk over the rows of shards. Exact mode, delayed labels, backtests and sweeps consume it.

A walk draws the sampled and hold-out rows of each part, and cuts a part where its consumer asks.
Each row comes once, from any cursor on; where parts are cut changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Protocol

from streamomd.core.batch import Batch
from streamomd.core.finite import Place
from streamomd.runs.streamed_rows import StreamedRows
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import Cursor, Dataset, places, unread_rows
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.class_weights import sampled_rows
from streamomd.training.drift_alerts import fails_on_alert, raise_alert
from streamomd.training.holdout import reason_to_stop, rows_held_out
from streamomd.training.metrics import Counts
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Watcher, note
from streamomd.training.row_checks import MOST, report_offsets
from streamomd.training.row_stream import Source, cache_of, rows_of
from streamomd.training.signals import StopRequest, raise_stopped
from streamomd.training.training_step import (
    Mask,
    accept_pass,
    begin_epoch,
    is_tried,
    learn_rows,
    observe_rows,
    reader_plan,
    try_pass,
)

NEVER_DUE = 1 << 62
"""Rows to go if nothing is due."""


class Stretch(NamedTuple):
    """Consecutive rows that a consumer takes together.

    skipped: bad rows among them, by reason. held: which are hold-out rows. at: where they begin
    and end, for errors. cursor: after them.
    """

    rows: Batch
    skipped: Counts
    held: Mask | None
    at: tuple[Place, Place]
    cursor: Cursor


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a piece that are drawn: ``batch``, of which some are held out.

    name: the shard's, for messages.
    """

    piece: Piece[Rows]
    epoch: int
    name: str
    batch: Batch
    held: Mask | None = None

    def stretches(self, most: Callable[[Part, int], int]) -> Iterator[Stretch]:
        """All rows in order. most(part, low): how many from row ``low`` on are taken together."""
        low, end = 0, len(self.batch)
        while True:
            high = min(end, low + most(self, low))
            yield self.stretch(low, high)
            low = high
            if low == end:
                return

    def stretch(self, low: int, high: int) -> Stretch:
        """The rows from ``low`` to before ``high``, with the bad rows before and after them."""
        skipped, held = self.batch.skipped, self.held
        passed, bad = skipped.before(low) if low else 0, skipped.before(high)
        begin, end = self.piece.row + low + passed, self.piece.row + high + bad
        return Stretch(
            self.batch.rows(low, high),
            skipped.counts(passed, bad),
            None if held is None else held[low:high],
            ((self.name, begin), (self.name, end)),
            Cursor(self.epoch, self.piece.position, end),
        )


Learner = Callable[[Batch, Counts, Mask | None, tuple[Place, Place]], object]
"""learner(rows, skipped, held, at): the fields of a ``Stretch``."""
Parts = Generator[Part, None, None]


def parts_of(
    model: ModelData, shards: Dataset, source: Source, at: Cursor, *, draw: bool = True
) -> Parts:
    """The parts of an epoch from a cursor on. draw: else all rows are there, and none is held out.

    Raises what the source raises.
    """
    data = model.spec.data
    order = places(data.order, data.seed, len(shards), at.epoch)
    pieces: Any = source(order, (at.place, at.row))
    with closing(pieces):
        for piece in pieces:
            number = order[piece.position]
            place, name = number, shards.part_name(number)
            if isinstance(shards, ShardSet):
                place = shards.shards[number].place
            batch, held, rows = piece.value.batch, None, range(piece.row, piece.row + piece.rows)
            if draw and data.sample:
                batch = sampled_rows(data, model.plan, place, rows, batch)
            if draw:
                held = rows_held_out(data, place, rows, batch.skipped, batch.time)
            yield Part(piece, at.epoch, name, batch, held)


def local_rows(
    model: ModelData,
    shards: Dataset,
    cache: Cache | None,
    order: Sequence[int],
    start: tuple[int, int],
) -> Iterator[Piece[Rows]]:
    """A source of rows that this process reads."""
    assert isinstance(shards, ShardSet)
    return rows_of(
        reader_plan(model),
        shards,
        order,
        start=start,
        names=model.names,
        ahead_bytes=model.spec.train.prefetch << 20,
        cache=cache,
        digests=model.digests,
    )


class Consumer(Protocol):
    """Who takes the rows of a walk."""

    def begin_part(self, part: Part) -> None:
        """Look at rows before they are cut."""

    def most(self, part: Part, low: int) -> int:
        """How many rows from row ``low`` of the part on are taken together."""

    def learner(self) -> Learner:
        """What is done with rows."""

    def after(self, cursor: Cursor) -> bool:
        """All rows before a cursor were taken; whether to continue."""


def walk(parts: Parts, consumer: Consumer) -> bool:
    """Give a consumer all rows of these parts, in order; False if it has ended the walk."""
    learn = consumer.learner()
    with closing(parts):
        for part in parts:
            consumer.begin_part(part)
            for some in part.stretches(consumer.most):
                learn(some.rows, some.skipped, some.held, some.at)
                if not consumer.after(some.cursor):
                    return False
    return True


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
        if isinstance(self.shards, StreamedRows):
            return self.shards.source(self.model)
        if not isinstance(self.shards, ShardSet):
            from streamomd.distributed.collections.collection import Collection
            from streamomd.distributed.collections.partition_source import collection_source

            assert isinstance(self.shards, Collection)
            return collection_source(self.model, self.shards, self.connection, self._while_waiting)
        if self.connection is None:
            return self._here
        from streamomd.distributed.decode import choose_source

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
