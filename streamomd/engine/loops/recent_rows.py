"""The loop for rules that store the last rows and a multiplier for each: dual ascent (P2, eq. 31).

Rows are CSR, the bias an entry like others. Stored rows come first; a row's multipliers may change
until k rows have come after it, then its part of theta is final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.core.batch import Batch, SparseBatch, StoredRows
from streamomd.engine.loops import defaults, sparse
from streamomd.engine.loops.full_pass import make_gather
from streamomd.engine.loops.load_store import number, put, take
from streamomd.engine.loops.row import Shape, make_score, target
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields

make_predict, make_look = sparse.make_predict, sparse.make_look
SWEEPS = 1000  # of coordinate ascent over the stored rows, at most


def extended(stored: StoredRows, batch: Batch, bias: int) -> StoredRows:
    """The stored rows, and those of a batch after them."""
    rows = _stored(batch) if isinstance(batch, SparseBatch) else _sparse(batch)
    rows = _with_bias(rows) if bias else rows
    return StoredRows(
        np.concatenate([stored.indptr, stored.indptr[-1] + rows.indptr[1:]]),
        np.concatenate([stored.indices, rows.indices.astype(np.int64)]),
        np.concatenate([stored.values, rows.values.astype(np.float64)]),
        np.concatenate([stored.y, rows.y]),
        np.concatenate([stored.importance, rows.weight]),
        np.concatenate([stored.alpha, np.zeros((len(rows), stored.alpha.shape[1]))]),
    )


def last(stored: StoredRows, rows: int) -> StoredRows:
    """The last rows, as copies."""
    first = max(0, len(stored.y) - rows)
    at = stored.indptr[first]
    return StoredRows(
        stored.indptr[first:] - at,
        stored.indices[at:].copy(),
        stored.values[at:].copy(),
        *(array[first:].copy() for array in stored[3:]),
    )


def _stored(batch: SparseBatch) -> SparseBatch:
    """Without explicit zeros: a zero is absence."""
    nonzero = batch.values != 0.0
    before = np.concatenate([[0], np.cumsum(nonzero)])
    return replace(
        batch,
        indptr=before[batch.indptr].astype(np.int64),
        indices=batch.indices[nonzero],
        values=batch.values[nonzero],
    )


def _sparse(batch: Any) -> SparseBatch:
    rows, columns = np.nonzero(batch.values)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(batch.values, axis=1))])
    return SparseBatch(
        indptr.astype(np.int64),
        columns.astype(np.int32),
        batch.values[rows, columns],
        batch.y,
        batch.weight,
    )


def _with_bias(rows: SparseBatch) -> SparseBatch:
    # Coordinate 0 is the bias, first in each row: all others move up by one.
    starts = rows.indptr[:-1]
    return replace(
        rows,
        indptr=rows.indptr + np.arange(len(rows.indptr), dtype=np.int64),
        indices=np.insert(rows.indices.astype(np.int64) + 1, starts, 0),
        values=np.insert(rows.values, starts, 1.0),
    )


def inner(indptr: Any, indices: Any, values: Any, i: int, j: int) -> float:
    """<x_i, x_j> of two rows whose coordinates ascend."""
    a, b = indptr[i], indptr[j]
    total = 0.0
    while a < indptr[i + 1] and b < indptr[j + 1]:
        if indices[a] < indices[b]:
            a += 1
        elif indices[a] > indices[b]:
            b += 1
        else:
            total += values[a] * values[b]
            a += 1
            b += 1
    return total


def no_share(x: float, h: Any) -> tuple[float, float, float, float]:
    """Returns nothing: the rule's curvature is ||x||^2."""
    return 0.0, 0.0, 0.0, 0.0


