"""The first rows of a stream once more: w of the block, solved for all of them.

Early rows enter A with the curvature of poor weights, and steps along it stay too short: margins of
classes that are nearly separable are too small for thousands of rows, and so are standard errors.
So log losses store the rows up to ``LAST``, and solve the block for all of them at the rows of
``is_due``. Coordinates outside of the block are an offset.

Classes take turns, each with the margins of the others as they are, and step along d = P g, P of
the weights before the solve. A step cannot overshoot: a log loss's third derivative is at most
its second, so along d

    l(w + b d) <= l(w) - b g'd + d'H d (exp(b r) - 1 - b r) / r^2,    r = max abs(z'd),

which is least at b = log(1 + r g'd / d'H d) / r (Bach 2010, self-concordant analysis for logistic
regression, Proposition 1).
"""

from __future__ import annotations

import math
from typing import Any

from streamomd.engine.loops.block_row import inner, multiply
from streamomd.engine.loops.load_store import number
from streamomd.engine.loops.rebase import (
    ALL_A_,
    LAM_,
    LAM_BIAS_,
    RECENT_A_,
    RECENT_N_,
    RECENT_T_,
    SCALE_,
    SHARED,
    W,
    resolve,
    settle,
    used,
)
from streamomd.engine.loops.reference import C, S
from streamomd.engine.loops.row import number_of_class, target
from streamomd.losses.softmax import add_curvatures

LEAST, LAST = 32, 16_384
"""Rows of the first and of the last solve. On made streams of 5 columns a last solve after 1,024
rows leaves intervals too narrow (coverage .90 of .95 where margins have a deviation of 8); of
tables of several classes one after 2,048 leaves up to 8 % of what they can explain."""
NEARBY = 32
"""Rows, a multiple of four, whose z are read for each row of A in turn."""
SWEEPS, NEAR = 16, 1e-4
"""A solve ends where no margin moves by ``NEAR``. It starts from the weights of the row before."""


def is_due(t: float) -> bool:
    """32, 48, 64, 96, 128, …: twice an octave."""
    if t < LEAST or t > LAST:
        return False
    octave = 1.0 * LEAST
    while 2.0 * octave <= t:
        octave *= 2.0
    return t == octave or t == 1.5 * octave


def solve(
    cells: Any, totals: Any, reference: Any, vectors: Any, A: Any, P: Any, places: Any, kind: Any,
    coupled: bool, classes: int, indptr: Any, indices: Any, values: Any, y: Any, importance: Any,
    z: Any, margins: Any, odds: Any, square: Any, work: Any,
) -> None:  # fmt: skip
    """w, A and P of the block. z: (rows, block), margins, odds: (rows, learners), square: (2,
    block, block), work: (5, rows or block): scratch."""
    L, size = vectors.shape[0], used(places, kind.p)
    lam, lam_bias, each = totals[LAM_], totals[LAM_BIAS_], len(totals) // L
    lay_out(cells, reference, vectors, places, kind, size, indptr, indices, values, z, margins)
    g, d, a, off, along_d = work[0], work[1], work[2], work[3], work[4]
    exponentials(margins, odds, coupled)
    for k in range(L):
        slopes(margins, odds, y, importance, k, coupled, classes, a, off)
        absorb_all(A[k], z, a, size)
        resolve(A[k], P[k], 0, size, lam, lam_bias, square)
    # Classes in turn: each step sees the margins that the others have left.
    for _ in range(SWEEPS):
        moved = 0.0
        exponentials(margins, odds, coupled)
        for k in range(L):
            slopes(margins, odds, y, importance, k, coupled, classes, a, off)
            w = vectors[k, W]
            moved = max(moved, step(P[k], w, z, a, off, size, lam, lam_bias, g, d, along_d))
            for i in range(len(y)):
                margins[i, k] += along_d[i]
                if coupled:
                    odds[i, k] *= math.exp(along_d[i])
        if moved < NEAR:
            break
    exponentials(margins, odds, coupled)
    if coupled:
        curvatures(odds, importance, d)
    for k in range(L):
        if coupled:
            for i in range(len(y)):
                a[i] = odds[i, k]
        else:
            slopes(margins, odds, y, importance, k, coupled, classes, a, off)
        # A at the weights found: that before the sweeps was only for their steps.
        found = absorb_all(A[k], z, a, size)
        resolve(A[k], P[k], 0, size, lam, lam_bias, square)
        before = totals[k * each + ALL_A_]
        if before > 0.0:
            # Overstated outside of the block, too, where S is scaled: its rows are not stored.
            totals[k * each + SCALE_] *= min(max(found / before, 0.1), 1.0)
        totals[k * each + ALL_A_] = found
        settle(A[k], vectors[k], size, lam, lam_bias)
        totals[k * each + RECENT_A_] = 0.0
    # A is of the weights of now: the next recalibration begins here.
    totals[RECENT_N_] = 0.0
    totals[RECENT_T_] = 0.0


