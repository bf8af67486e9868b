"""The only loops over rows. Made for one rule, loss and shape; compiled by ``engine.fuse``.

Uncompiled they are plain Python, and the compiled ones' oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamomd.engine.cells import ADD, LOAD, STORE, ZERO, number
from streamomd.engine.prefetch import prefetch
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields


class Shape(NamedTuple):
    """What a loop is made for, beside its rule and loss.

    learners: side by side. classes: 1 in regression, else as many as there are. width: cells of a
    coordinate, padding included. bias: 1 if coordinate 0 is one, else 0.
    """

    learners: int
    classes: int
    width: int
    bias: int
    dense: bool


# ns a non-zero at 32, 64, 96, 128, 192 ahead (NAG, rows of 75): 8.0 7.2 7.1 7.1 7.1 at 2^18 float32
# coordinates, 10.9 8.6 10.4 9.3 10.3 at 2^24. Other lengths of row favour now one, now another, by
# as much: what helps is that the rare, far coordinates at the ends of rows are not all asked for
# at once.
AHEAD = 64


def squared_error(margins: Any, i: int, y: float, mean: Any) -> Any:
    """What rmse sums."""
    r = mean(margins[i, 0]) - y
    return r * r


def mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if the sign is wrong; a margin of 0 predicts the first class; NaN is always wrong."""
    if y > 0.0:
        return 0.0 if margins[i, 0] > 0.0 else 1.0
    return 0.0 if margins[i, 0] <= 0.0 else 1.0