def no_curvature(q: Any, h: Any) -> float:
    """Returns 0: see ``no_share``."""
    return 0.0


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock: as ``loops.make_learn``, from row ``first`` on.

    alpha: (rows, learners). ``step`` is one coordinate's step: row.q = (|x|^2 or the curvature of
    a link, its multiplier); its move's a is the multiplier's change. ``pair`` is the exact step for
    two rows, of a rule without a link.
    """
    L, classes, width = shape.learners, shape.classes, shape.width
    Own, Totals = rule.state.own, rule.state.totals
    Hyper: Any = rule.hyper
    shared: Any = rule.state.shared()
    storage: Any = rule.storage
    pair, cap, tolerance = storage.pair, storage.cap, storage.tolerance
    n_own, n_totals, n_rule = len(rule.own_slots), len(rule.total_slots), len(fields(Hyper))
    n_hyper = n_rule + len(fields(loss.hyper))
    load_own, store_own, load_hyper = take(n_own), put(n_own), take(n_rule)
    load_totals, store_totals = take(len(fields(Totals))), put(len(fields(Totals)))
    weight, step, update = rule.weight, rule.step, rule.update
    score = make_score(rule, loss, shape, learns=False)
    bent, masses = storage.curvature is not None, rule.masses
    share = storage.share or no_share
    curvature = storage.curvature or no_curvature
    mass = defaults.of(rule.sums, "mass")
    gather = make_gather(rule, loss, shape)

    def square_of(indptr: Any, indices: Any, values: Any, i: int, h: Any) -> float:
        if not bent:
            return inner(indptr, indices, values, i, i)
        small = middle = large = largest = 0.0
        for n in range(indptr[i], indptr[i + 1]):
            more = share(number(values[n]), h)
            small, middle, large = small + more[0], middle + more[1], large + more[2]
            largest = max(largest, more[3])
        q = (small, middle, large, largest)
        steep: float = curvature(q, h)
        return steep

    def margin_of(
        cells: Any, indptr: Any, indices: Any, values: Any, i: int, k: int, whole: Any, h: Any
    ) -> float:
        total = 0.0
        for n in range(indptr[i], indptr[i + 1]):
            own = Own(*load_own(cells, indices[n] * width + k, L))
            total += weight(own, shared, whole, 0.0, h) * values[n]
        return total

    def move_by(
        cells: Any, indptr: Any, indices: Any, values: Any, i: int, k: int, move: Any, h: Any
    ) -> None:
        for n in range(indptr[i], indptr[i + 1]):
            at = indices[n] * width + k
            own = Own(*load_own(cells, at, L))
            store_own(cells, at, L, update(own, shared, number(values[n]), move, 0.0, h))

    def add_masses(
        cells: Any, indptr: Any, indices: Any, i: int, k: int, whole: Any, h: Any,
        sign: float, grown: Any,
    ) -> None:  # fmt: skip
        """Add what the row's coordinates add to the sums over all coordinates, times sign."""
        for n in range(indptr[i], indptr[i + 1]):
            own = Own(*load_own(cells, indices[n] * width + k, L))
            found = mass(own, shared, whole, 0.0, h)
            for m in range(masses):
                grown[k * masses + m] += sign * found[m]

    def learn(
        cells: Any,
        totals: Any,
        alpha: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        first: int,
        depth: int,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
    ) -> float:
        losses, slopes, grown = np.zeros(L), np.zeros(L), np.zeros(L * masses)
        for i in range(first, len(y)):
            clock += 1.0
            low = max(0, i - depth + 1)
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                p = margin_of(cells, indptr, indices, values, i, k, whole, h)
                margins[i - first, k] = p
            score(margins, i - first, y[i], importance[i], hyper, sums, losses, slopes)
            if importance[i] == 0.0:  # a row of no importance moves nothing
                continue
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                if depth == 2 and i > 0 and not bent:
                    aims = (target(y[i - 1], k, classes, L), target(y[i], k, classes, L))
                    # Signed by the targets, as multipliers are.
                    cross = aims[0] * aims[1] * inner(indptr, indices, values, i - 1, i)
                    old = Row(
                        margin_of(cells, indptr, indices, values, i - 1, k, whole, h),
                        aims[0],
                        importance[i - 1],
                        0.0,
                        0.0,
                        (inner(indptr, indices, values, i - 1, i - 1), alpha[i - 1, k]),
                        (),
                    )
                    new = Row(
                        margins[i - first, k],
                        aims[1],
                        importance[i],
                        0.0,
                        0.0,
                        (inner(indptr, indices, values, i, i), alpha[i, k]),
                        (),
                    )
                    actives, moves, whole = pair(old, new, cross, whole, h)
                    for n in range(2):
                        if actives[n]:
                            alpha[i - 1 + n, k] += moves[n][0] * aims[n]
                            move_by(cells, indptr, indices, values, i - 1 + n, k, moves[n], h)
                else:
                    for _ in range(SWEEPS):
                        largest = 0.0
                        # From the newest row on, whose multiplier is still 0.
                        for j in range(i, low - 1, -1):
                            aim = target(y[j], k, classes, L)
                            p = margin_of(cells, indptr, indices, values, j, k, whole, h)
                            square = square_of(indptr, indices, values, j, h)
                            q = (number(square), number(alpha[j, k]))
                            row = Row(
                                number(p), number(aim), number(importance[j]), 0.0, 0.0, q, ()
                            )
                            active, move, whole = step(row, whole, clock, h)
                            if active:
                                alpha[j, k] += move[0] * aim
                                if masses:
                                    add_masses(cells, indptr, indices, j, k, whole, h, -1.0, grown)
                                move_by(cells, indptr, indices, values, j, k, move, h)
                                if masses:
                                    add_masses(cells, indptr, indices, j, k, whole, h, 1.0, grown)
                                    store_totals(totals, k * n_totals, 1, whole)
                                    gather(cells, totals, hyper, clock, k, grown, True)
                                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                                # Relative to the most that a multiplier may be.
                                largest = max(largest, abs(move[0]) / cap(importance[j], h))
                        # One row alone is solved exactly by its first step, unless a link bends it.
                        if (low == i and not bent) or largest <= tolerance(h):
                            break
                store_totals(totals, k * n_totals, 1, whole)
        return clock

    return learn
