"""The loops over rows for rules that store a matrix A for each learner: the second-order learners.

What is stored is start_scale * A^-1 = U D U', U with ones on its diagonal and zeros below it: row j
of a learner's matrix holds U_ij for i < j, and D_j at j. One observation moves it by Bierman's
update, in which D is only multiplied by numbers between 0 and 1: A^-1 stays symmetric and positive
whatever the features' scales, and needs no correction. ln det(A / start_scale) is - sum of ln D.

O(d * non-zeros) for a prediction, O(d^2) for a row that is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import defaults, sparse
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import put, take
from streamomd.engine.loops.row import (
    Shape,
    entry,
    is_implicit,
    make_decide_row,
    make_score,
    move_numbers,
    numbers_of,
    span,
)
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

STEPS = 100  # far more than are ever needed


def contract_into_ball(matrix: Any, k: int, w: Any, scale: float, radius: float) -> bool:
    """w <- argmin over abs(u) <= radius of (u - w)' P^-1 (u - w); whether it was outside.

    P = scale * U D U' of learner k, stored as in ``loops.matrix``. It is (I + mu P)^-1 w, whose
    inverse length is a concave function of mu: Newton's steps from mu = 0 rise to the root and
    never pass it. O(d^3) a step.
    """
    if product(w, w) <= radius * radius:
        return False
    size = len(w)
    P, lower, u, z = expand(matrix, k, scale), np.zeros((size, size)), w.copy(), np.zeros(size)
    mu = 0.0
    for _ in range(STEPS):
        factor(P, mu, lower)
        solve(lower, w, u)
        length = math.sqrt(product(u, u))
        solve(lower, u, z)
        fall = 0.0  # of the length, squared, over 2
        for i in range(size):
            fall += u[i] * product(P[i], z)
        gap = length / radius - 1.0
        # Written so that NaN ends it, too.
        if not gap > 1e-15 or not fall > 0.0:
            break
        after = mu + gap * length * length / fall
        if not mu < after < 1e300:
            break
        mu = after
    for i in range(size):
        w[i] = u[i]
    return True


def product(a: Any, b: Any) -> float:
    """The inner product."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def expand(matrix: Any, k: int, scale: float) -> Any:
    """scale * U D U' as a full matrix."""
    size = matrix.shape[1]
    P, column = np.zeros((size, size)), np.zeros(size)
    for j in range(size):
        D = scale * matrix[k, j, j]
        for i in range(j):
            column[i] = matrix[k, j, i]
        column[j] = 1.0
        for i in range(j + 1):
            for l in range(j + 1):
                P[i, l] += column[i] * D * column[l]
    return P


def factor(P: Any, mu: float, lower: Any) -> None:
    """The Cholesky factor of I + mu P, written."""
    for i in range(len(P)):
        for j in range(i + 1):
            total = mu * P[i, j]
            for l in range(j):
                total -= lower[i, l] * lower[j, l]
            if i == j:
                lower[i, i] = math.sqrt(1.0 + total)
            else:
                lower[i, j] = total / lower[j, j]


def solve(lower: Any, b: Any, x: Any) -> None:
    """x with L L' x = b, written."""
    size = len(b)
    for i in range(size):
        total = b[i]
        for j in range(i):
            total -= lower[i, j] * x[j]
        x[i] = total / lower[i, i]
    for i in range(size - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, size):
            total -= lower[j, i] * x[j]
        x[i] = total / lower[i, i]


make_look = sparse.make_look  # no rule that stores a matrix looks ahead


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
        # Coordinates of a row ascend: one walk over them for all columns.
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
        # A direction that the row does not reach: nothing of it changes.
        if fj == 0.0:
            continue
        gj = matrix[k, j, j] * fj
        before = alpha
        alpha += c * (fj * gj)
        shift = c * fj / before
        column = matrix[k, j]
        for i in range(j):
            u = column[i]
            # The old entry is still needed in the next line.
            column[i] = u - v[i] * shift
            v[i] += u * gj
        v[j] = gj
        # A factor between 0 and 1: D stays positive whatever is rounded.
        matrix[k, j, j] *= before / alpha