def multiclass_mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if another class has a larger margin, or an equal one before it; NaN is always wrong."""
    at = int(y)
    best = margins[i, at]
    for l in range(margins.shape[1]):
        if not (margins[i, l] < best or (l >= at and margins[i, l] == best)):
            return 1.0
    return 0.0


MISS = (squared_error, mistake, multiclass_mistake)


def entry(indices: Any, values: Any, n: int, start: int, bias: int, dense: bool) -> Any:
    """Coordinate and value of entry n of a row; the one before its first is the bias."""
    if n < start:
        return 0, 1.0
    if dense:
        return n - start + bias, number(values[n])
    return indices[n], number(values[n])


def target(y: float, learner: int, classes: int) -> float:
    """What a learner is to predict: y, or in one-against-all whether y is its class."""
    if classes > 2:
        return 1.0 if y == learner else -1.0
    return y


def keep_shared(shared: Any, x: float, clock: float, h: Any) -> Any:
    """``observe`` of a rule without one."""
    return shared, ()


def keep_own(own: Any, old: Any, new: Any, h: Any) -> Any:
    """``align`` of a rule without one."""
    return own


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock: predicts each row, then learns from it.

    cells: (d * width,), a coordinate's shared slots, then its own, slot by slot over the learners.
    totals: (learners * n,). sums: (3,) of importance, loss, and mistakes or squared errors, added
    row by row. hyper: (learners * n,). A sparse batch comes as CSR; a dense one as indptr =
    [columns] and its values row after row. y: targets or class numbers. margins: (rows, learners),
    written.
    """
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Move = rule.own, rule.shared, rule.totals, rule.hyper, rule.move
    n_shared, n_totals = len(rule.shared_slots), len(rule.total_slots)
    n_hyper, n_move = len(fields(Hyper)), len(fields(Move))
    load_own, store_own = LOAD[len(rule.own_slots)], STORE[len(rule.own_slots)]
    load_shared, store_shared = LOAD[n_shared], STORE[n_shared]
    load_totals, store_totals = LOAD[n_totals], STORE[n_totals]
    load_move, store_move = LOAD[n_move], STORE[n_move]
    load_hyper = LOAD[n_hyper]
    add, zero = ADD[rule.sums], ZERO[rule.sums]
    observe, align = rule.observe or keep_shared, rule.align or keep_own
    weight, step, update = rule.weight, rule.step, rule.update
    value, slope, mean = loss.value, loss.slope, loss.mean
    observes, aligns = rule.observe is not None, rule.align is not None
    miss = MISS[min(classes, 3) - 1]
    one = L == 1

    def learn(
        cells: Any,
        totals: Any,
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
        stored = len(indices)
        moves = np.zeros(L * n_move)
        for i in range(len(y)):
            clock += 1.0
            start = i * indptr[0] if dense else indptr[i]
            stop = start + indptr[0] if dense else indptr[i + 1]
            q = zero
            margin = 0.0
            for k in range(L):
                margins[i, k] = 0.0
            for n in range(start - bias, stop):
                j, x = entry(indices, values, n, start, bias, dense)
                if not dense and n + AHEAD < stored:
                    prefetch(cells, indices[n + AHEAD] * width)
                if x == 0.0:
                    continue
                at = j * width
                old = load_shared(Shared, cells, at, 1)
                shared = old
                moved = False
                if observes:
                    shared, dq = observe(old, x, clock, load_hyper(Hyper, hyper, 0, 1))
                    q = add(q, dq)
                    moved = shared != old
                    if moved:
                        store_shared(cells, at, 1, shared)
                for k in range(L):
                    h = load_hyper(Hyper, hyper, k * n_hyper, 1)
                    own = load_own(Own, cells, at + n_shared + k, L)
                    if aligns and moved:
                        own = align(own, old, shared, h)
                        store_own(cells, at + n_shared + k, L, own)
                    whole = load_totals(Totals, totals, k * n_totals, 1)
                    part = weight(own, shared, whole, clock, h) * x
                    if one:  # a register instead of a cell: 2 ns a non-zero
                        margin += part
                    else:
                        margins[i, k] += part
            if one:
                margins[i, 0] = margin
            active = False
            row_loss = 0.0
            for k in range(L):
                p, aim = margins[i, k], target(y[i], k, classes)
                suffered = value(p, aim)
                row_loss += suffered
                row = Row(p, aim, importance[i], suffered, slope(p, aim), q)
                h = load_hyper(Hyper, hyper, k * n_hyper, 1)
                whole = load_totals(Totals, totals, k * n_totals, 1)
                move, whole = step(row, whole, clock, h)
                store_totals(totals, k * n_totals, 1, whole)
                store_move(moves, k * n_move, 1, move)
                active = active or move[0] != 0.0
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)
            if not active:
                continue
            for n in range(start - bias, stop):
                j, x = entry(indices, values, n, start, bias, dense)
                if x == 0.0:
                    continue
                at = j * width
                shared = load_shared(Shared, cells, at, 1)
                for k in range(L):
                    move = load_move(Move, moves, k * n_move, 1)
                    if move[0] != 0.0:
                        h = load_hyper(Hyper, hyper, k * n_hyper, 1)
                        own = load_own(Own, cells, at + n_shared + k, L)
                        own = update(own, shared, x, move, clock, h)
                        store_own(cells, at + n_shared + k, L, own)
        return clock

    return learn


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): predicts each row and adds to sums; learns nothing. Arguments as ``learn``'s."""
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper = rule.own, rule.shared, rule.totals, rule.hyper
    n_shared, n_totals, n_hyper = len(rule.shared_slots), len(rule.total_slots), len(fields(Hyper))
    load_own, load_shared = LOAD[len(rule.own_slots)], LOAD[n_shared]
    load_totals, load_hyper = LOAD[n_totals], LOAD[n_hyper]
    weight, value, mean = rule.weight, loss.value, loss.mean
    miss = MISS[min(classes, 3) - 1]

    def predict(
        cells: Any,
        totals: Any,
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
        clock += 1.0
        for i in range(len(y)):
            start = i * indptr[0] if dense else indptr[i]
            stop = start + indptr[0] if dense else indptr[i + 1]
            for k in range(L):
                margins[i, k] = 0.0
            for n in range(start - bias, stop):
                j, x = entry(indices, values, n, start, bias, dense)
                if x == 0.0:
                    continue
                shared = load_shared(Shared, cells, j * width, 1)
                for k in range(L):
                    h = load_hyper(Hyper, hyper, k * n_hyper, 1)
                    own = load_own(Own, cells, j * width + n_shared + k, L)
                    whole = load_totals(Totals, totals, k * n_totals, 1)
                    margins[i, k] += weight(own, shared, whole, clock, h) * x
            row_loss = 0.0
            for k in range(L):
                row_loss += value(margins[i, k], target(y[i], k, classes))
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return predict
