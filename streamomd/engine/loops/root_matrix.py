"""The loops over rows for a rule that divides by the square root of a sum of z z': AdaGrad in full.

``roots`` stores and updates the root, ``rooted_step`` moves the weights by it.

The hyper-parameters eta, delta, l1, l2, box, ball, radius, every and update (1: primal-dual) are
known here, and the first two own slots are w and theta. ``update`` gets every coordinate's new w in
place of x, and step's move begins with g: z = g x. O(d^3) a row that takes z z' in, O(d^2) else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.engine.linalg.matrix_root import absorb, move_weights, pend
from streamomd.engine.loops import defaults, sparse
from streamomd.engine.loops.load_store import number, put, take
from streamomd.engine.loops.matrix import collect, make_margin
from streamomd.engine.loops.row import (
    Shape,
    is_implicit,
    is_sweep,
    make_decide_row,
    move_numbers,
    numbers_of,
    span,
    target,
)
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

make_look = sparse.make_look  # no rule that stores a root looks ahead
TINY = 1e-250  # the square of a gradient's length that is nothing


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock, with the arguments of ``matrix.make_learn``.

    matrix: (learners, d, 2 d), written.
    """
    L, classes, width, bias, dense = shape
    Own, Shared, Totals = rule.state.own, rule.state.shared, rule.state.totals
    Hyper, Move, Aim = rule.hyper, rule.state.move, loss.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(Aim))
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_totals, load_hyper = take(n_totals), take(n_rule)
    load_aim, n_move = take(n_hyper - n_rule), move_numbers(rule)
    numbers, load_move, update = numbers_of(rule, L), take(n_move - 1), rule.update
    implicit, along = is_implicit(rule, loss), loss.along or defaults.along
    at_implicit = fields(Hyper).index(rule.row.implicit) if implicit else 0
    goals = 1 if is_sweep(shape, loss.coupled) else L
    margin_of = make_margin(rule, loss, shape)
    # A step is shortened below, when the root has moved: to the loop of a row it is explicit.
    decide_row = make_decide_row(rule, replace(loss, along=None), shape)

    def learn(
        cells: Any,
        totals: Any,
        matrix: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
    ) -> float:
        size = len(cells) // width
        at, x = np.zeros(size, dtype=np.int64), np.zeros(size)
        w, theta, z, used, out = (
            np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
        )  # fmt: skip
        rows, squares, H = np.zeros((2 * size, size)), np.zeros(2 * size), np.zeros((size, size))
        parts, shares = np.zeros(size), np.zeros(2 * size)
        found, moves = np.zeros(numbers), np.zeros(L * n_move)
        losses, slopes = np.zeros(L), np.zeros(L)
        for i in range(len(y)):
            clock += 1.0
            start, entries = span(indptr, i, bias, dense)
            count = collect(indices, values, start, entries, bias, dense, at, x)
            square = 0.0
            for n in range(count):
                square += number(x[n]) * number(x[n])
            found[0] = square
            for k in range(L):
                h: Any = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                found[1 + k] = margin_of(cells, at, x, count, k, whole, clock, h)
            decide_row(
                totals, sums, hyper, clock, found, 0, i, y, importance, losses, slopes,
                moves, 0, margins, (),
            )  # fmt: skip
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                move = Move(*load_move(moves, k * n_move + 1, 1))
                # A gradient whose square would underflow is none: 0/0 = 0.
                learns = moves[k * n_move] != 0.0 and move[0] * move[0] * square > TINY
                for j in range(size):
                    parts[j] = 0.0
                    w[j] = cells[j * width + n_shared + k]
                    theta[j] = cells[j * width + n_shared + L + k]
                    z[j] = 0.0
                if learns:
                    for n in range(count):
                        z[at[n]] = move[0] * x[n]
                    for j in range(size):
                        used[j] = z[j]
                        # Whole: an implicit step gives some of it back below.
                        theta[j] -= z[j]
                    pend(matrix, k, used, parts)
                changed = learns or h.l1 > 0.0 or h.l2 > 0.0
                fresh = False
                # By the clock, so that the rows at which it happens do not depend on batches.
                if (clock - 1.0) % h.every == 0.0:
                    fresh = absorb(matrix, k, rows, squares, parts, shares)
                    changed = fresh or changed
                if not changed:
                    continue
                move_weights(matrix, k, w, theta, z, 1.0, shares, fresh, clock, h, H, out)
                if implicit and learns and hyper[k * n_hyper + at_implicit] != 0.0:
                    change = 0.0
                    for n in range(count):
                        # Only coordinates of the row change its margin.
                        change += x[n] * (out[at[n]] - w[at[n]])
                    if change != 0.0:
                        goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                        aim = target(y[i], k, classes, goals)
                        factor = along(margins[i, k], aim, change, goal)
                        for j in range(size):
                            theta[j] += (1.0 - factor) * z[j]
                        move_weights(
                            matrix, k, w, theta, z, factor, shares, fresh, clock, h, H, out
                        )
                for j in range(size):
                    cells[j * width + n_shared + L + k] = theta[j]
                    shared = Shared(*load_shared(cells, j * width, 1))
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    own = update(own, shared, out[j], move, clock, h)
                    store_own(cells, j * width + n_shared + k, L, own)
        return clock

    return learn


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): as for any rule with state per coordinate; the matrix is not used."""
    predict_rows = sparse.make_predict(rule, loss, shape)

    def predict(
        cells: Any,
        totals: Any,
        matrix: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
    ) -> None:
        predict_rows(
            cells, totals, sums, hyper, clock, indptr, indices, values, y, importance, margins
        )

    return predict