def lay_out(
    cells: Any, reference: Any, vectors: Any, places: Any, kind: Any, size: int, indptr: Any,
    indices: Any, values: Any, z: Any, margins: Any,
) -> None:  # fmt: skip
    """z and B's margins of the stored rows, in the reference of now."""
    p, L = kind.p, vectors.shape[0]
    for i in range(len(indptr) - 1):
        z[i, 0] = 1.0
        for j in range(1, size):
            scale = reference[S, j]
            # A numeric column that a row lacks is 0, which is -c / s in standard units.
            z[i, j] = -reference[C, j] / scale if j <= p and scale > 0.0 else 0.0
        for k in range(L):
            margins[i, k] = 0.0
        for n in range(indptr[i], indptr[i + 1]):
            j, x = indices[n], values[n]
            # A numeric column is its own place; others have it in their last shared slot.
            place = j if j <= p else int(number(cells[j * kind.width + SHARED - 1]))
            if place > 0:
                scale = reference[S, place]
                z[i, place] = (x - reference[C, place]) / scale if scale > 0.0 else 0.0
            elif j > p:
                for k in range(L):
                    margins[i, k] += number(cells[j * kind.width + SHARED + k]) * x
        for k in range(L):
            margins[i, k] += inner(vectors[k, W], z[i], size)


def exponentials(margins: Any, odds: Any, coupled: bool) -> None:
    """Writes exp(margin - largest margin) of each row and class, where classes are coupled."""
    if not coupled:
        return
    L = margins.shape[1]
    for n in range(len(margins)):
        top = margins[n, 0]
        for k in range(L):
            # The largest margin is subtracted, so that no exponential overflows.
            top = max(top, margins[n, k])
        for k in range(L):
            odds[n, k] = math.exp(margins[n, k] - top)


def total_of(odds: Any, n: int) -> float:
    """Returns the sum of one row's odds."""
    total = 0.0
    for k in range(odds.shape[1]):
        total += odds[n, k]
    return total


def slopes(
    margins: Any, odds: Any, y: Any, importance: Any, k: int, coupled: bool, classes: int, a: Any,
    off: Any,
) -> None:  # fmt: skip
    """Writes for class k: off = h (goal - p) and a = h p (1 - p) of each row."""
    L = margins.shape[1]
    for n in range(len(y)):
        if coupled:
            p = odds[n, k] / total_of(odds, n)
            goal = 1.0 if number_of_class(y[n], classes) == k else 0.0
        else:
            e = math.exp(-abs(margins[n, k]))
            p = (1.0 if margins[n, k] >= 0.0 else e) / (1.0 + e)
            goal = 1.0 if target(y[n], k, classes, L) > 0.0 else 0.0
        a[n], off[n] = importance[n] * p * (1.0 - p), importance[n] * (goal - p)