def make_margin(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """margin_of(cells, at, x, count, k, whole, clock, h): <w, x> of learner k, over what
    ``collect`` wrote."""
    L, width = shape.learners, shape.width
    Own, Shared = rule.state.own, rule.state.shared
    n_shared, n_own, weight = len(rule.shared_slots), len(rule.own_slots), rule.weight
    load_own, load_shared = take(n_own), take(n_shared)

    def margin_of(
        cells: Any, at: Any, x: Any, count: int, k: int, whole: Any, clock: float, h: Any
    ) -> float:
        total = 0.0
        for n in range(count):
            shared = Shared(*load_shared(cells, at[n] * width, 1))
            own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
            total += weight(own, shared, whole, clock, h) * x[n]
        return total

    return margin_of


def change(context: Any, row: Any, move: Any, whole: Any, clock: float, h: Any, k: int) -> Any:
    """By how much w <- w + s v moves the margin: s chi."""
    return move[0] * row.r[1]


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock, with the arguments of ``sparse.make_learn`` and, after totals, matrix.

    matrix: (learners, d, d), written.
    """
    L, _, width, bias, dense = shape
    Own, Shared, Totals = rule.state.own, rule.state.shared, rule.state.totals
    Hyper, Move = rule.hyper, rule.state.move
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_totals, load_hyper = take(n_totals), take(n_rule)
    n_move, numbers = move_numbers(rule), numbers_of(rule, L)
    load_move, update = take(n_move - 1), rule.update
    foresee, foresees = of(rule.storage, "foresee"), has(rule.storage, "foresee")
    start_scale = of(rule.storage, "start_scale")
    bounded = rule.constraint is not None
    outside, radius = of(rule.constraint, "outside"), of(rule.constraint, "radius")
    slot = [own.name for own in rule.own_slots].index(rule.state.weight) if bounded else 0
    at_w = n_shared + slot * L  # the cell of learner 0's weight
    margin_of = make_margin(rule, loss, shape)
    by = change if is_implicit(rule, loss) else defaults.change
    decide_row = make_decide_row(rule, loss, shape, by)

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
        # Once for all rows of a batch.
        f, v, w = np.zeros((L, size)), np.zeros(size), np.zeros(size)
        found, moves = np.zeros(numbers), np.zeros(L * n_move)
        losses, slopes = np.zeros(L), np.zeros(L)
        for i in range(len(y)):
            clock += 1.0
            start, entries = span(indptr, i, bias, dense)
            count = collect(indices, values, start, entries, bias, dense, at, x)
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                m = margin_of(cells, at, x, count, k, whole, clock, h)
                chi = look(matrix, k, at, x, count, f) / start_scale(h)
                # Some rules predict with the row already in A.
                found[k] = foresee(m, chi, h) if foresees else m
                found[L + 2 * k], found[L + 2 * k + 1] = m, chi
            active = decide_row(
                totals, sums, hyper, clock, found, 0, i, y, importance, losses, slopes,
                moves, 0, margins, (),
            )  # fmt: skip
            if not active:
                continue
            for k in range(L):
                if moves[k * n_move] == 0.0:
                    continue
                move = Move(*load_move(moves, k * n_move + 1, 1))
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                scale = 1.0 / start_scale(h)
                # Before the weights: their step is along v, the matrix of before times the row.
                absorb(matrix, k, f, move[1] * scale, v)
                for j in range(size):
                    if v[j] != 0.0 and move[0] != 0.0:
                        shared = Shared(*load_shared(cells, j * width, 1))
                        own = Own(*load_own(cells, j * width + n_shared + k, L))
                        own = update(own, shared, v[j] * scale, move, clock, h)
                        store_own(cells, j * width + n_shared + k, L, own)
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                if bounded and outside(whole, clock, h):
                    for j in range(size):
                        w[j] = cells[j * width + at_w + k]
                    if contract_into_ball(matrix, k, w, scale, radius(h)):
                        for j in range(size):
                            cells[j * width + at_w + k] = w[j]
        return clock

    return learn


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): predicts each row and adds to sums; learns nothing. Arguments as ``learn``'s."""
    L, _, width, bias, dense = shape
    Totals, Hyper, n_totals = rule.state.totals, rule.hyper, len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_totals, load_hyper = take(n_totals), take(n_rule)
    foresee, foresees = of(rule.storage, "foresee"), has(rule.storage, "foresee")
    start_scale = of(rule.storage, "start_scale")
    margin_of = make_margin(rule, loss, shape)
    score = make_score(rule, loss, shape, learns=False)

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
        f, losses, slopes = np.zeros((L, size)), np.zeros(L), np.zeros(L)
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            count = collect(indices, values, start, entries, bias, dense, at, x)
            for k in range(L):
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                m = margin_of(cells, at, x, count, k, whole, clock, h)
                if foresees:
                    chi = look(matrix, k, at, x, count, f) / start_scale(h)
                    m = foresee(m, chi, h)
                margins[i, k] = m
            score(margins, i, y[i], importance[i], hyper, sums, losses, slopes)

    return predict
