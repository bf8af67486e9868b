"""One walk over the rows of shards. Exact mode, delayed labels, backtests and sweeps consume it.

A walk draws the sampled and hold-out rows of each part, and cuts a part where its consumer asks.
Each row comes once, from any cursor on; where parts are cut changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from streamomd.core.batch import Batch
from streamomd.core.finite import Place
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.cursor import Cursor
from streamomd.shards.dataset import Dataset
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.holdout import rows_held_out
from streamomd.training.metrics import Counts
from streamomd.training.model_data import ModelData
from streamomd.training.row_stream import Source, rows_of
from streamomd.training.sampling import sampled_rows
from streamomd.training.training_step import Mask, reader_plan

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
            place, name = number, f"partition {number} of the Dask collection"
            if isinstance(shards, ShardSet):
                place, name = shards.shards[number].place, shards.shards[number].url
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
