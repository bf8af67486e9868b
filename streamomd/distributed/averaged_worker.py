"""The tasks of a round of averaged mode: learn a range of rows, or merge two states.

Both are pure: they read the commit the round starts from, change none of their inputs, and write
nothing. So a task whose worker is lost runs again on any worker, and a late duplicate is harmless.
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

REPORT_SECONDS = 0.5
SeenNames = dict[int, tuple[str, ...]]
"""Names by coordinate; of a part, those that the commit has not."""


@dataclass(frozen=True)
class RoundStart:
    """The commit a round starts from. run: unique to this driver, so that rounds are not confused.

    data: of the driver's job, for its storage options and cache, which a commit must not choose.
    new_pass: the commit is the end of an epoch, so that the round begins another pass.
    """

    run: str
    url: str
    sequence: int
    options: Mapping[str, Any] = field(repr=False)
    data: Data = field(repr=False)
    new_pass: bool = False


@dataclass(frozen=True, eq=False)
class PartialState:
    """A state to transfer, and the sums of what it learned since the round started."""

    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int
    extra: dict[str, NDArray[Any]]
    rows: int
    sums: NDArray[np.float64]
    bad: NDArray[np.int64]
    names: SeenNames
    digests: list[Found]

    def __sizeof__(self) -> int:
        # For Dask, which would count it as a few bytes and never spill it.
        arrays = (self.cells, self.totals, *self.extra.values())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    def state_like(self, state: State) -> State:
        """The state, sharing these arrays."""
        return State(state.layout, self.cells, self.totals, self.clock, self.extra)


def partial_state(
    state: State,
    rows: int,
    sums: NDArray[np.float64],
    bad: NDArray[np.int64],
    names: SeenNames,
    digests: list[Found],
) -> PartialState:
    """The transferable form of a state."""
    extra = (rows, sums, bad, names, digests)
    return PartialState(state.cells, state.totals, state.clock, state.extra, *extra)


_load_lock = threading.Lock()
_loaded: list[tuple[RoundStart, Model]] = []


def load_start_model(start: RoundStart) -> Model:
    """The model of that commit, read-only; cached until another one is requested."""
    with _load_lock:
        if not (_loaded and _loaded[0][0] == start):
            _loaded.clear()  # first, so that two are never in memory
            _loaded.append((start, _load_commit(start)))
        return _loaded[0][1]


def _load_commit(start: RoundStart) -> Model:
    try:
        model = load_model(start.url, storage_options=start.options, at=start.sequence)[0]
    except NoCommitError as error:
        raise ClusterError(
            f"worker {get_worker().address} cannot find commit {start.sequence} in "
            f"{shown(start.url)}: averaged mode needs a checkpoint URL that all workers can read, "
            f"on a shared disk or in a bucket ({error})"
        ) from None
    if start.new_pass:
        model.engine.begin_pass(model.state)
    return model


def learn_range(
    start: RoundStart, row_range: RowRange, part: bool, topic: str, number: int
) -> PartialState:
    """Learn a range of rows from the commit's state, reporting progress.

    part: the round has other parts, with which the result will be merged.
    Decoded and learned in one thread: a worker runs as many tasks as it has threads.
    Raises DivergedError, naming rows, if a number is no longer finite.
    """
    guard = FiniteCheck()
    try:
        return _learn(start, row_range, part, topic, number, guard)
    except DivergedError:
        if guard.exact:
            raise
        # The task is pure: repeat it, checking every slot after every batch, to name the first.
        return _learn(start, row_range, part, topic, number, FiniteCheck(always=True))


def _learn(
    start: RoundStart,
    row_range: RowRange,
    part: bool,
    topic: str,
    number: int,
    guard: FiniteCheck,
) -> PartialState:
    model = load_start_model(start)
    plan, state, names = model.plan, model.state.copy(), Names(model.names.seen())
    sums, rows, reported, digests = np.zeros(3), 0, time.monotonic(), Digests()
    bad = np.zeros(len(REASONS), np.int64)
    shards = [span.group.shard for span in row_range.spans]
    cached = cached_rows(cache_of(start.data), shards, plan, names)
    for span in row_range.spans:
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
            margins = model.engine.learn(state, sums, batch, part=part)
            at = (url, piece.row), (url, piece.row + piece.rows)
            guard.after(state, sums, margins, batch.values.size, at)
            rows += len(batch)
            bad += batch.skipped.counts(0, len(batch.skipped))
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                report_rows(topic, number, rows, sums)
    guard.check_state(state, (url, span.end))
    report_rows(topic, number, rows, sums)
    return partial_state(state, rows, sums, bad, names.new(model.names), digests.found())


def report_rows(topic: str, number: int, rows: int, sums: NDArray[np.float64]) -> None:
    """Log an event for the driver's progress display."""
    get_worker().log_event(topic, {"part": number, "rows": rows, "sums": sums.tolist()})


def merge_states(start: RoundStart, by: str, a: PartialState, b: PartialState) -> PartialState:
    """Merge two states that started from the commit's state."""
    model = load_start_model(start)
    states = [part.state_like(model.state) for part in (a, b)]
    whole = merge(model.engine, states, model.state, (a.rows, b.rows), by=by)
    learned = (a.rows + b.rows, a.sums + b.sums, a.bad + b.bad)
    # The driver compares the digests of a row group that both have read.
    return partial_state(whole, *learned, merge_names((a.names, b.names)), a.digests + b.digests)


def merge_names(tables: Sequence[SeenNames]) -> SeenNames:
    """Merge tables of names, within the size limit of one."""
    first, *others = tables
    names = Names(first)
    for table in others:
        names.update(table)
    return names.seen()
