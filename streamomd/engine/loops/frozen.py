"""Score rows by frozen predictions, and fit on them what a saved ``auto`` predicts with.

A row is predicted by copies of the weights that have learned none of it nor of the rows since the
copy: f0 by B's block, f1 by B's other coordinates, fG by G. Of log losses a chain of scalars is
fitted on these, S = th0 f0 + th1 f1, X = w S + (1 - w) fG, U = u X + (1 - u) r, where r are the
frequencies of the classes. Of the square loss w alone, S = f0 + f1, by the copy before the newest
one: a saved model predicts rows of much later than the next copy. Each scalar takes online Newton
steps from 1, with a prior; rows weigh in proportion to the mass scored before them, so the latest
weigh most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.load_store import number
from streamomd.engine.loops.rebase import AT, SHARED
from streamomd.engine.loops.row import Shape, entry, number_of_class, span, target
from streamomd.losses import Loss
from streamomd.rules.common.standardized import smoothed, smoothing
from streamomd.rules.contract import Rule, fields

PRIOR, PRIOR_OF_SHARE = 10.0, 30.0
"""Rows of curvature 1 that hold a scale, or a share, at 1."""
LARGEST_SCALE = 3.0
START = 10.0
"""Mass that is added to the mass scored: the first rows do not weigh almost nothing."""
FIRST, SPARSE = 256, 1024
"""Rows before the first copy: at least 256, and one in 1,024 coordinates. From there on an octave
of rows has eight copies. A copy reads every coordinate: 2^18 in half a millisecond."""
AHEAD = 16
"""Non-zeros from one read to the one whose weights are prefetched."""
EVERY, SELDOM = 1 << 14, 16
"""Rows up to which every row is scored. After 4, 8 and 16 times as many one is scored in 4, 8 and
``SELDOM``, before them one in 2: a scored row costs about .4 µs, with 75 words 1 µs."""


class Chain(NamedTuple):
    """What is fitted, in the order in which it is stored; behind it the importance of each class.

    due: rows learned before the next copy. rests: 1 where B rests until then, 2
    where G does. low, high: to
    which numbers are clipped, as predicted by the copy that scores; next_low, next_high: by the
    newest one. mass: scored, a row of mean importance counting 1. v: mean of the smaller squared
    error. A…, b…: sums of curvature and of gradients, times mass. th0, th1, w, u: the scalars.
    losses, weights: sums of frozen losses and of importances.
    """

    due: float = 0.0
    rests: float = 0.0
    low: float = 0.0
    high: float = 0.0
    next_low: float = 0.0
    next_high: float = 0.0
    mass: float = 0.0
    v: float = 0.0
    A00: float = 0.0
    A01: float = 0.0
    A11: float = 0.0
    b0: float = 0.0
    b1: float = 0.0
    th0: float = 1.0
    th1: float = 1.0
    Aw: float = 0.0
    bw: float = 0.0
    w: float = 1.0
    Au: float = 0.0
    bu: float = 0.0
    u: float = 1.0
    losses: float = 0.0
    weights: float = 0.0


LENGTH = len(fields(Chain))
FIELDS = {name: at for at, name in enumerate(fields(Chain))}
MASS, V, LOW, HIGH = (FIELDS[name] for name in ("mass", "v", "low", "high"))
A00, A01, A11, B0, B1 = (FIELDS[name] for name in ("A00", "A01", "A11", "b0", "b1"))
TH0, TH1, W, U, AW, AU = (FIELDS[name] for name in ("th0", "th1", "w", "u", "Aw", "Au"))
LOSSES, WEIGHTS = FIELDS["losses"], FIELDS["weights"]


R, SCALED, SHARED_WITH_G, CHAINED, ALONG, PROBABLE, BENDS = 3, 4, 5, 6, 7, 8, 9
ROWS = 10
"""Rows of a scored row's margins, behind f0, f1 and fG: r, S, X, U, a direction, probabilities,
curvatures."""


def scratch(learners: int) -> Any:
    """Rows of a scored row's numbers. Made here: a loop that makes arrays is loaded with all that
    numba knows of arrays."""
    return np.zeros((ROWS, max(learners, 3)))


def first_copy(size: int) -> int:
    """Rows learned before the first copy of the weights; size: coordinates of the model."""
    return 1 << (max(FIRST, -(-size // SPARSE)) - 1).bit_length()


def next_copy(t: int) -> int:
    """Rows learned before the copy after the one at t."""
    return t + (1 << (t.bit_length() - 1)) // 8


def period(row: int) -> int:
    """Returns of how many rows around this one, one is scored."""
    if row <= EVERY:
        return 1
    if row <= 4 * EVERY:
        return 2
    if row <= 8 * EVERY:
        return 4
    return 8 if row <= 16 * EVERY else SELDOM


def is_scored(row: int) -> bool:
    """By a hash of the row's number, from 1 on (Knuth, TAOCP 3, section 6.4)."""
    return ((row * 2654435761) & 0xFFFFFFFF) * period(row) < 1 << 32


