"""What a worker does in a round of averaged mode: learn a stretch of rows, or merge two states.

Both are pure: they read the commit the round begins from, change none of their inputs, and write
nothing. So a task whose worker is lost runs again anywhere, and a late double does no harm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from streamomd.config.spec import Data
from streamomd.core.batch import REASONS
from streamomd.core.errors import ClusterError, DivergedError, NoCommitError
from streamomd.core.finite import FiniteCheck
from streamomd.core.urls import shown
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.features import Names
from streamomd.shards.cache.cached_reader import cached_rows
from streamomd.shards.digests import Digests, Found
from streamomd.shards.row_ranges import RowRange
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.row_stream import cache_of, rows_of_group

TELL_SECONDS = 0.5
Seen = dict[int, tuple[str, ...]]
"""Names by coordinate; of a part, those that the commit has not."""


@dataclass(frozen=True)
class RoundStart:
    """The commit a round begins from. run: of this driver alone, so that no other is meant.

    data: of the driver's job, for its storage options and cache, which no commit chooses.
    """

    run: str
    url: str
    sequence: int
    options: Mapping[str, Any] = field(repr=False)
    data: Data = field(repr=False)


@dataclass(frozen=True, eq=False)
class PartialState:
    """A state as it travels, and what it has learned since the round began."""

    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int
    extra: dict[str, NDArray[Any]]
    rows: int
    sums: NDArray[np.float64]
    bad: NDArray[np.int64]
    names: Seen
    digests: list[Found]

    def __sizeof__(self) -> int:
        # For Dask, which would take it for some bytes and never spill it.
        arrays = (self.cells, self.totals, *self.extra.values())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    def state_like(self, state: State) -> State:
        """The state; its arrays are these."""
        return State(state.layout, self.cells, self.totals, self.clock, self.extra)


def part_of(
    state: State,
    rows: int,
    sums: NDArray[np.float64],
    bad: NDArray[np.int64],
    names: Seen,
    digests: list[Found],
) -> PartialState:
    """What travels of a state."""
    extra = (rows, sums, bad, names, digests)
    return PartialState(state.cells, state.totals, state.clock, state.extra, *extra)


_reading = threading.Lock()
_held: list[tuple[RoundStart, Model]] = []


def model_at(start: RoundStart) -> Model:
    """The model of that commit, not to be changed; held until another is asked for."""
    with _reading:
        if not (_held and _held[0][0] == start):
            _held.clear()  # first, so that two are never held
            _held.append((start, _read(start)))
        return _held[0][1]


def _read(start: RoundStart) -> Model:
    try:
        return load_model(start.url, storage_options=start.options, at=start.sequence)[0]
    except NoCommitError as error:
        raise ClusterError(
            f"worker {get_worker().address} does not find commit {start.sequence} in "
            f"{shown(start.url)}: averaged mode needs a checkpoint URL that all workers reach, "
            f"a shared disk or a bucket ({error})"
        ) from None


def learn_part(start: RoundStart, stretch: RowRange, topic: str, number: int) -> PartialState:
    """Learn a stretch of rows from the commit's state on, telling how it goes.

    Decoded and learned in one thread: a worker has as many tasks at once as it has threads.
    Raises DivergedError, naming rows, if a number is no longer finite.
    """
    guard = FiniteCheck()
    try:
        return _learned(start, stretch, topic, number, guard)
    except DivergedError:
        if guard.exact:
            raise
        # The task is pure: again, with a look at every slot after every batch, to name the first.
        return _learned(start, stretch, topic, number, FiniteCheck(always=True))


def _learned(
    start: RoundStart, stretch: RowRange, topic: str, number: int, guard: FiniteCheck
) -> PartialState:
    model = model_at(start)
    plan, state, names = model.plan, model.state.copy(), Names(model.names.seen())
    sums, rows, told, digests = np.zeros(3), 0, time.monotonic(), Digests()
    bad = np.zeros(len(REASONS), np.int64)
    shards = [span.group.shard for span in stretch.spans]
    cached = cached_rows(cache_of(start.data), shards, plan, names)
    for span in stretch.spans:
        pieces = rows_of_group(
            plan,
            span.group,
            span.begin,
            span.end,
            options=start.data.storage_options,
            names=names,
            cached=cached,
            digests=digests,
        )
        url = span.group.shard.url
        for piece in pieces:
            batch = piece.value.batch
            margins = model.engine.learn(state, sums, batch)
            at = (url, piece.row), (url, piece.row + piece.rows)
            guard.after(state, sums, margins, batch.values.size, at)
            rows += len(batch)
            bad += batch.skipped.counts(0, len(batch.skipped))
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                tell(topic, number, rows, sums)
    guard.look(state, (url, span.end))
    tell(topic, number, rows, sums)
    return part_of(state, rows, sums, bad, names.new(model.names), digests.found())


def tell(topic: str, number: int, rows: int, sums: NDArray[np.float64]) -> None:
    """An event, for whoever shows progress."""
    get_worker().log_event(topic, {"part": number, "rows": rows, "sums": sums.tolist()})


def merge_parts(start: RoundStart, by: str, a: PartialState, b: PartialState) -> PartialState:
    """One of two that began from the commit's state."""
    model = model_at(start)
    states = [part.state_like(model.state) for part in (a, b)]
    whole = merge(model.engine, states, model.state, (a.rows, b.rows), by=by)
    learned = (a.rows + b.rows, a.sums + b.sums, a.bad + b.bad)
    # Those of a row group that both have read are compared by the driver.
    return part_of(whole, *learned, joined((a.names, b.names)), a.digests + b.digests)


def joined(tables: Sequence[Seen]) -> Seen:
    """Tables of names as one, within the bounds of one."""
    first, *others = tables
    names = Names(first)
    for table in others:
        names.update(table)
    return names.seen()
