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

from streamomd.config.spec import Data, Spec
from streamomd.core.errors import ClusterError, DivergedError, NoCommitError
from streamomd.core.finite import FiniteCheck
from streamomd.core.urls import shown
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.features import Names
from streamomd.shards.cache.cached_reader import cached_rows
from streamomd.shards.digests import Digests, Found
from streamomd.shards.row_ranges import RowRange
from streamomd.training.holdout import rows_held_out
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics
from streamomd.training.model import Model
from streamomd.training.row_stream import cache_of, rows_of_group
from streamomd.training.training_step import learn_counted

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
    """A state to transfer, and the metrics of what it learned since the round started.

    metrics: of one epoch, as a checkpoint saves them; most bins are empty.
    """

    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int
    extra: dict[str, NDArray[Any]]
    rows: int
    metrics: dict[str, NDArray[Any]]
    names: SeenNames
    digests: list[Found]

    def __sizeof__(self) -> int:
        # For Dask, which would count it as a few bytes and never spill it.
        arrays = (self.cells, self.totals, *self.extra.values(), *self.metrics.values())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    def state_like(self, state: State) -> State:
        """The state, sharing these arrays."""
        return State(state.layout, self.cells, self.totals, self.clock, self.extra)


def partial_state(
    state: State, metrics: Metrics, names: SeenNames, digests: list[Found]
) -> PartialState:
    """The transferable form of a state."""
    extra = (metrics.total_rows, metrics.arrays(), names, digests)
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
    spec, reported, digests = model.spec, time.monotonic(), Digests()
    metrics = part_metrics(spec)
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
            end = piece.row + piece.rows
            held = rows_held_out(
                spec.data, span.group.shard.place, range(piece.row, end), batch.skipped
            )
            margins = learn_counted(
                model.engine, state, metrics, batch, held, detail=spec.train.detail, part=part
            )
            learned = margins if held is None else margins[~held]
            at = (url, piece.row), (url, end)
            guard.after(state, metrics.current, learned, batch.values.size, at)
            metrics.count_skipped(batch.skipped.counts(0, len(batch.skipped)), None)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                report_rows(topic, number, metrics)
    guard.check_state(state, (url, span.end))
    report_rows(topic, number, metrics)
    return partial_state(state, metrics, names.new(model.names), digests.found())


def part_metrics(spec: Spec) -> Metrics:
    """Metrics of no rows yet, of one epoch."""
    classifies = spec.model.classifies
    held = Metrics(classifies) if spec.data.holdout else None
    metrics = Metrics(classifies, held=held)
    metrics.begin(0)
    return metrics


def report_rows(topic: str, number: int, metrics: Metrics) -> None:
    """Log an event for the driver's progress display."""
    event = {"part": number, "rows": metrics.total_rows, "sums": metrics.current.tolist()}
    get_worker().log_event(topic, event)


def merge_states(start: RoundStart, by: str, a: PartialState, b: PartialState) -> PartialState:
    """Merge two states that started from the commit's state."""
    model = load_start_model(start)
    states = [part.state_like(model.state) for part in (a, b)]
    whole = merge(model.engine, states, model.state, (a.rows, b.rows), by=by)
    classifies = model.spec.model.classifies
    metrics, other = (Metrics.from_arrays(part.metrics, classifies=classifies) for part in (a, b))
    metrics.add(other)
    # The driver compares the digests of a row group that both have read.
    return partial_state(whole, metrics, merge_names((a.names, b.names)), a.digests + b.digests)


def merge_names(tables: Sequence[SeenNames]) -> SeenNames:
    """Merge tables of names, within the size limit of one."""
    first, *others = tables
    names = Names(first)
    for table in others:
        names.update(table)
    return names.seen()
