"""The loops over rows for rules that keep a matrix A for each learner: the second-order learners.

What is stored is start_scale * A^-1 = U D U', U with ones on its diagonal and zeros below it: row j
of a learner's matrix holds U_ij for i < j, and D_j at j. One observation moves it by Bierman's
update, in which D is only multiplied by numbers between 0 and 1: A^-1 stays symmetric and positive
whatever the features' scales, and needs no mending. ln det(A / start_scale) is - sum of ln D.

O(d * non-zeros) for a prediction, O(d^2) for a row that is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.linalg.ball_projection import contract_into_ball
from streamomd.engine.loops import defaults, sparse
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import put, take
from streamomd.engine.loops.row import Shape, entry, miss_of, number_of_class, span, target
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields

make_look = sparse.make_look  # no rule that keeps a matrix looks ahead


def collect(
    indices: Any, values: Any, start: int, entries: int, bias: int, dense: bool, at: Any, x: Any
) -> int:
    """A row's coordinates and values that are not 0 go to ``at`` and ``x``; returns how many."""
    count = 0
    for n in range(entries):
        j, value = entry(indices, values, start, n, bias, dense)
        if value != 0.0:
            at[count], x[count] = j, value
            count += 1
    return count


def look(matrix: Any, k: int, at: Any, x: Any, count: int, f: Any) -> float:
    """f = U'x of learner k, written; returns x'(U D U')x. Four sums side by side, for speed."""
    before = 0  # entries of the row before coordinate j
    chi = 0.0
    for j in range(matrix.shape[1]):
        while before < count and at[before] < j:
            before += 1
        a = b = c = d = 0.0
        whole = before - before % 4
        for n in range(0, whole, 4):
            a += matrix[k, j, at[n]] * x[n]
            b += matrix[k, j, at[n + 1]] * x[n + 1]
            c += matrix[k, j, at[n + 2]] * x[n + 2]
            d += matrix[k, j, at[n + 3]] * x[n + 3]
        for n in range(whole, before):
            a += matrix[k, j, at[n]] * x[n]
        total = (a + b) + (c + d)
        if before < count and at[before] == j:
            total += x[before]
        f[k, j] = total
        chi += total * (matrix[k, j, j] * total)
    return chi


