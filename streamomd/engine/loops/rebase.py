"""The change of reference of a model on standardised inputs: (c, s, c_y) -> (c', s', c_y').

With z' = T z, T = [[1, 0], [be, diag(al)]], B's information becomes A' = T A T' and
b' = T b + A' e_0 (c_y - c_y'), b = A w + prior w + pool; then P = (A' + prior')^-1 and w' = P b'.
G's predictions stay, but for columns whose scale grows: these are squashed. Where the block is
divided into groups, A and P have a row of their group's coordinates only, and the bias is in the
first.

It happens some fifty times in a run: one compiled function serves all rules and losses.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamomd.engine.linalg.factorisations import invert
from streamomd.engine.loops.block_row import multiply
from streamomd.engine.loops.load_store import number
from streamomd.engine.loops.reference import C, S, next_reference
from streamomd.rules.common.standardized import (
    Accounts,
    Totals,
    following,
    following_in_pass,
    of_evidence,
    of_noise,
)
from streamomd.rules.contract import fields

AT = {name: at for at, name in enumerate(fields(Totals))}
T_, N_, NEXT_, LABELS_, MEAN_, M2_, C_Y_, S_Y_, MSE_ = (
    AT[name] for name in ("t", "n", "next", "labels", "y_mean", "y_M2", "c_y", "s_y", "mse")
)
LAM_, LAM_BIAS_ = AT["lam"], AT["lam_bias"]
VOLUME, STEEPEST, MOVED, PAST, MARK = (
    fields(Accounts).index(name) for name in ("volume", "steepest", "moved", "past", "mark")
)
RECENT_N_, RECENT_T_, ALL_N_ = AT["recent_n"], AT["recent_t"], AT["all_n"]
HORIZON_ = AT["horizon"]
RECENT_A_, ALL_A_, RETAINED_, SCALE_ = AT["recent_a"], AT["all_a"], AT["retained"], AT["scale"]
N_TOTALS = len(AT)
"""A form with accounts has more: see ``rules.certificates.matrix_bounds``."""
W, G, H, POOL, DIAGONAL = 0, 1, 2, 3, 4
"""Rows of ``vectors``: weights of B, weights and summed squared slopes of G; of B the steps that w
has not taken yet, and d, see ``rules.common.pooled``."""
ROWS = 5
"""Of a learner, with B; G alone has three."""
SHARED = len(("n", "q", "place"))
PASSES = 3.0
"""Passes that A holds at most. Of one alone, its last rows would count 2.7 times the first ones."""
LEAST = 1e-20
"""Where the scale of S falls below, S is multiplied out: float32 slots hold S / scale."""


class Kind(NamedTuple):
    """What a change of reference has to know of the rule, the loss and the layout, as numbers.

    width: cells of a coordinate. p: numeric columns. second, first: whether there are B and G.
    squared: the square loss. centres: the target has a reference.
    """

    width: int
    p: int
    second: bool
    first: bool
    squared: bool
    centres: bool
    prior: float
    prior_bias: float


def used(places: Any, p: int) -> int:
    """Coordinates of the block in use."""
    size = p + 1
    while size < len(places) and places[size] > 0:
        size += 1
    return size


def scratch(places: Any, group: int) -> tuple[Any, Any]:
    """What ``rebase`` writes into for itself."""
    return np.zeros((2, group, group)), np.zeros((5, len(places)))


def rebase(
    cells: Any, totals: Any, reference: Any, vectors: Any, A: Any, P: Any, places: Any, kind: Kind,
    square: Any, work: Any,
) -> None:  # fmt: skip
    """The change that is due at row t; between two changes, P is computed from A."""
    p, L = kind.p, vectors.shape[0]
    size, group = used(places, p), A.shape[2]
    if totals[T_] < totals[NEXT_]:
        for k in range(L):
            for low in range(0, size, group):
                d = min(group, size - low)
                resolve(A[k], P[k], low, d, totals[LAM_], totals[LAM_BIAS_], square)
            # P is new: the steps that waited are taken with it.
            multiply(P[k], vectors[k, POOL], size, work[0])
            for j in range(size):
                vectors[k, W, j] += work[0, j]
            settle(A[k], vectors[k], size, totals[LAM_], totals[LAM_BIAS_])
        return
    # Curvatures of the square loss do not depend on the weights.
    if kind.second and not kind.squared:
        recalibrate(totals, A, size)
    retained = forget(totals, L) if totals[HORIZON_] > 0.0 and kind.second else 1.0
    if kind.second:
        multiply_out(cells, totals, L, kind.width)
    s_y = 1.0
    c_y = 0.0
    if kind.centres:
        seen = totals[LABELS_]
        s_y = math.sqrt(totals[M2_] / seen) if seen > 0.0 else 0.0
        c_y = totals[MEAN_]
    totals[S_Y_] = s_y
    # Both are needed: b holds the prior's part at the weights of before.
    old, old_bias = totals[LAM_], totals[LAM_BIAS_]
    new, new_bias = old, kind.prior_bias * mean_importance(totals)
    if kind.second and (kind.squared or L == 1 or totals[HORIZON_] == 0.0):
        new = next_strength(totals, reference, vectors, P, size, kind)
        new *= passes_held(totals) * mean_importance(totals)
    shift = totals[C_Y_] - c_y
    al, be, c, s = work[0], work[1], work[2], work[3]
    al[0] = s[0] = 1.0
    for j in range(1, size):
        if j <= p:
            c[j], s[j] = next_reference(reference, j, totals[N_])
        else:
            # A sparse coordinate has no mean: its scale is the root of q, the mean of its squares.
            s[j] = math.sqrt(number(cells[places[j] * kind.width + 1]))
            if s[j] == 0.0:
                s[j] = reference[S, j]
        if s[j] > 0.0:
            al[j] = reference[S, j] / s[j]
            be[j] = (reference[C, j] - c[j]) / s[j]
    for k in range(L):
        if kind.first:
            change_of_G(vectors[k, G], vectors[k, H], reference, c, s, shift, p)
        if kind.second:
            w = vectors[k, W]
            grown = change_of_B(
                A[k], P[k], w, vectors[k, POOL], al, be, work[4], shift, (old_bias, old),
                (new_bias, new), retained, size, square,
            )  # fmt: skip
            settle(A[k], vectors[k], size, new, new_bias)
            if len(totals) // L > N_TOTALS:
                # What the certificate's sums gain where targets are measured from another centre.
                before, after = totals[MEAN_] - totals[C_Y_], totals[MEAN_] - c_y
                grown += totals[LABELS_] * (before * before - after * after)
                close_accounts(totals, k * (len(totals) // L) + N_TOTALS, 0.5 * grown)
    for j in range(1, size):
        reference[C, j], reference[S, j] = c[j], s[j]
    totals[C_Y_], totals[LAM_], totals[LAM_BIAS_] = c_y, new, new_bias
    totals[NEXT_] = following(totals[T_])
    if totals[HORIZON_] > 0.0:
        # Rows of one pass, as far as importances say.
        rows = totals[T_] * (totals[HORIZON_] / totals[N_])
        totals[NEXT_] = following_in_pass(totals[T_], rows)


def close_accounts(totals: Any, at: int, moved: float) -> None:
    """At a change of reference. at: where a learner's accounts begin."""
    totals[at + MOVED] += moved
    totals[at + PAST] += totals[at + STEEPEST] * (totals[at + VOLUME] - totals[at + MARK])
    totals[at + MARK] = totals[at + VOLUME]
    # Of each stretch between two changes the steepest row counts.
    totals[at + STEEPEST] = 0.0


