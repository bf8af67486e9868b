"""Learners side by side in one state, and some of them in a state of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.state import Layout, State, start_cells

BLOCK = 1 << 14  # coordinates copied at a time, so that they stay in the cache


def join_states(states: Sequence[State], layout: Layout) -> State:
    """The numbers of several states side by side; shared slots are those of all."""
    totals = np.concatenate([state.totals for state in states])
    first = states[0]
    cells = join_cells([(state.layout, state.cells) for state in states], layout)
    return State(layout, cells, totals, first.clock, means=first.means.copy())


def extract_learner(state: State, k: int) -> State:
    """Learner k's numbers, of several side by side, in a state of its own."""
    layout = replace(state.layout, learners=1)
    cells = extract_cells(state, k, layout)
    return State(
        layout, cells, state.totals[k : k + 1].copy(), state.clock, means=state.means.copy()
    )


def join_cells(parts: Sequence[tuple[Layout, NDArray[Any]]], layout: Layout) -> NDArray[Any]:
    """Cells of all learners, side by side, from those of consecutive ones."""
    made = start_cells(layout)
    whole, first = made.reshape(layout.size, layout.width), 0
    for of, cells in parts:
        some = cells.reshape(of.size, of.width)
        pairs = list(_columns(of, layout, first))
        for low in range(0, layout.size, BLOCK):
            for there, here in pairs:
                whole[low : low + BLOCK, here] = some[low : low + BLOCK, there]
        first += of.learners
    return made


def extract_cells(state: State, first: int, layout: Layout) -> NDArray[Any]:
    """Cells of the learners from ``first`` on, as many as the layout has."""
    made = start_cells(layout)
    some, pairs = (
        made.reshape(layout.size, layout.width),
        list(_columns(layout, state.layout, first)),
    )
    zeros = not layout.starts.any()
    for low in range(0, layout.size, BLOCK):
        block = state.table[low : low + BLOCK]
        # Pages that no row has touched stay unallocated. -0.0 counts as a value here.
        if zeros and not block.reshape(-1).view(np.uint8).any():
            continue
        for here, there in pairs:
            some[low : low + BLOCK, here] = block[:, there]
    return made


def _columns(some: Layout, whole: Layout, first: int) -> Iterator[tuple[slice, slice]]:
    """Each slot's cells in a layout of some learners, and the same cells in that of all."""
    shared = len(whole.rule.shared_slots)
    for at, ((_, here), (_, there)) in enumerate(zip(some.columns(), whole.columns(), strict=True)):
        own = slice(there.start + first, there.start + first + some.learners)
        yield here, there if at < shared else own
