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

from streamomd.engine.loops.block_row import dot, inner, multiply, padded
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
from streamomd.engine.loops.row import FAR, number_of_class, target
from streamomd.losses.softmax import add_curvatures

LEAST, LAST = 32, 16_384
"""Rows of the first and of the last solve. On made streams of 5 columns a last solve after 1,024
rows leaves intervals too narrow (coverage .90 of .95 where margins have a deviation of 8); of
tables of several classes one after 2,048 leaves up to 8 % of what they can explain."""
NEARBY = 32
"""Rows, a multiple of four, whose z are read for each row of A in turn."""
G, D, BEND, OFF, ALONG = range(5)
"""Rows of ``work``: the gradient, the direction P g, and of each stored row h p (1 - p),
h (goal - p), and by how much the step moves its margin."""
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
    """w, A and P of the block. Zeros to write to: z (rows, padded block), margins (learners, rows),
    odds (learners + 1, rows), the last ones for their sums, square (2, block, block), work (5, rows
    or padded block)."""
    L, size = len(vectors), used(places, kind.p)
    lam, lam_bias, each = totals[LAM_], totals[LAM_BIAS_], len(totals) // L
    lay_out(cells, reference, vectors, places, kind, size, indptr, indices, values, z, margins)
    a, off = work[BEND], work[OFF]
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
            moved = max(moved, step(P[k], vectors[k, W], z, size, lam, lam_bias, work))
            take_step(margins, odds, k, coupled, work[ALONG])
        if moved < NEAR:
            break
    exponentials(margins, odds, coupled)
    if coupled:
        curvatures(odds, importance, work[D], off)
    for k in range(L):
        if coupled:
            for i in range(len(y)):
                a[i] = odds[k, i]
        else:
            slopes(margins, odds, y, importance, k, coupled, classes, a, off)
        # A at the weights found: that before the sweeps was only for their steps.
        total = absorb_all(A[k], z, a, size)
        resolve(A[k], P[k], 0, size, lam, lam_bias, square)
        before = totals[k * each + ALL_A_]
        if before > 0.0:
            # Overstated outside of the block, too, where S is scaled: its rows are not stored.
            totals[k * each + SCALE_] *= min(max(total / before, 0.1), 1.0)
        totals[k * each + ALL_A_] = total
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
    p, L = kind.p, len(vectors)
    for i in range(len(indptr) - 1):
        z[i, 0] = 1.0
        for j in range(1, size):
            scale = reference[S, j]
            # A numeric column that a row lacks is 0, which is -c / s in standard units.
            z[i, j] = -reference[C, j] / scale if j <= p and scale > 0.0 else 0.0
        for k in range(L):
            margins[k, i] = 0.0
        for n in range(indptr[i], indptr[i + 1]):
            j, x = indices[n], values[n]
            # A numeric column is its own place; others have it in their last shared slot.
            place = j if j <= p else int(number(cells[j * kind.width + SHARED - 1]))
            if place > 0:
                scale = reference[S, place]
                z[i, place] = (x - reference[C, place]) / scale if scale > 0.0 else 0.0
            elif j > p:
                for k in range(L):
                    margins[k, i] += number(cells[j * kind.width + SHARED + k]) * x
        for k in range(L):
            margins[k, i] += inner(vectors[k, W], z[i], size)


def exponentials(margins: Any, odds: Any, coupled: bool) -> None:
    """Writes exp(margin - largest margin) of each class and row, where classes are coupled, and
    their sums."""
    if not coupled:
        return
    L, rows = margins.shape
    top = odds[L]
    for n in range(rows):
        top[n] = margins[0, n]
    for k in range(L):
        for n in range(rows):
            # The largest margin is subtracted, so that no exponential overflows.
            top[n] = max(top[n], margins[k, n])
    for k in range(L):
        for n in range(rows):
            odds[k, n] = math.exp(margins[k, n] - top[n])
    add_up(odds)


def take_step(margins: Any, odds: Any, k: int, coupled: bool, moves: Any) -> None:
    """Class k's margins and odds after its step."""
    for n in range(margins.shape[1]):
        margins[k, n] += moves[n]
    if coupled:
        for n in range(margins.shape[1]):
            odds[k, n] *= math.exp(moves[n])
        add_up(odds)