def passes_held(totals: Any) -> Any:
    """How many passes over the rows A holds; so often the prior counts."""
    return max(totals[ALL_N_] / totals[HORIZON_], 1.0) if totals[HORIZON_] > 0.0 else 1.0


def mean_importance(totals: Any) -> Any:
    """The unit of importances: priors count as many rows of it. 0 before the first row."""
    return totals[N_] / totals[T_] if totals[T_] > 0.0 else 0.0


def forget(totals: Any, L: int) -> Any:
    """By what A and b are multiplied, so that they hold the last passes over the rows only."""
    r = min(PASSES * totals[HORIZON_] / totals[ALL_N_], 1.0)
    totals[ALL_N_] *= r
    each = len(totals) // L
    for k in range(L):
        totals[k * each + ALL_A_] *= r
        totals[k * each + RETAINED_] *= r
        totals[k * each + SCALE_] *= r
    return r


def recalibrate(totals: Any, A: Any, size: int) -> None:
    """A overstates the curvature of early rows: scaled to that of the rows since the last time.

    Both means end with the row before this one. In later passes these are a quarter pass at least:
    few rows of tables that are nearly separable may show no curvature at all.
    """
    L = A.shape[0]
    if totals[RECENT_T_] < 8.0 or totals[RECENT_N_] < 0.25 * totals[HORIZON_]:
        return
    for k in range(L):
        at = k * (len(totals) // L)
        recent = totals[at + RECENT_A_] / totals[RECENT_N_]
        ever = totals[at + ALL_A_] / totals[ALL_N_]
        # Never up, and at most to a tenth: few recent rows are a weak estimate.
        r = min(max(recent / ever, 0.1), 1.0) if ever > 0.0 else 1.0
        for j in range(size):
            for l in range(A.shape[2]):
                A[k, j, l] *= r
        totals[at + ALL_A_] *= r
        totals[at + RETAINED_] *= r
        totals[at + SCALE_] *= r
        totals[at + RECENT_A_] = 0.0
    totals[RECENT_N_] = 0.0
    totals[RECENT_T_] = 0.0


def multiply_out(cells: Any, totals: Any, L: int, width: int) -> None:
    """S with its scale, where that is small, or hundreds of passes would underflow it."""
    each = len(totals) // L
    for k in range(L):
        scale = totals[k * each + SCALE_]
        if scale < LEAST:
            # All coordinates: the scale is common to them.
            for j in range(len(cells) // width):
                cell = j * width + SHARED + L + k
                cells[cell] = number(cells[cell]) * scale
            totals[k * each + SCALE_] = 1.0


def next_strength(totals: Any, reference: Any, vectors: Any, P: Any, size: int, kind: Kind) -> Any:
    """lam' of one pass, by the state before the change. Of several classes that of the first pass
    stays, see ``rebase``, and counts once: weights of nearly separable tables have to grow."""
    if kind.squared:
        return of_noise(kind.prior, totals[MSE_], totals[S_Y_])
    known = weights = 0.0
    group = P.shape[2]
    for k in range(P.shape[0]):
        for j in range(1, size):
            # Places without a scale have learned nothing.
            if reference[S, j] > 0.0:
                known += 1.0 - totals[LAM_] * P[k, j, j % group]
                weights += vectors[k, W, j] * vectors[k, W, j]
    return of_evidence(kind.prior, totals[T_], known, weights, P.shape[0])


def change_of_B(
    A: Any, P: Any, w: Any, pool: Any, al: Any, be: Any, b: Any, shift: float, old: Any, new: Any,
    retained: float, size: int, square: Any,
) -> Any:  # fmt: skip
    """One learner's A, P and w; by how much b'w grows. al, be: of T; b, square: scratch. old, new:
    the priors of the bias and of the others, before and after."""
    group = A.shape[1]
    grown = 0.0
    for low in range(0, size, group):
        d = min(group, size - low)
        for i in range(d):
            prior = old[1] if low + i > 0 else old[0]
            total = prior * w[low + i] + pool[low + i]
            for j in range(d):
                total += A[low + i, j] * w[low + j]
            # b'w before, and at the end b'w after: accounts need the difference.
            grown -= w[low + i] * total
            b[low + i] = retained * total
        for i in range(d):
            for j in range(d):
                A[low + i, j] *= retained
    for j in range(group, size):  # what the bias takes over from the other groups
        if al[j] > 0.0:
            shift -= w[j] * (be[j] / al[j])
    for low in range(0, size, group):
        d = min(group, size - low)
        if low == 0:  # T A, then (T A) T'
            for i in range(1, d):
                b[i] = al[i] * b[i] + be[i] * b[0]
                for j in range(d):
                    A[i, j] = al[i] * A[i, j] + be[i] * A[0, j]
            for i in range(d):
                for j in range(1, d):
                    A[i, j] = al[j] * A[i, j] + be[j] * A[i, 0]
        else:
            for i in range(d):
                b[low + i] *= al[low + i]
                for j in range(d):
                    A[low + i, j] *= al[low + i] * al[low + j]
        for i in range(d):
            for j in range(i):
                A[low + i, j] = A[low + j, i]
        if low == 0:
            for i in range(d):
                b[i] += A[i, 0] * shift
        resolve(A, P, low, d, new[1], new[0], square)
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += P[low + i, j] * b[low + j]
            w[low + i] = total
            grown += total * b[low + i]
    return grown


def settle(A: Any, vectors: Any, size: int, lam: float, lam_bias: float) -> None:
    """One learner's pool and diagonal, once w has taken the pool with a new P."""
    group = A.shape[1]
    for j in range(size):
        vectors[POOL, j] = 0.0
        vectors[DIAGONAL, j] = 1.0 / (A[j, j % group] + (lam if j > 0 else lam_bias))


def change_of_G(g: Any, squares: Any, reference: Any, c: Any, s: Any, shift: float, p: int) -> None:
    """One learner's weights and summed squared slopes of the bias and the numeric columns."""
    for j in range(1, p + 1):
        before = reference[S, j]
        if before > 0.0:
            # g s' / s leaves predictions as they are; where s grows g stays, and they shrink.
            g[j] *= min(1.0, s[j] / before)
            g[0] += g[j] * ((c[j] - reference[C, j]) / s[j])
            squares[j] *= (before / s[j]) * (before / s[j])
    g[0] += shift


def resolve(A: Any, P: Any, low: int, d: int, lam: float, lam_bias: float, square: Any) -> None:
    """P = (A + prior)^-1 of the group of d coordinates from ``low``; square: scratch, 2 of d x d.

    A is positive semi-definite and the prior positive: where rounding says otherwise, the diagonal
    grows by the least power of ten times its rounding that helps.
    """
    whole, more = square[0], 0.0
    while True:
        for i in range(d):
            for j in range(d):
                whole[i, j] = A[low + i, j]
            # The bias is the first coordinate of the first group.
            prior = lam if low + i > 0 else lam_bias
            whole[i, i] += prior + more * A[low + i, i]
        if invert(whole, d, square[1], P[low : low + d]) or more > 1.0:
            break
        more = 1e-15 if more == 0.0 else 10.0 * more
