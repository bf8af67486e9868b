"""Merge states range by range of their coordinates: bit-identical to ``merge`` of the whole states.

A slot of a coordinate merges by the cells of that coordinate and by totals, so ranges can be
merged in different places. Of learners on standardised inputs, the block's arrays are merged with
the cells of the coordinates that it has taken, wherever these are: they are a piece of their own,
the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine import Engine
from streamomd.engine.merge import block_rows, merge
from streamomd.engine.merge_block import merge_blocks, merge_cells
from streamomd.engine.state import Layout, State, aligned, owner_of


def merges_in_ranges(layout: Layout) -> bool:
    """Whether states of a layout can be merged in ranges: no total is a sum over all coordinates,
    and no matrix has all pairs of them."""
    storage = layout.rule.storage.kind
    return storage == "block" or (storage == "coordinates" and not layout.rule.masses)


@dataclass(frozen=True)
class Ranges:
    """How states are cut into pieces. edges: of the ranges of coordinates. front: whether a block
    is a piece of its own, before the ranges."""

    edges: tuple[int, ...]
    front: bool

    @classmethod
    def of(cls, layout: Layout, count: int) -> Ranges:
        """This many ranges, of about the same size."""
        edges = (layout.size * at // count for at in range(count + 1))
        return cls(tuple(edges), layout.rule.storage.kind == "block")

    def __len__(self) -> int:
        """The number of pieces."""
        return len(self.edges) - 1 + self.front

    def is_front(self, number: int) -> bool:
        """Whether this piece is the block's."""
        return self.front and number == 0

    def piece(self, state: State, number: int) -> State:
        """A piece of a state. Ranges are views; cells of the front are copies."""
        if self.is_front(number):
            return _front(state)
        low, high = self.edges[number - self.front :][:2]
        return state.block(low, high)

    def cut(self, state: State) -> list[State]:
        """All pieces of a state, in memory of their own. The state has no cells afterwards.

        From the last range on, the memory of a range is freed when it has been copied: the state
        and its pieces together take little more than the state.
        """
        pieces = [_front(state)] if self.front else []
        layout, bytes_each = state.layout, state.layout.width * state.cells.itemsize
        owner, first = owner_of(state.cells)
        state.cells = state.cells[:0].copy()
        ranges = []
        for low, high in reversed([*pairwise(self.edges)]):
            cells = aligned((high - low) * layout.width, layout.dtype)
            cells.view(np.uint8)[...] = owner[first + low * bytes_each : first + high * bytes_each]
            with suppress(ValueError):  # another array has this memory: it is freed with that
                owner.resize(first + low * bytes_each)
            size = replace(layout, size=high - low, means=())
            ranges.append(State(size, cells, state.totals, state.clock))
        return pieces + ranges[::-1]

    def merge(
        self, engine: Engine, number: int, pieces: Sequence[State], start: State,
        examples: Sequence[int], *, by: str = "examples",
    ) -> State:  # fmt: skip
        """As ``engine.merge.merge``, of a piece of each state; ``start`` is that of the start."""
        if self.is_front(number):
            return _merge_fronts(engine, pieces, start)
        if self.front:
            return merge_cells(engine, pieces, start, block_rows(start))
        return merge(engine, pieces, start, examples, by=by)

    def joined_cells(self, pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """All cells, of the cells of each piece."""
        ranges = pieces[self.front :]
        cells = aligned(sum(map(len, ranges)), ranges[0].dtype.name)
        np.concatenate(ranges, out=cells)
        return cells


def _front(state: State) -> State:
    """The block, with the cells of its coordinates only."""
    used = state.used_places
    cells = np.ascontiguousarray(state.table[state.extra["places"][:used]])
    layout = replace(state.layout, size=used, means=())
    return State(layout, cells.reshape(-1), state.totals, state.clock, state.extra)


def _merge_fronts(engine: Engine, fronts: Sequence[State], start: State) -> State:
    """The cells of the block's coordinates are side by side: there their places are 0, 1, 2, …"""
    places, own = start.extra["places"], np.arange(start.layout.size)
    moved = []
    for front in (start, *fronts):
        found = front.extra["places"].copy()
        same = np.array_equal(found, places)
        found[: len(own)] = own if same else -1  # which ``merge_blocks`` refuses
        extra = {**front.extra, "places": found}
        moved.append(State(front.layout, front.cells, front.totals, front.clock, extra))
    whole = merge_blocks(engine, moved[1:], moved[0], block_rows(start))
    whole.extra["places"] = places.copy()
    return whole