def copy_weights(cells: Any, width: int, second: int, first: int, copies: Any) -> None:
    """Weights of each coordinate and learner. second, first: the first cells of B's and of G's."""
    for j in range(len(copies)):
        if cells[j * width] == 0.0:  # of no row yet, as most coordinates of 2^18
            continue
        for k in range(copies.shape[1]):
            copies[j, k, 0] = cells[j * width + second + k]
            copies[j, k, 1] = cells[j * width + first + k]


def frequencies(
    chain: Any, learners: int, classes: int, coupled: bool, mean: float, found: Any
) -> None:
    """Margins that predict the classes' importance, half a row of each added: logs of shares, by
    softmax; else each learner's log-odds."""
    total = 0.0
    for k in range(classes):
        total += chain[LENGTH + k] + 0.5 * mean
    for k in range(learners):
        own = chain[LENGTH + (k if learners > 1 else 1)] + 0.5 * mean
        found[k] = math.log(own / (total if coupled else total - own))


def newton_step(chain: Any, at: int, value: int, g: float, R: float, m: float) -> None:
    """Moves a share in [0, 1] at ``value``, whose A and b are at ``at``."""
    c = chain[MASS] + START
    chain[at] += m * c * R
    chain[at + 1] += m * c * (g + R * chain[value])
    found = (chain[at + 1] / c + PRIOR_OF_SHARE) / (chain[at] / c + PRIOR_OF_SHARE)
    chain[value] = min(max(found, 0.0), 1.0)


def newton_steps(chain: Any, g0: float, g1: float, R: Any, m: float) -> None:
    """Moves both scales. R: curvature of the first, of both together, of the second."""
    c = chain[MASS] + START
    th0, th1 = chain[TH0], chain[TH1]
    chain[A00] += m * c * R[0]
    chain[A01] += m * c * R[1]
    chain[A11] += m * c * R[2]
    chain[B0] += m * c * (g0 + R[0] * th0 + R[1] * th1)
    chain[B1] += m * c * (g1 + R[1] * th0 + R[2] * th1)
    a, b, d = chain[A00] / c + PRIOR, chain[A01] / c, chain[A11] / c + PRIOR
    y0, y1 = chain[B0] / c + PRIOR, chain[B1] / c + PRIOR
    determinant = a * d - b * b
    chain[TH0] = min(max((y0 * d - y1 * b) / determinant, 0.0), LARGEST_SCALE)
    chain[TH1] = min(max((y1 * a - y0 * b) / determinant, 0.0), LARGEST_SCALE)


def score_number(chain: Any, B: float, G: float, y: float, m: float, weight: float) -> None:
    """Scores a row of the square loss; half the squared error is its loss."""
    low, high, w = chain[LOW], chain[HIGH], chain[W]
    of_B = y - min(max(B, low), high)
    of_G = y - min(max(G, low), high)
    off = y - min(max(w * B + (1.0 - w) * G, low), high)
    chain[MASS] += m
    chain[LOSSES] += 0.5 * weight * off * off
    chain[WEIGHTS] += weight
    chain[V] += (min(of_B * of_B, of_G * of_G) - chain[V]) * m / chain[MASS]
    v = chain[V]
    if v > 0.0:
        d = B - G
        newton_step(chain, AW, W, off * d / v, d * d / v, m)


def make_log_losses(loss: Loss, shape: Shape) -> tuple[Callable[..., Any], ...]:
    """(log_loss, probabilities, gradient, curvature): of a row whose margins are given."""
    L, classes, coupled = shape.learners, shape.classes, loss.coupled

    def wrong(margin: float) -> float:
        """1 - p at the margin of a learner whose class is right."""
        e = math.exp(-abs(margin))
        return (e if margin >= 0.0 else 1.0) / (1.0 + e)

    def probabilities(margins: Any, y: float, p: Any) -> None:
        """Of each class, by softmax; else of each learner, that its class is the row's."""
        if not coupled:
            for k in range(L):
                p[k] = wrong(-margins[k])
            return
        largest, total = margins[0], 0.0
        for k in range(L):
            largest = max(largest, margins[k])
        for k in range(L):
            p[k] = math.exp(margins[k] - largest)
            total += p[k]
        for k in range(L):
            p[k] /= total

    def log_loss(margins: Any, y: float, e: float, p: Any) -> float:
        probabilities(margins, y, p)
        if coupled:
            at, others = number_of_class(y, classes), 0.0
            for k in range(L):
                others += p[k] if k != at else 0.0
            return smoothed(others, e, L * 1.0)
        found = 0.0
        for k in range(L):
            found += smoothed(wrong(margins[k] * target(y, k, classes, L)), e, 2.0)
        return found

    def gradient(p: Any, d: Any, y: float) -> float:
        """Along d, of -loss."""
        found = 0.0
        for k in range(L):
            if coupled:
                right = 1.0 if k == number_of_class(y, classes) else 0.0
            else:
                right = 1.0 if target(y, k, classes, L) > 0.0 else 0.0
            found += (right - p[k]) * d[k]
        return found

    def curvature(p: Any, d: Any, other: Any) -> float:
        mean = of_other = both = 0.0
        for k in range(L):
            both += p[k] * (1.0 if coupled else 1.0 - p[k]) * d[k] * other[k]
            mean += p[k] * d[k]
            of_other += p[k] * other[k]
        return both - mean * of_other if coupled else both

    return log_loss, probabilities, gradient, curvature


