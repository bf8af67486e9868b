"""The tasks of a round of averaged mode: learn a range of rows, or merge two states.

A part's state is cut where it was learned. Each range is merged on one of the workers that have it,
so that all workers merge, each sends about half of a state at the first level, a quarter at the
next, and none has more of all that is merged than its own part. The pieces of the result are joined
where the next round starts.

Both are pure: they change none of their inputs and write nothing. So a task whose worker is lost
runs again on any worker, and a late duplicate is harmless.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.errors import DivergedError
from streamomd.core.finite import FiniteCheck
from streamomd.distributed.round_state import (
    PartialState,
    RoundStart,
    add_start_names,
    merge_about,
    model_of,
    readers_of,
    register_result,
    round_result,
)
from streamomd.engine.layout import Layout
from streamomd.engine.merge import Ranges, merge, merges_in_ranges
from streamomd.engine.state import State
from streamomd.features import Names
from streamomd.shards.cache.cached_reader import cached_rows
from streamomd.shards.order import RowRange
from streamomd.shards.shard import Digests
from streamomd.training.class_weights import class_weights_of, sampled_rows
from streamomd.training.drift_alerts import learned_rows, part_watcher, plan_to_read
from streamomd.training.holdout import rows_held_out
from streamomd.training.metrics import Metrics
from streamomd.training.row_stream import cache_of, rows_of_group
from streamomd.training.training_step import learn_counted

PIECE_BYTES, MOST_PIECES = 16 << 20, 32
"""A piece is at least this large; so smaller states are merged as a whole. Each piece of each part
is a task."""
LEAST_PIECES = 4


def ranges_of(layout: Layout) -> Ranges | None:
    """How the states of a round are cut; None if they are merged as a whole."""
    count = min(layout.nbytes // PIECE_BYTES, MOST_PIECES)
    if count < LEAST_PIECES or not merges_in_ranges(layout):
        return None
    return Ranges.of(layout, 1 << (count.bit_length() - 1))


@dataclass(frozen=True, eq=False)
class StatePiece:
    """A piece of a state to transfer. rows: that the whole state has learned since the round
    started. about: of the first piece: all but the cells."""

    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int
    extra: dict[str, NDArray[Any]]
    rows: int
    about: PartialState | None

    def __sizeof__(self) -> int:
        # For Dask, which would count it as a few bytes and never spill it.
        arrays = (self.cells, self.totals, *self.extra.values())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    def state(self, layout: Layout) -> State:
        """The piece as a state, sharing these arrays."""
        return State(layout, self.cells, self.totals, self.clock, self.extra)


def cut_state(ranges: Ranges, learned: PartialState, state: State) -> list[StatePiece]:
    """The pieces of a part's state, which has no cells afterwards. learned: all but the state."""
    pieces = enumerate(ranges.cut(state))
    return [_piece(one, learned.rows, None if number else learned) for number, one in pieces]


def _piece(state: State, rows: int, about: PartialState | None) -> StatePiece:
    return StatePiece(state.cells, state.totals, state.clock, state.extra, rows, about)


def take_piece(number: int, pieces: Sequence[StatePiece]) -> StatePiece:
    """A piece of a part: a task of its own, so that Dask sends it and frees it alone."""
    return pieces[number]


def merge_pieces(
    ranges: Ranges, number: int, last: bool, by: str, start: PartialState, a: StatePiece,
    b: StatePiece,
) -> StatePiece:  # fmt: skip
    """Merge this piece of two states that were learned from the round's start.

    last: it is the last merge of the piece.
    """
    model = model_of(start)
    begin = ranges.piece(model.state, number)
    states = [piece.state(begin.layout) for piece in (a, b)]
    whole = ranges.merge(model.engine, number, states, begin, (a.rows, b.rows), by=by)
    # All but the cells is the same in every piece: it is sent once, with the first.
    about = None
    if a.about is not None and b.about is not None:
        about = merge_about(a.about, b.about)
        about = add_start_names(start, about) if last else about
    return _piece(whole, a.rows + b.rows, about)


def join_pieces(run: str, ranges: Ranges, *pieces: StatePiece) -> PartialState:
    """The result of a round, from the merged pieces of its states."""
    first = pieces[0]
    assert first.about is not None
    cells = ranges.joined_cells([piece.cells for piece in pieces])
    result = replace(
        first.about, cells=cells, totals=first.totals, clock=first.clock, extra=first.extra
    )
    return register_result(run, result)


REPORT_SECONDS = 0.5