def add_up(odds: Any) -> None:
    """The sums of the rows' odds."""
    L, total = len(odds) - 1, odds[len(odds) - 1]
    for n in range(len(total)):
        total[n] = 0.0
    for k in range(L):
        for n in range(len(total)):
            total[n] += odds[k, n]


def slopes(
    margins: Any, odds: Any, y: Any, importance: Any, k: int, coupled: bool, classes: int, a: Any,
    off: Any,
) -> None:  # fmt: skip
    """Writes for class k: off = h (goal - p) and a = h p (1 - p) of each row."""
    L = len(margins)
    for n in range(len(y)):
        if coupled:
            p = odds[k, n] / odds[L, n]
            goal = 1.0 if number_of_class(y[n], classes) == k else 0.0
        else:
            e = math.exp(-abs(margins[k, n]))
            p = (1.0 if margins[k, n] >= 0.0 else e) / (1.0 + e)
            goal = 1.0 if target(y[n], k, classes, L) > 0.0 else 0.0
        a[n], off[n] = importance[n] * p * (1.0 - p), importance[n] * (goal - p)


def curvatures(odds: Any, importance: Any, p: Any, a: Any) -> None:
    """Writes h f p (1 - p) of each class and row over its odds, see ``softmax.add_curvatures``.
    p, a: scratch."""
    L = len(odds) - 1
    for n in range(len(importance)):
        for k in range(L):
            p[k], a[k] = odds[k, n] / odds[L, n], 0.0
        add_curvatures(p[:L], importance[n], a)
        for k in range(L):
            odds[k, n] = a[k]


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
        for m in range(size):
            i, n = m & FAR, low
            while n + 3 < high:
                at = n & FAR  # never negative, as i: loops over j are vectorised
                v0, v1 = a[at] * z[at, i], a[at + 1] * z[at + 1, i]
                v2, v3 = a[at + 2] * z[at + 2, i], a[at + 3] * z[at + 3, i]
                for l in range(size - i):
                    j = i + l
                    A[i, j] = (
                        ((A[i, j] + v0 * z[at, j]) + v1 * z[at + 1, j]) + v2 * z[at + 2, j]
                    ) + v3 * z[at + 3, j]
                n += 4
            while n < high:
                at = n & FAR
                v0 = a[at] * z[at, i]
                for l in range(size - i):
                    A[i, i + l] += v0 * z[at, i + l]
                n += 1
        low = high
    for i in range(size):
        for j in range(i):
            # One triangle is summed, and copied: A is symmetric to the bit.
            A[i, j] = A[j, i]
    return total


def step(P: Any, w: Any, z: Any, size: int, lam: float, lam_bias: float, work: Any) -> float:
    """Move w along d = P g, g the gradient. By how much it moves each row's margin is written to
    ``work[ALONG]``; the most is returned."""
    g, d, a, moves = work[G], work[D], work[BEND], work[ALONG]
    rows, entries = len(z), padded(size)
    gradient(w, z, work[OFF], size, lam, lam_bias, g)
    # The bias has a prior of its own; the next line counts it with that of the others.
    gain, bend, r = multiply(P, g, size, d), (lam_bias - lam) * d[0] * d[0], 0.0
    bend += lam * inner(d, d, size)
    for n in range(rows):
        moves[n] = dot(z, n, work, D, entries)
    for n in range(rows):
        bend += a[n] * moves[n] * moves[n]
        r = max(r, abs(moves[n]))
    b = math.log1p(r * gain / bend) / r if r > 0.0 and gain > 0.0 and bend > 0.0 else 0.0
    for j in range(size):
        w[j] += b * d[j]
    for n in range(rows):
        moves[n] *= b
    return b * r


def gradient(w: Any, z: Any, off: Any, size: int, lam: float, lam_bias: float, g: Any) -> None:
    """g = sum of off z - prior w. Each entry's sum is in the rows' order, four rows a loop."""
    rows, n = len(z), 0
    g[0] = -lam_bias * w[0]
    for j in range(1, size):
        g[j] = -lam * w[j]
    while n + 3 < rows:
        i = n & FAR
        v0, v1, v2, v3 = off[i], off[i + 1], off[i + 2], off[i + 3]
        for j in range(size & FAR):
            g[j] = (((g[j] + v0 * z[i, j]) + v1 * z[i + 1, j]) + v2 * z[i + 2, j]) + v3 * z[
                i + 3, j
            ]
        n += 4
    while n < rows:
        for j in range(size & FAR):
            g[j] += off[n] * z[n, j]
        n += 1