def make_fit(loss: Loss, shape: Shape) -> Callable[..., None]:
    """fit(chain, f, y, e, m, weight): a row of a log loss.

    f: rows f0, f1, fG and r; what follows is written to. m: its mass; weight: of its loss.
    """
    L = shape.learners
    log_loss, probabilities, gradient, curvature = make_log_losses(loss, shape)

    def predict(chain: Any, f: Any) -> None:
        """S, X and U, which the saved model predicts."""
        w, u = chain[W], chain[U]
        for k in range(L):
            f[SCALED, k] = chain[TH0] * f[0, k] + chain[TH1] * f[1, k]
            f[SHARED_WITH_G, k] = w * f[SCALED, k] + (1.0 - w) * f[2, k]
            f[CHAINED, k] = u * f[SHARED_WITH_G, k] + (1.0 - u) * f[R, k]

    def step(chain: Any, f: Any, at: int, value: int, y: float, m: float, rows: Any) -> None:
        """Of a share: f[rows[0]] is mixed of rows[1] and rows[2]."""
        p, d = f[PROBABLE], f[ALONG]
        probabilities(f[rows[0]], y, p)
        for k in range(L):
            d[k] = f[rows[1], k] - f[rows[2], k]
        newton_step(chain, at, value, gradient(p, d, y), curvature(p, d, d), m)

    def fit(chain: Any, f: Any, y: float, e: float, m: float, weight: float) -> None:
        p, bends = f[PROBABLE], f[BENDS]
        predict(chain, f)
        chain[MASS] += m
        chain[LOSSES] += weight * log_loss(f[CHAINED], y, e, p)
        chain[WEIGHTS] += weight
        step(chain, f, AU, U, y, m, (CHAINED, SHARED_WITH_G, R))
        step(chain, f, AW, W, y, m, (SHARED_WITH_G, SCALED, 2))
        probabilities(f[SCALED], y, p)
        bends[0], bends[1] = curvature(p, f[0], f[0]), curvature(p, f[0], f[1])
        bends[2] = curvature(p, f[1], f[1])
        newton_steps(chain, gradient(p, f[0], y), gradient(p, f[1], y), bends, m)

    return fit


def make_score(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """score(…): rows that will be learned, with no copy among them, after the first copy.

    copies: weights of B and G, of each learner, of each coordinate, flat. front: (learners, 2,
    1 + p), those of the bias and the numeric columns. f: of ``scratch``, written to.
    """
    L, classes, width, bias, dense = shape
    squared, classifies, coupled = loss.quadratic, loss.classifies, loss.coupled
    fit = make_fit(loss, shape)
    t_, n_ = AT["t"], AT["n"]

    def read(
        cells: Any, copies: Any, front: Any, p: int, indptr: Any, indices: Any, values: Any, i: int,
        f: Any,
    ) -> bool:  # fmt: skip
        """f0, f1 and fG of row i; whether they are finite."""
        for k in range(L):
            f[0, k], f[1, k], f[2, k] = front[k, 0, 0], 0.0, front[k, 1, 0]
        start, entries = span(indptr, i, bias, dense)
        for at in range(1, entries):
            if not dense and at + AHEAD < entries:
                ahead = indices[start + at + AHEAD - 1] + 1
                prefetch(cells, ahead * width, width)
                prefetch(copies, ahead * (2 * L), 2 * L)
            j, x = entry(indices, values, start, at, bias, dense)
            if j <= p:
                for k in range(L):
                    f[0, k] += front[k, 0, j] * x
                    f[2, k] += front[k, 1, j] * x
                continue
            place = number(cells[j * width + SHARED - 1])
            row = 0 if place > 0.0 else 1
            for k in range(L):
                weights = (j * L + k) * 2
                f[row, k] += number(copies[weights]) * x
                f[2, k] += number(copies[weights + 1]) * x
        finite = True
        for k in range(L):
            finite = finite and math.isfinite(f[0, k] + f[1, k] + f[2, k])
        return finite

    def score(
        cells: Any, totals: Any, copies: Any, front: Any, chain: Any, p: int, indptr: Any,
        indices: Any, values: Any, y: Any, importance: Any, f: Any,
    ) -> None:  # fmt: skip
        t, n = totals[t_], totals[n_]
        for i in range(len(y)):
            h = importance[i]
            if h <= 0.0:
                continue
            mean = n / t if t > 0.0 else h
            t += 1.0
            n += h
            row = int(t)
            if is_scored(row) and read(cells, copies, front, p, indptr, indices, values, i, f):
                weight = h * period(row)
                m = 2.0 * weight / (h + n / t)
                if squared:
                    score_number(chain, f[0, 0] + f[1, 0], f[2, 0], y[i], m, weight)
                else:
                    frequencies(chain, L, classes, coupled, mean, f[R])
                    fit(chain, f, y[i], smoothing(t), m, weight)
            if classifies:
                chain[LENGTH + number_of_class(y[i], classes)] += h

    return score
