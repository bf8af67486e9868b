"""The loops over rows for a rule that divides by the square root of a sum of z z': AdaGrad in full.

Row j of a learner's matrix holds, in its first half, a row of B, whose rows are orthogonal and
whose sum of b b' is that of z z', so that S = sum of b b' / abs(b) is its symmetric square root;
in its second half a row of a triangular matrix, what has come since and is not in B yet.

The hyper-parameters eta, delta, l1, l2, box, every and update (1: primal-dual) are known here, and
the first two own slots are w and theta. ``update`` is told of every coordinate's new w in place of
x, and step's move begins with g: z = g x. O(d^3) a row that takes z z' in, O(d^2) else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine import loops, nothing
from streamomd.engine.cells import number, put, take
from streamomd.engine.matrix import collect
from streamomd.engine.orthogonal import keep_largest, orthogonalise, product
from streamomd.engine.row import Shape, miss_of, number_of_class, target
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields

make_look = loops.make_look  # no rule that keeps a root looks ahead
NOISE = 1e-13  # what is this small beside what it was made of is rounding
TINY = 1e-250  # the square of a gradient's length that is nothing
TOLERANCE, SWEEPS = 1e-14, 5000  # of coordinate descent


def pend(matrix: Any, k: int, z: Any, parts: Any) -> None:
    """Take z z' into the triangular half; z, used up, is ``parts`` times its rows, written."""
    size = len(z)
    scale = np.abs(z)
    left = 1.0
    for j in range(size):
        parts[j] = 0.0
    for j in range(size):
        if abs(z[j]) <= NOISE * scale[j]:
            continue
        row = matrix[k, j, size:]
        if row[j] == 0.0:
            for i in range(j, size):
                row[i] = z[i]
            parts[j] = left
            return
        length = math.hypot(row[j], z[j])
        cosine, sine = row[j] / length, z[j] / length
        parts[j] = left * sine
        left *= cosine
        for i in range(j, size):
            a, b = row[i], z[i]
            scale[i] = max(scale[i], abs(a))
            row[i] = cosine * a + sine * b
            z[i] = cosine * b - sine * a


def absorb(matrix: Any, k: int, rows: Any, squares: Any, parts: Any, shares: Any) -> bool:
    """Take what is pending into B; whether there was anything.

    shares: what is ``parts`` times the pending rows, in terms of B's, written.
    """
    size = matrix.shape[1]
    count = 0
    for j in range(size):
        square = 0.0
        for i in range(size):
            rows[count, i] = matrix[k, j, i]
            square += rows[count, i] * rows[count, i]
        if square > 0.0:
            squares[count], shares[count] = square, 0.0
            count += 1
    rank = known = count
    for j in range(size):
        if matrix[k, j, size + j] != 0.0:
            for i in range(size):
                rows[count, i] = matrix[k, j, size + i]
                matrix[k, j, size + i] = 0.0
            shares[count] = parts[j]
            if sticks_out(rows, known, squares, count):
                rank += 1
            count += 1
    if count == known:
        return False
    orthogonalise(rows, count, squares, shares)
    rank = min(rank, size)
    keep_largest(rows, count, squares, shares, rank)
    for j in range(size):
        shares[j] = shares[j] if j < rank else 0.0
        for i in range(size):
            matrix[k, j, i] = rows[j, i] if j < rank else 0.0
    return True


def sticks_out(rows: Any, known: int, squares: Any, at: int) -> bool:
    """Whether row ``at`` is more than a combination of the orthogonal rows before ``known``."""
    size = rows.shape[1]
    rest, scale = rows[at].copy(), np.abs(rows[at])
    for j in range(known):
        share = product(rows, j, at) / squares[j]
        for i in range(size):
            rest[i] -= share * rows[j, i]
            scale[i] += abs(share * rows[j, i])
    out = False
    for i in range(size):
        out = out or abs(rest[i]) > NOISE * scale[i]
    return out


def divide(matrix: Any, k: int, r: Any, more: float, whole: bool, out: Any) -> None:
    """out = (S + more I)^-1 r. whole: r is a combination of B's rows, and nothing is left of it.

    What r has of a row may be its rounding alone, and the row as short: that is taken for 0.
    """
    size = len(r)
    rest = r.copy()
    rank = 0
    length = 0.0
    for i in range(size):
        length += r[i] * r[i]
    length = math.sqrt(length)
    for i in range(size):
        out[i] = 0.0
    for j in range(size):
        square = part = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
            part += matrix[k, j, i] * r[i]
        if square == 0.0:
            continue
        rank += 1
        if abs(part) <= NOISE * math.sqrt(square) * length:
            continue
        share = part / square
        divided = share / (more + math.sqrt(square))
        for i in range(size):
            out[i] += divided * matrix[k, j, i]
            rest[i] -= share * matrix[k, j, i]
    if rank < size and more > 0.0 and not whole:
        for i in range(size):
            out[i] += rest[i] / more


def divide_shares(matrix: Any, k: int, shares: Any, more: float, out: Any) -> None:
    """out = (S + more I)^-1 of ``shares`` times B's rows: stable for the shortest of them."""
    size = matrix.shape[1]
    for i in range(size):
        out[i] = 0.0
    for j in range(size):
        square = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
        if square > 0.0:
            divided = shares[j] / (more + math.sqrt(square))
            for i in range(size):
                out[i] += divided * matrix[k, j, i]


