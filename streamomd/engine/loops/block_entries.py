"""The sparse coordinates of a row: read from their cells into arrays, learned there, written back.

``lanes``: (5 + 6 learners, entries), padded to whole ``LANES`` by values of 0. Rows X, N, Q: a
value, and n and q of its coordinate with this row; U: x outside the block, 0 inside;
UNIT: x / sqrt(q). Then each
learner has rows W and S (B's weight and curvature outside the block), STEP (by what a unit of B's
step moves w), G, H and PULL (G's, and by what a unit of its step moves g). Loops over such rows
take several coordinates in an instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.block_row import dot, padded
from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.load_store import inlined, number, put, take
from streamomd.engine.loops.rebase import DIAGONAL, ROWS
from streamomd.engine.loops.reference import S as SCALE
from streamomd.engine.loops.row import FAR, Shape
from streamomd.rules.common.standardized import Shared, grown, outweighs, precision, see, squash
from streamomd.rules.contract import Rule

X, N, Q, U, UNIT = 0, 1, 2, 3, 4
W, S, STEP, G, H, PULL = 5, 6, 7, 8, 9, 10
"""Rows of learner 0; those of learner k are k ``EACH`` further."""
EACH = 6
AHEAD = 16
"""Non-zeros from one read to the one whose cells are prefetched."""


def rows(learners: int) -> int:
    """Rows of ``lanes``."""
    return W + EACH * learners


def first_cells(rule: Rule, learners: int) -> tuple[int, ...]:
    """Places of the slots w, S, g, H from a coordinate's first cell on; 0 of those it lacks."""
    slots, shared = [slot.name for slot in rule.own_slots], len(rule.shared_slots)
    return tuple(
        shared + learners * slots.index(name) if name in slots else 0
        for name in ("w", "S", "g", "H")
    )


def make_read(shape: Shape) -> Callable[..., int]:
    """read(…) -> entries: a row's numeric columns are written to x, of its other values the first
    cells to ``at`` and the values to ``lanes``."""
    width, dense = shape.width, shape.dense

    def read_dense(
        cells: Any, indptr: Any, indices: Any, values: Any, i: int, p: int, x: Any, at: Any,
        lanes: Any,
    ) -> int:  # fmt: skip
        columns, count = indptr[0] & FAR, 0
        start = (i * columns) & FAR
        x[0] = 1.0
        for j in range(p):
            x[j + 1] = number(values[start + j])
        for j in range(p, columns):
            value = number(values[start + j])
            if value != 0.0:
                at[count], lanes[X, count] = (j + 1) * width, value
                count += 1
        return count

    def read_sparse(
        cells: Any, indptr: Any, indices: Any, values: Any, i: int, p: int, x: Any, at: Any,
        lanes: Any,
    ) -> int:  # fmt: skip
        count, stored = 0, len(indices)
        for j in range(padded(p + 1)):
            x[j] = 0.0
        x[0] = 1.0
        for n in range(indptr[i] & FAR, indptr[i + 1] & FAR):
            if n + AHEAD < stored:
                prefetch(cells, (indices[n + AHEAD] + 1) * width, width)
            j, value = indices[n] + 1, number(values[n])
            if j <= p:
                x[j] = value
            elif value != 0.0:
                at[count], lanes[X, count] = j * width, value
                count += 1
        return count

    return inlined(read_dense if dense else read_sparse)


def make_gather(rule: Rule, shape: Shape) -> Callable[..., int]:
    """gather(…) -> coordinates of the block in use: a row's entries are counted and read.

    at: the first cell of each entry's coordinate; row X of ``lanes`` has its value.
    """
    L, width = shape.learners, shape.width
    n_shared = len(rule.shared_slots)
    load_shared, store_shared = take(n_shared), put(n_shared)
    storage: Any = rule.storage
    second, first = storage.second, storage.first
    w_, S_, g_, H_ = first_cells(rule, L)

    @inlined
    def gather(
        cells: Any, reference: Any, table: Any, P: Any, places: Any, at: Any, lanes: Any,
        count: int, size: int, z: Any, r: Any, lam: float, importance: float, learns: bool,
    ) -> int:  # fmt: skip
        for n in range(count & FAR):
            cell, x = at[n] & FAR, lanes[X, n]
            shared = Shared(*load_shared(cells, cell, 1))
            if learns:
                new = shared.n == 0.0
                if first and outweighs(shared, x, importance):
                    by = squash(shared, x, importance)
                    for k in range(L):
                        cells[cell + g_ + k] = number(cells[cell + g_ + k]) * by
                shared = see(shared, x, importance)
                if second and new and size < len(places):
                    shared = Shared(shared.n, shared.q, float(size))
                    places[size] = cell // width
                    open_place(reference, table, P, r, size, abs(x), lam)
                    size += 1
                store_shared(cells, cell, 1, shared)
                shared = Shared(*load_shared(cells, cell, 1))
            lanes[N, n], lanes[Q, n] = shared.n, shared.q
            place = int(shared.place) & FAR
            lanes[U, n] = x if place == 0 else 0.0
            z[place] = x * r[place]  # without a branch: of place 0, the bias, it is set right below
            for k in range(L):
                of_k = k * EACH
                if second:
                    lanes[W + of_k, n] = number(cells[cell + w_ + k])
                    lanes[S + of_k, n] = number(cells[cell + S_ + k])
                if first:
                    lanes[G + of_k, n] = number(cells[cell + g_ + k])
                    lanes[H + of_k, n] = number(cells[cell + H_ + k])
        for n in range(count, padded(count)):
            lanes[X, n] = lanes[U, n] = 0.0
        z[0] = 1.0
        return size

    return gather


