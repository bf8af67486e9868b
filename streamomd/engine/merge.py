"""Merge states that were trained separately from a common start.

Each slot and total says by its annotation how it merges. "sum": what it has grown by since the
start adds up; "max", "min"; "mean": by the examples each state has learned from, or by what its
slot G has grown by, coordinate by coordinate; "coords": recomputed by the engine. Shared slots and
totals are merged first; every state's own slots are then aligned to the common shared ones and
merged. theta adds up where what divides it does (G, S, A, or the clock of dual averaging), so that
no example counts twice; under a fixed regularizer, where adding would overshoot, it is a mean. Of
rules with a matrix, A = A_0 + what each has added, and the means are taken in the dual: theta = A w
adds up, which for least squares is the solution of all rows. Of those with a root, the sum of z z'
adds up; directions in which it is below rounding are dropped. Learners on standardised inputs:
``merge_block``.

A state's weights are at their mean; where a set moves with the scales (projected NAG), they are
brought back into it after the next row. Merging costs a few passes over the coordinates, and one
new state: they are taken in blocks, and what is aligned are copies of a block. Rules with sums over
all coordinates, which may have to be refreshed first, also cost a copy of each state.

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

from streamomd.core.errors import UsageError
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.merge_block import merge_blocks, merge_cells
from streamomd.engine.state import State, aligned, owner_of
from streamomd.rules.contract import Slot

Floats = NDArray[np.float64]
BY = ("examples", "G")
BLOCK_BYTES = 1 << 20  # of cells, 2^15 coordinates of NAG: they and their copies stay in cache


def merge(
    engine: Engine,
    states: Sequence[State],
    start: State,
    examples: Sequence[int],
    *,
    by: str = "examples",
) -> State:
    """One state of several that began as copies of ``start``; none of them is changed.

    examples: how many each has learned from. by: what weighs means, "examples" or, for rules with a
    slot G, "G". A single state is returned bit-identical. Raises UsageError where a rule's
    states cannot be merged.
    """
    if len(states) != len(examples) or not states or by not in BY:
        raise UsageError(f"expected a number of examples for each state, and by one of {BY}")
    rule = engine.layout.rule
    if len(states) == 1:
        # Not by the formulas below, whose rounding would change it.
        return states[0].copy()
    if rule.storage.kind == "block":
        return merge_blocks(engine, states, start, block_rows(start))
    if rule.storage.kind not in ("coordinates", "matrix", "root"):
        raise UsageError(f"states of rule {rule.name!r} cannot be merged: it stores rows")
    parts = [_normal(engine, state) for state in (start, *states)]
    whole = State.start(start.layout)
    whole.clock = start.clock + sum(state.clock - start.clock for state in states)
    shares = np.array(examples, dtype=np.float64)
    # Parts without a row count alike: they are all at the start.
    shares = shares / shares.sum() if shares.sum() > 0.0 else np.full(len(shares), 1 / len(shares))
    for at, slot in enumerate(rule.total_slots):
        whole.totals[:, at] = _join(slot, [part.totals[:, at] for part in parts], list(shares))
    rows = block_rows(whole)
    for low in range(0, whole.layout.size, rows):
        high = min(low + rows, whole.layout.size)
        block = [part.block(low, high).copy() for part in parts]
        _merge_block(engine, whole.block(low, high), block, shares, by)
    if rule.storage.kind == "matrix":
        _merge_matrices(whole, parts)
    if rule.storage.kind == "root":
        _merge_roots(whole, parts)
    engine.renew(whole)
    return whole


def tree(
    engine: Engine,
    states: Sequence[State],
    start: State,
    examples: Sequence[int],
    *,
    by: str = "examples",
) -> State:
    """Merges two neighbours at a time: bit-identical wherever the inner nodes are computed.

    An odd one at the end moves to the next level.
    """
    nodes = list(zip(states, examples, strict=True))
    if len(nodes) == 1:
        return nodes[0][0].copy()
    while len(nodes) > 1:
        above = []
        for (a, n), (b, m) in zip(nodes[::2], nodes[1::2], strict=False):
            above.append((merge(engine, (a, b), start, (n, m), by=by), n + m))
        # Order stays that of the rows: the same tree on one machine and on many.
        nodes = above + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0][0]


def block_rows(state: State) -> int:
    """Coordinates that are merged in one batch."""
    return max(1, BLOCK_BYTES // (state.layout.width * state.cells.itemsize))


def _normal(engine: Engine, state: State) -> State:
    """The state; where it has sums over all coordinates, a copy with these recomputed and the
    factors common to all coordinates multiplied in.
    """
    if not engine.layout.rule.masses:
        return state
    copy = state.copy()
    engine.renew(copy)
    return copy


def _merge_block(engine: Engine, whole: State, parts: list[State], shares: Floats, by: str) -> None:
    """Slots of some coordinates; the totals of all are merged already. Moves the parts too."""
    rule = engine.layout.rule
    for slot in rule.shared_slots:
        whole.slot(slot.name)[...] = _joined(slot, parts, list(shares))
    # Own slots are relative to the shared ones: before they are added all need the same.
    if rule.align is not None and rule.shared_slots:
        common = np.ascontiguousarray(whole.table[:, : len(rule.shared_slots)])
        for part in parts:
            engine.align(part, common)
    weights = _shares(parts, shares, by)
    for slot in rule.own_slots:
        whole.slot(slot.name)[...] = _joined(slot, parts, weights)
    if rule.state.rejoin is not None:
        mean = np.zeros((whole.layout.size, whole.layout.learners))
        for part, share in zip(parts[1:], weights, strict=True):
            # The weights, which are what is wanted at the mean: the slots are made of them.
            mean += share * engine.weights(part, 0, whole.layout.size)
        engine.rejoin(whole, mean)


def _joined(slot: Slot, parts: list[State], shares: list[Any]) -> Floats:
    return _join(slot, [part.slot(slot.name) for part in parts], shares)


def _join(slot: Slot, parts: list[NDArray[Any]], shares: list[Any]) -> Floats:
    """A slot of all states; the first is the start."""
    start, *arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    if slot.merge in ("max", "min"):
        pick = np.maximum if slot.merge == "max" else np.minimum
        most: Floats = pick.reduce(arrays) + 0.0  # -0 becomes 0: of the two, numpy picks the last
        return most
    total = np.zeros(start.shape)
    for array, share in zip(arrays, shares, strict=True):
        total += array - start if slot.merge == "sum" else share * array
    return start + total if slot.merge == "sum" else total


def _shares(parts: list[State], shares: Floats, by: str) -> list[Any]:
    """What each state's own slots count in a mean: a number, or one for each cell."""
    curvature = parts[0].layout.rule.state.curvature
    if by == "examples" or not curvature:
        return list(shares)
    start, *grown = [np.asarray(part.slot(curvature), dtype=np.float64) for part in parts]
    grown = [np.maximum(G - start, 0.0) for G in grown]
    total = sum(grown)  # in turn: numpy's own order depends on the shape
    known = total > 0.0
    of = np.where(known, total, 1.0)
    return [np.where(known, G / of, share) for G, share in zip(grown, shares, strict=True)]