def learn_range(
    request: RoundStart, row_range: RowRange, part: bool, topic: str, number: int,
    start: PartialState,
) -> PartialState:  # fmt: skip
    """Learn a range of rows from the round's start, reporting progress.

    part: the round has other parts, with which the result will be merged.
    Decoded and learned in one thread: a worker runs as many tasks as it has threads.
    Raises DivergedError, naming rows, if a number is no longer finite.
    """
    learned, state = _learn_checked(request, row_range, part, topic, number, start)
    found = learned.holding(state)
    return found if part else round_result(request.run, start, found)


def learn_pieces(
    request: RoundStart, row_range: RowRange, ranges: Ranges, topic: str, number: int,
    start: PartialState,
) -> list[StatePiece]:  # fmt: skip
    """Learns a part as ``learn_range`` does; returns its state in a piece for each range."""
    learned, state = _learn_checked(request, row_range, True, topic, number, start)
    return cut_state(ranges, learned, state)


def _learn_checked(
    request: RoundStart, row_range: RowRange, part: bool, topic: str, number: int,
    start: PartialState,
) -> tuple[PartialState, State]:  # fmt: skip
    guard = FiniteCheck()
    given = (request, row_range, part, topic, number, start)
    try:
        return _learn(*given, guard)
    except DivergedError:
        if guard.exact:
            raise
    # The task is pure: repeat it, checking every slot after every batch, to name the first.
    return _learn(*given, FiniteCheck(always=True))


def _learn(
    request: RoundStart,
    row_range: RowRange,
    part: bool,
    topic: str,
    number: int,
    start: PartialState,
    guard: FiniteCheck,
) -> tuple[PartialState, State]:
    """Learns the rows of a range; returns what it learned, and the state."""
    model = model_of(start)
    # A copy: other tasks on this worker, and a second attempt, start from the same one.
    state, names = model.state.copy(), Names(start.names)
    plan = plan_to_read(request.alert, start.plan)
    spec, reported, digests = start.spec, time.monotonic(), Digests()
    metrics, weights = part_metrics(spec), class_weights_of(spec, plan, start.classes)
    watcher = part_watcher(model.engine, request.alert, plan, row_range.rows)
    shards = [span.group.shard for span in row_range.spans]
    cached = cached_rows(cache_of(request.data), shards, plan, names)
    readers = readers_of(start)
    for span in row_range.spans:
        pieces = rows_of_group(
            plan,
            span.group,
            span.begin,
            span.end,
            options=request.data.store_options,
            names=names,
            cached=cached,
            digests=digests,
            readers=readers,
        )
        url = span.group.shard.url
        for piece in pieces:
            end, place = piece.row + piece.rows, span.group.shard.place
            rows = range(piece.row, end)
            batch = sampled_rows(spec.data, plan, place, rows, piece.value.batch)
            # By the row's place in the data, so that it does not depend on how rows are divided.
            held = rows_held_out(spec.data, place, rows, batch.skipped, batch.time)
            given, detail = (model.engine, state, metrics), spec.train.detail
            more: Any = {"weights": weights, "first": request.first}
            before = 0.0 if watcher is None else model.engine.rows_learned(state)
            margins = learn_counted(*given, batch, held, detail=detail, part=part, **more)
            learned = margins if held is None else margins[~held]
            if watcher is not None:
                watcher.add(learned_rows(batch, held), learned, before)
            at = (url, piece.row), (url, end)
            guard.after(state, metrics.current, learned, batch.values.size, at)
            # The limit of bad rows is checked by the driver, which knows those of all parts.
            metrics.count_skipped(batch.skipped.counts(0, len(batch.skipped)), None)
            # Events pass the scheduler, which serves all workers: two a second of each part.
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                report_rows(topic, number, metrics)
    guard.check_state(state, (url, span.end))
    report_rows(topic, number, metrics)
    watched = () if watcher is None else (watcher.found(),)
    return start.after(metrics, names.new(model.names), digests.found(), watched), state


def part_metrics(spec: Spec) -> Metrics:
    """Metrics of no rows yet, of one epoch."""
    classifies = spec.model.classifies
    held = Metrics(classifies) if spec.data.holds_out else None
    metrics = Metrics(classifies, held=held)
    metrics.begin(0)
    return metrics


def report_rows(topic: str, number: int, metrics: Metrics) -> None:
    """Log an event for the driver's progress display."""
    event = {"part": number, "rows": metrics.total_rows, "sums": metrics.current.tolist()}
    get_worker().log_event(topic, event)


def merge_states(
    run: str, by: str, start: PartialState, a: PartialState, b: PartialState
) -> PartialState:
    """Merge two states that were learned from the round's start.

    run: of the round whose last merge this is; "" for all others.
    """
    model = model_of(start)
    states = [part.state(model.state.layout) for part in (a, b)]
    whole = merge(model.engine, states, model.state, (a.rows, b.rows), by=by)
    found = merge_about(a, b).holding(whole)
    return round_result(run, start, found) if run else found