def make_store(rule: Rule, shape: Shape) -> Callable[..., None]:
    """store(…): own slots of a row's coordinates move by the steps of those that learn.

    B: w += s x / D, S += a x^2, a in the unit of S. In later passes the prior, ``prior`` q, pulls w
    to 0, a bit at each row that holds the coordinate; else they would end at weights without a
    prior. decay: n times the share of it that pulls at this row, see ``pull_of_pass``. G: g += s_G
    x / sqrt(q H). What a row holds twice moves twice.
    """
    L = shape.learners
    storage: Any = rule.storage
    second, first = storage.second, storage.first
    w_, S_, g_, H_ = first_cells(rule, L)

    @inlined
    def store(
        cells: Any, at: Any, lanes: Any, count: int, s: Any, a: Any, decay: float, prior: float,
        slopes: Any, s_G: Any, importance: float, learns_B: bool, learns_G: bool,
    ) -> None:  # fmt: skip
        for n in range(count & FAR):
            cell = at[n] & FAR
            for k in range(L):
                of_k = k * EACH
                if second and learns_B:
                    x, w = lanes[U, n], number(cells[cell + w_ + k])
                    step = lanes[STEP + of_k, n]
                    if decay > 0.0 and x != 0.0:
                        share = min(decay / lanes[N, n], 1.0)
                        w -= w * share * (prior * lanes[Q, n]) * (step / x)
                    cells[cell + w_ + k] = w + s[k] * step
                    S_k = number(cells[cell + S_ + k])
                    cells[cell + S_ + k] = S_k + a[k] * x * x
                if first and learns_G:
                    g = number(cells[cell + g_ + k]) + s_G[k] * lanes[PULL + of_k, n]
                    cells[cell + g_ + k] = g
                    H_k = number(cells[cell + H_ + k])
                    cells[cell + H_ + k] = grown(H_k, lanes[X, n], slopes[k], importance)

    return store


def open_place(
    reference: Any, table: Any, P: Any, r: Any, place: int, scale: float, lam: float
) -> None:
    """One more coordinate of the block: P_jj = 1 / lam, A and w are 0."""
    reference[SCALE, place] = scale
    r[place] = 1.0 / scale
    for k in range(P.shape[0]):
        P[k, place, place % P.shape[2]] = 1.0 / lam
        table[k * ROWS + DIAGONAL, place] = 1.0 / lam


def lengths(lanes: Any, count: int) -> float:
    """The sum of x^2 / q, and UNIT, x / sqrt(q)."""
    for n in range(count & FAR):
        root = math.sqrt(lanes[Q, n])
        lanes[UNIT, n] = lanes[X, n] / root if root > 0.0 else 0.0
    return dot(lanes, UNIT, lanes, UNIT, count)


def leverage_outside(lanes: Any, of_k: int, count: int, scale: float, prior: float) -> float:
    """B's sum of x^2 / D over coordinates outside the block, and STEP, x / D."""
    for n in range(count & FAR):
        D = precision(lanes[S + of_k, n], lanes[Q, n], scale, prior)
        lanes[STEP + of_k, n] = lanes[U, n] / D if D > 0.0 else 0.0
    return dot(lanes, U, lanes, STEP + of_k, count)


def leaning(lanes: Any, of_k: int, count: int) -> float:
    """B's sum of w x q / D over coordinates outside the block, for steps that are known: by what
    its margin falls where their prior grows by 1. PULL is written to."""
    for n in range(count & FAR):
        lanes[PULL + of_k, n] = lanes[W + of_k, n] * lanes[Q, n]
    return dot(lanes, STEP + of_k, lanes, PULL + of_k, count)


def reach_first(lanes: Any, of_k: int, count: int, slope: float, importance: float) -> float:
    """G's sum of x^2 / sqrt(q H) with this row in H, and PULL, x / sqrt(q H)."""
    for n in range(count & FAR):
        H_n = grown(lanes[H + of_k, n], lanes[X, n], slope, importance)
        root = math.sqrt(H_n)  # sqrt(q H) would overflow
        lanes[PULL + of_k, n] = lanes[UNIT, n] / root if root > 0.0 else 0.0
    return dot(lanes, X, lanes, PULL + of_k, count)