def _merge_matrices(whole: State, parts: list[State]) -> None:
    """A of all, by what each has added; own slots that are means, by the sum of A w."""
    means = [slot.name for slot in whole.layout.rule.own_slots if slot.merge == "mean"]
    for k in range(whole.layout.learners):
        start, *others = [_inverse(part.extra["matrix"][k]) for part in parts]
        # In the dual: inverses do not add up, what each part has seen does.
        A = start + sum(other - start for other in others)
        for name in means:
            w = [np.asarray(part.slot(name)[:, k], dtype=np.float64) for part in parts]
            first, *moved = [a @ v for a, v in zip((start, *others), w, strict=True)]
            theta = first + sum(theta - first for theta in moved)
            whole.slot(name)[:, k] = _solve(A, theta)
        whole.extra["matrix"][k] = _factors(A)


def _merge_roots(whole: State, parts: list[State]) -> None:
    """The sum of z z' by what each has added, its root stored as in ``linalg.matrix_root``."""
    size = whole.layout.size
    for k in range(whole.layout.learners):
        # Rows of the root, and below them those that it does not contain yet.
        halves = [np.vstack(np.hsplit(part.extra["matrix"][k], 2)) for part in parts]
        start, *others = [rows.T @ rows for rows in halves]
        squares, directions = np.linalg.eigh(start + sum(other - start for other in others))
        # Below it an eigenvalue is rounding, whose root would be a direction of its own.
        noise = 16.0 * size * np.finfo(float).eps * squares[-1]
        lengths = np.sqrt(np.where(squares > noise, squares, 0.0))
        whole.extra["matrix"][k, :, :size] = (directions * lengths).T[::-1]
        whole.extra["matrix"][k, :, size:] = 0.0


def _inverse(stored: Floats) -> Floats:
    """(U D U')^-1 of the matrix stored as in ``loops.matrix``."""
    from scipy.linalg import solve_triangular

    upper = np.tril(stored, -1).T + np.eye(len(stored))
    inverse = solve_triangular(upper, np.eye(len(stored)), unit_diagonal=True)
    whole: Floats = inverse.T @ (inverse / np.diagonal(stored)[:, np.newaxis])
    return whole


def _solve(A: Floats, b: Floats) -> Floats:
    from scipy.linalg import cho_solve

    found: Floats = cho_solve((np.linalg.cholesky(A), True), b)
    return found


def _factors(A: Floats) -> Floats:
    """U and D of A^-1 = U D U', stored as in ``loops.matrix``: A = C C', U = D^-1/2 C'^-1."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(A)
    scale = np.diagonal(root)
    lower = solve_triangular(root / scale, np.eye(len(A)), lower=True, unit_diagonal=True)
    stored: Floats = np.tril(lower, -1) + np.diag(1.0 / scale**2)
    return stored


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
        # The allocation itself, whose end can be given back while the state is cut.
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
        """Merges a piece of each state; ``start`` is that of the start."""
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