def absorb(matrix: Any, k: int, f: Any, c: float, v: Any) -> None:
    """(U D U')^-1 grows by c x x', f = U'x; v = (U D U') x of before, written."""
    alpha = 1.0
    for j in range(matrix.shape[1]):
        fj = f[k, j]
        v[j] = 0.0
        if fj == 0.0:
            continue
        gj = matrix[k, j, j] * fj
        before = alpha
        alpha += c * (fj * gj)
        shift = c * fj / before
        column = matrix[k, j]
        for i in range(j):
            u = column[i]
            column[i] = u - v[i] * shift
            v[i] += u * gj
        v[j] = gj
        matrix[k, j, j] *= before / alpha


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock, with the arguments of ``loops.make_learn`` and, after totals, matrix.

    matrix: (learners, d, d), written.
    """
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Aim = (
        rule.state.own,
        rule.state.shared,
        rule.state.totals,
        rule.hyper,
        loss.hyper,
    )
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule = len(fields(Hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_own, store_own = take(n_own), put(n_own)
    load_shared = take(n_shared)
    load_totals, store_totals = take(n_totals), put(n_totals)
    load_hyper, load_aim = take(n_rule), take(n_hyper - n_rule)
    weight, step, update = rule.weight, rule.step, rule.update
    foresee, foresees = of(rule.storage, "foresee"), has(rule.storage, "foresee")
    start_scale = of(rule.storage, "start_scale")
    stretch, along = of(rule.row, "stretch"), loss.along or defaults.along
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or defaults.couple
    coupled, implicit = loss.coupled, bool(rule.row.implicit) and loss.along is not None
    at_implicit = fields(Hyper).index(rule.row.implicit) if implicit else 0
    bounded = rule.constraint is not None
    outside = of(rule.constraint, "outside")
    radius = of(rule.constraint, "radius")
    miss = miss_of(shape)

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
        f, v, w = np.zeros((L, size)), np.zeros(size), np.zeros(size)
        seen, chis, slopes = np.zeros(L), np.zeros(L), np.zeros(L)
        for i in range(len(y)):
            clock += 1.0
            start, entries = span(indptr, i, bias, dense)
            count = collect(indices, values, start, entries, bias, dense, at, x)
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                m = 0.0
                for n in range(count):
                    shared = Shared(*load_shared(cells, at[n] * width, 1))
                    own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
                    m += weight(own, shared, whole, clock, h) * x[n]
                chi = look(matrix, k, at, x, count, f) / start_scale(h)
                seen[k], chis[k], margins[i, k] = m, chi, m
                if foresees:
                    margins[i, k] = foresee(m, chi, h)
            row_loss = 0.0
            if coupled:
                row_loss = couple(margins, i, number_of_class(y[i], classes), slopes)
            for k in range(L):
                p, aim = margins[i, k], target(y[i], k, classes, L)
                goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                if coupled:
                    suffered, g = row_loss, slopes[k]
                else:
                    suffered, g = value(p, aim, goal), slope(p, aim, goal)
                    row_loss += suffered
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                row = Row(p, aim, importance[i], suffered, g, (), (seen[k], chis[k]))
                active, move, whole = step(row, whole, clock, h)
                if implicit and active and hyper[k * n_hyper + at_implicit] != 0.0:
                    change = move[0] * chis[k]
                    if change != 0.0:
                        move = stretch(move, along(p, aim, change, goal))
                store_totals(totals, k * n_totals, 1, whole)
                if not active:
                    continue
                scale = 1.0 / start_scale(h)
                absorb(matrix, k, f, move[1] * scale, v)
                for j in range(size):
                    if v[j] != 0.0 and move[0] != 0.0:
                        shared = Shared(*load_shared(cells, j * width, 1))
                        own = Own(*load_own(cells, j * width + n_shared + k, L))
                        own = update(own, shared, v[j] * scale, move, clock, h)
                        store_own(cells, j * width + n_shared + k, L, own)
                if bounded and outside(whole, clock, h):
                    for j in range(size):
                        w[j] = cells[j * width + n_shared + k]
                    if contract_into_ball(matrix, k, w, scale, radius(h)):
                        for j in range(size):
                            cells[j * width + n_shared + k] = w[j]
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)
        return clock

    return learn


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): predicts each row and adds to sums; learns nothing. Arguments as ``learn``'s."""
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Aim = (
        rule.state.own,
        rule.state.shared,
        rule.state.totals,
        rule.hyper,
        loss.hyper,
    )
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_aim = len(fields(Hyper)), len(fields(Aim))
    n_hyper = n_rule + n_aim
    load_own, load_shared, load_totals = take(n_own), take(n_shared), take(n_totals)
    load_hyper, load_aim = take(n_rule), take(n_aim)
    weight, foresee, foresees = (
        rule.weight,
        of(rule.storage, "foresee"),
        has(rule.storage, "foresee"),
    )
    start_scale = of(rule.storage, "start_scale")
    coupled, value, mean = loss.coupled, loss.value, loss.mean
    couple = loss.couple or defaults.couple
    miss = miss_of(shape)

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
        clock += 1.0
        size = len(cells) // width
        at, x = np.zeros(size, dtype=np.int64), np.zeros(size)
        f, slopes = np.zeros((L, size)), np.zeros(L)
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            count = collect(indices, values, start, entries, bias, dense, at, x)
            row_loss = 0.0
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                m = 0.0
                for n in range(count):
                    shared = Shared(*load_shared(cells, at[n] * width, 1))
                    own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
                    m += weight(own, shared, whole, clock, h) * x[n]
                if foresees:
                    chi = look(matrix, k, at, x, count, f) / start_scale(h)
                    m = foresee(m, chi, h)
                margins[i, k] = m
                if not coupled:
                    goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                    row_loss += value(m, target(y[i], k, classes, L), goal)
            if coupled:
                row_loss = couple(margins, i, number_of_class(y[i], classes), slopes)
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return predict