def curvatures(odds: Any, importance: Any, p: Any) -> None:
    """Writes h f p (1 - p) of each row and class over its odds, see ``softmax.add_curvatures``.
    p: scratch."""
    L = odds.shape[1]
    for n in range(len(odds)):
        total = total_of(odds, n)
        for k in range(L):
            p[k], odds[n, k] = odds[n, k] / total, 0.0
        add_curvatures(p[:L], importance[n], odds[n])


def absorb_all(A: Any, z: Any, a: Any, size: int) -> float:
    """A = sum of a z z'; the sum of a. Each entry's sum is in the rows' order, four rows a loop and
    ``NEARBY`` before the next row of A, so that these stay in the first-level cache."""
    total, rows, low = 0.0, z.shape[0], 0
    for n in range(rows):
        total += a[n]
    for i in range(size):
        for j in range(i, size):
            A[i, j] = 0.0
    while low < rows:
        high = min(low + NEARBY, rows)
        for i in range(size):
            row, n = A[i], low
            while n + 3 < high:
                z0, z1, z2, z3 = z[n], z[n + 1], z[n + 2], z[n + 3]
                v0, v1, v2, v3 = a[n] * z0[i], a[n + 1] * z1[i], a[n + 2] * z2[i], a[n + 3] * z3[i]
                for j in range(i, size):
                    row[j] = row[j] + v0 * z0[j] + v1 * z1[j] + v2 * z2[j] + v3 * z3[j]
                n += 4
            while n < high:
                v0, z0 = a[n] * z[n, i], z[n]
                for j in range(i, size):
                    row[j] += v0 * z0[j]
                n += 1
        low = high
    for i in range(size):
        for j in range(i):
            # One triangle is summed, and copied: A is symmetric to the bit.
            A[i, j] = A[j, i]
    return total


def step(
    P: Any, w: Any, z: Any, a: Any, off: Any, size: int, lam: float, lam_bias: float, g: Any,
    d: Any, along_d: Any,
) -> float:  # fmt: skip
    """Move w along d = P g, g the gradient. By how much it moves each row's margin is written to
    ``along_d``; the most is returned."""
    rows = z.shape[0]
    gradient(w, z, off, size, lam, lam_bias, g)
    # The bias has a prior of its own; the next line counts it with that of the others.
    gain, bend, r = multiply(P, g, size, d), (lam_bias - lam) * d[0] * d[0], 0.0
    bend += lam * inner(d, d, size)
    along(z, d, size, along_d)
    for n in range(rows):
        bend += a[n] * along_d[n] * along_d[n]
        r = max(r, abs(along_d[n]))
    b = math.log1p(r * gain / bend) / r if r > 0.0 and gain > 0.0 and bend > 0.0 else 0.0
    for j in range(size):
        w[j] += b * d[j]
    for n in range(rows):
        along_d[n] *= b
    return b * r


def along(z: Any, d: Any, size: int, found: Any) -> None:
    """Writes z d. Four rows a loop: a sum waits for itself, and four sums for none."""
    rows, n = z.shape[0], 0
    while n + 3 < rows:
        z0, z1, z2, z3 = z[n], z[n + 1], z[n + 2], z[n + 3]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(size):
            s0 += z0[j] * d[j]
            s1 += z1[j] * d[j]
            s2 += z2[j] * d[j]
            s3 += z3[j] * d[j]
        found[n], found[n + 1], found[n + 2], found[n + 3] = s0, s1, s2, s3
        n += 4
    while n < rows:
        found[n] = inner(z[n], d, size)
        n += 1


def gradient(w: Any, z: Any, off: Any, size: int, lam: float, lam_bias: float, g: Any) -> None:
    """g = sum of off z - prior w."""
    g[0] = -lam_bias * w[0]
    for j in range(1, size):
        g[j] = -lam * w[j]
    for n in range(z.shape[0]):
        row, by = z[n], off[n]
        for j in range(size):
            g[j] += by * row[j]