def root(matrix: Any, k: int, delta: float, H: Any) -> None:
    """H = delta I + S, written."""
    size = matrix.shape[1]
    H[:] = 0.0
    for j in range(size):
        H[j, j] += delta
        square = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
        if square > 0.0:
            length = math.sqrt(square)
            for i in range(size):
                part = matrix[k, j, i] / length
                for l in range(size):
                    H[i, l] += part * matrix[k, j, l]


def descend(H: Any, c: Any, k1: float, k2: float, box: float, w: Any) -> None:
    """w <- argmin of w'Hw / 2 - c'w + k1 |w|_1 + k2 |w|^2 / 2, abs(w_i) <= box unless that is 0.

    Coordinate by coordinate, until none moves by more than ``TOLERANCE`` of what its equation adds
    up, or ``SWEEPS`` sweeps.
    """
    size = len(w)
    for _ in range(SWEEPS):
        still = True
        for j in range(size):
            curvature = H[j, j] + k2
            if curvature <= 0.0:
                continue
            pull = c[j]
            scale = abs(pull) + k1
            for i in range(size):
                if i != j:
                    pull -= H[j, i] * w[i]
                    scale += abs(H[j, i] * w[i])
            v = max(abs(pull) - k1, 0.0) / curvature
            if box > 0.0:
                v = min(v, box)
            v = v if pull > 0.0 else -v
            still = still and abs(v - w[j]) * curvature <= TOLERANCE * scale
            w[j] = v
        if still:
            break


def move_weights(
    matrix: Any,
    k: int,
    w: Any,
    theta: Any,
    z: Any,
    factor: float,
    shares: Any,
    fresh: bool,
    clock: float,
    h: Any,
    H: Any,
    out: Any,
) -> None:
    """out = the weights of the next row, by ``factor`` times z; theta holds that already.

    fresh: z is ``shares`` times B's rows.
    """
    size = len(w)
    dual, curved = h.update != 0.0, h.l1 > 0.0 or h.box > 0.0
    times = h.eta * clock if dual else h.eta
    if curved:
        root(matrix, k, h.delta, H)
        c = h.eta * theta if dual else -h.eta * factor * z
        for j in range(size):
            out[j] = w[j]
            if not dual:
                for i in range(size):
                    c[j] += H[j, i] * w[i]
        descend(H, c, times * h.l1, times * h.l2, h.box, out)
        return
    more = times * h.l2
    whole = h.every == 1.0
    if dual:
        divide(matrix, k, h.eta * theta, h.delta + more, whole, out)
        return
    if fresh:
        divide_shares(matrix, k, shares, h.delta + more, out)
    else:
        divide(matrix, k, z, h.delta + more, whole, out)
    step = h.eta * factor
    if more > 0.0:
        shrunk = np.zeros(size)
        divide(matrix, k, w, h.delta + more, whole, shrunk)
        for j in range(size):
            out[j] = w[j] - more * shrunk[j] - step * out[j]
    else:
        for j in range(size):
            out[j] = w[j] - step * out[j]


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock, with the arguments of ``matrix.make_learn``.

    matrix: (learners, d, 2 d), written.
    """
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Aim = rule.own, rule.shared, rule.totals, rule.hyper, loss.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule = len(fields(Hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_totals, store_totals = take(n_totals), put(n_totals)
    load_hyper, load_aim = take(n_rule), take(n_hyper - n_rule)
    weight, step, update = rule.weight, rule.step, rule.update
    along = loss.along or nothing.along
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or nothing.couple
    coupled, implicit = loss.coupled, rule.implicit and loss.along is not None
    at_implicit = fields(Hyper).index("implicit") if implicit else 0
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
        w, theta, z, used, out = (
            np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
        )  # fmt: skip
        rows, squares, H = np.zeros((2 * size, size)), np.zeros(2 * size), np.zeros((size, size))
        parts, shares = np.zeros(size), np.zeros(2 * size)
        slopes = np.zeros(L)
        for i in range(len(y)):
            clock += 1.0
            start = i * indptr[0] if dense else indptr[i]
            stop = start + indptr[0] if dense else indptr[i + 1]
            count = collect(indices, values, start, stop, bias, dense, at, x)
            square = 0.0
            for n in range(count):
                square += number(x[n]) * number(x[n])
            for k in range(L):
                h: Any = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                m = 0.0
                for n in range(count):
                    shared = Shared(*load_shared(cells, at[n] * width, 1))
                    own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
                    m += weight(own, shared, whole, clock, h) * x[n]
                margins[i, k] = m
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
                row = Row(p, aim, importance[i], suffered, g, (p, square), ())
                move, whole = step(row, whole, clock, h)
                store_totals(totals, k * n_totals, 1, whole)
                # A gradient whose square would underflow is none: 0/0 = 0.
                learns = move[0] * move[0] * square > TINY
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
                        theta[j] -= z[j]
                    pend(matrix, k, used, parts)
                changed = learns or h.l1 > 0.0 or h.l2 > 0.0
                fresh = False
                if (clock - 1.0) % h.every == 0.0:
                    fresh = absorb(matrix, k, rows, squares, parts, shares)
                    changed = fresh or changed
                if not changed:
                    continue
                move_weights(matrix, k, w, theta, z, 1.0, shares, fresh, clock, h, H, out)
                if implicit and learns and hyper[k * n_hyper + at_implicit] != 0.0:
                    change = 0.0
                    for n in range(count):
                        change += x[n] * (out[at[n]] - w[at[n]])
                    if change != 0.0:
                        factor = along(p, aim, change, goal)
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
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)
        return clock

    return learn


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): as for any rule kept by coordinates; the matrix is not looked at."""
    predict_rows = loops.make_predict(rule, loss, shape)

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
