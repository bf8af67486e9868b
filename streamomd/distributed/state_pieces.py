"""Large states of averaged mode are merged in pieces: ranges of their coordinates.

A part's state is cut where it was learned. Each range is merged on one of the workers that have it,
so that all workers merge, each sends about half of a state at the first level, a quarter at the
next, and none has more of all that is merged than its own part. The pieces of the result are joined
where the next round starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.distributed.round_state import (
    PartialState,
    add_start_names,
    merge_about,
    model_of,
    register_result,
)
from streamomd.engine.merge_ranges import Ranges, merges_in_ranges
from streamomd.engine.state import Layout, State

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
