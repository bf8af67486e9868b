"""The change of reference of a model on standardised inputs: (c, s, c_y) -> (c', s', c_y').

With z' = T z, T = [[1, 0], [be, diag(al)]], B's information becomes A' = T A T' and
b' = T b + A' e_0 (c_y - c_y'), b = A w + prior w; then P = (A' + prior')^-1 and w' = P b'. G's
predictions stay, but for columns whose scale grows: these are squashed. Where the block is divided
into groups, A and P have a row of their group's coordinates only, and the bias is in the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streamomd.engine.linalg.cholesky import invert
from streamomd.engine.loops.load_store import number, take
from streamomd.engine.loops.reference import C, S, next_reference
from streamomd.engine.loops.row import Shape
from streamomd.losses import Loss
from streamomd.losses.contract import identity
from streamomd.rules.common.standardized import Totals, following, of_evidence, of_noise
from streamomd.rules.contract import Rule, fields

AT = {name: at for at, name in enumerate(fields(Totals))}
W, G, H = 0, 1, 2
"""Rows of ``vectors``: weights of B, weights and summed squared slopes of G."""
LEAST = 1e-20
"""Where the scale of S falls below, S is multiplied out: float32 slots hold S / scale."""


def make_rebase(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """rebase(cells, totals, reference, vectors, A, P, places, p, size, hyper, work, square).

    size: coordinates of the block in use. work: (5, block); square: (2, group, group); scratch.
    """
    L, width = shape.learners, shape.width
    n_shared, n_totals = len(rule.shared_slots), len(rule.total_slots)
    load_hyper = take(len(fields(rule.hyper)))
    Hyper = rule.hyper
    second, first = rule.storage.second, rule.storage.first  # type: ignore[union-attr]
    squared = loss.name == "square"
    at_S = n_shared + L
    t_, n_, next_, labels_, mean_, M2_ = (
        AT[name] for name in ("t", "n", "next", "labels", "y_mean", "y_M2")
    )
    c_y_, s_y_, lam_, mse_ = AT["c_y"], AT["s_y"], AT["lam"], AT["mse"]
    recent_n_, recent_t_, all_n_ = AT["recent_n"], AT["recent_t"], AT["all_n"]
    recent_a_, all_a_, kept_, scale_ = AT["recent_a"], AT["all_a"], AT["kept"], AT["scale"]
    centres = not loss.classifies and loss.mean is identity

    def recalibrate(cells: Any, totals: Any, A: Any, size: int) -> None:
        """A overstates the curvature of early rows: scaled to that of the rows since the last time.

        Both means end with the row before this one.
        """
        if totals[recent_t_] < 8.0:
            return
        for k in range(L):
            at = k * n_totals
            recent = totals[at + recent_a_] / totals[recent_n_]
            ever = totals[at + all_a_] / totals[all_n_]
            r = min(max(recent / ever, 0.1), 1.0) if ever > 0.0 else 1.0
            for j in range(size):
                for l in range(A.shape[2]):
                    A[k, j, l] *= r
            totals[at + all_a_] *= r
            totals[at + kept_] *= r
            totals[at + scale_] *= r
            totals[at + recent_a_] = 0.0
            if totals[at + scale_] < LEAST:
                for j in range(len(cells) // width):
                    cell = j * width + at_S + k
                    cells[cell] = number(cells[cell]) * totals[at + scale_]
                totals[at + scale_] = 1.0
        totals[recent_n_] = 0.0
        totals[recent_t_] = 0.0

    def next_strength(totals: Any, reference: Any, vectors: Any, P: Any, size: int, h: Any) -> Any:
        """lam', by the state before the change."""
        if squared:
            return of_noise(h.prior, totals[mse_], totals[s_y_])
        known = weights = 0.0
        group = P.shape[2]
        for k in range(L):
            for j in range(1, size):
                if reference[S, j] > 0.0:
                    known += 1.0 - totals[lam_] * P[k, j, j % group]
                    weights += vectors[k, W, j] * vectors[k, W, j]
        return of_evidence(h.prior, totals[t_], known, weights)

    def change_of_B(
        A: Any, P: Any, w: Any, al: Any, be: Any, b: Any, shift: float, old: float, new: float,
        prior_bias: float, size: int, square: Any,
    ) -> None:  # fmt: skip
        """One learner's A, P and w. al, be: of T; b, square: scratch. old, new: lam and lam'."""
        group = A.shape[1]
        for low in range(0, size, group):
            d = min(group, size - low)
            for i in range(d):
                prior = old if low + i > 0 else prior_bias
                total = prior * w[low + i]
                for j in range(d):
                    total += A[low + i, j] * w[low + j]
                b[low + i] = total
        for low in range(group, size, group):  # what the bias takes over from the other groups
            for j in range(low, min(low + group, size)):
                shift += w[j] * be[j]
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
            resolve(A, P, low, d, new, prior_bias, square)
            for i in range(d):
                total = 0.0
                for j in range(d):
                    total += P[low + i, j] * b[low + j]
                w[low + i] = total

    def change_of_G(
        g: Any, squares: Any, reference: Any, c: Any, s: Any, shift: float, p: int
    ) -> None:
        for j in range(1, p + 1):
            before = reference[S, j]
            if before > 0.0:
                g[j] *= min(1.0, s[j] / before)
                g[0] += g[j] * ((c[j] - reference[C, j]) / s[j])
                squares[j] *= (before / s[j]) * (before / s[j])
        g[0] += shift

    def rebase(
        cells: Any, totals: Any, reference: Any, vectors: Any, A: Any, P: Any, places: Any, p: int,
        size: int, hyper: Any, work: Any, square: Any,
    ) -> None:  # fmt: skip
        h = Hyper(*load_hyper(hyper, 0, 1))
        if second and not squared:
            recalibrate(cells, totals, A, size)
        s_y = 1.0
        c_y = 0.0
        if centres:
            seen = totals[labels_]
            s_y = math.sqrt(totals[M2_] / seen) if seen > 0.0 else 0.0
            c_y = totals[mean_]
        totals[s_y_] = s_y
        old = totals[lam_]
        new = old
        if second:
            new = next_strength(totals, reference, vectors, P, size, h)
        shift = totals[c_y_] - c_y
        al, be, c, s = work[0], work[1], work[2], work[3]
        al[0], be[0], c[0], s[0] = 1.0, 0.0, 0.0, 1.0
        for j in range(1, size):
            if j <= p:
                c[j], s[j] = next_reference(reference, j, totals[n_])
            else:
                c[j], s[j] = 0.0, math.sqrt(number(cells[places[j] * width + 1]))
                if s[j] == 0.0:
                    s[j] = reference[S, j]
            if s[j] > 0.0:
                al[j] = reference[S, j] / s[j]
                be[j] = (reference[C, j] - c[j]) / s[j]
            else:
                al[j] = be[j] = 0.0
        for k in range(L):
            if first:
                change_of_G(vectors[k, G], vectors[k, H], reference, c, s, shift, p)
            if second:
                change_of_B(
                    A[k], P[k], vectors[k, W], al, be, work[4], shift, old, new, h.prior_bias,
                    size, square,
                )  # fmt: skip
        for j in range(1, size):
            reference[C, j], reference[S, j] = c[j], s[j]
        totals[c_y_], totals[lam_] = c_y, new
        totals[next_] = following(totals[t_])

    return rebase


def resolve(
    A: Any, P: Any, low: int, d: int, lam: float, prior_bias: float, square: Any
) -> None:
    """P = (A + prior)^-1 of the group of d coordinates from ``low``; square: scratch, 2 of d x d.

    A is positive semi-definite and the prior positive: where rounding says otherwise, the diagonal
    grows by the least power of ten times its rounding that helps.
    """
    whole, more = square[0], 0.0
    while True:
        for i in range(d):
            for j in range(d):
                whole[i, j] = A[low + i, j]
            prior = lam if low + i > 0 else prior_bias
            whole[i, i] += prior + more * A[low + i, i]
        if invert(whole, d, square[1], P[low : low + d]) or more > 1.0:
            break
        more = 1e-15 if more == 0.0 else 10.0 * more
